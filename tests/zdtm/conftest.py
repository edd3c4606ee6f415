"""The hosts of the integration tests."""
from integration import conftest

cluster = conftest.cluster

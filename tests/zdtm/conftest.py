"""The hosts of the integration tests."""
from integration.conftest import cluster  # noqa: F401

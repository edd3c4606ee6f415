"""From a release tarball to an artifact."""

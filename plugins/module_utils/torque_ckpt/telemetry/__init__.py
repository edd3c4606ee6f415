"""What the hooks report to people, the system log and Prometheus."""

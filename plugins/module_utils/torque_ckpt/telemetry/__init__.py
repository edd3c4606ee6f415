"""What the hooks tell people, the system log and Prometheus."""

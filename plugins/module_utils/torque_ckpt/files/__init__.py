"""What travels with an image, or must not have changed when it is restarted."""

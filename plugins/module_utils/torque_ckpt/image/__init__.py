"""What an image is: its manifest, its seal, its files."""

"""What a network is, and the files it comes from."""

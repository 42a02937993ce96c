"""What models attend to, with the labels of what they read."""

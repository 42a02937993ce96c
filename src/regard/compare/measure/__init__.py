"""What is measured, one file a part."""

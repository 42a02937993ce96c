"""What is trained and run from one command, a file a task."""

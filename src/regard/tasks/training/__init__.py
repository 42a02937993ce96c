"""Training, the same for every task: the loop, the run's folder and checkpoints, settings and devices."""

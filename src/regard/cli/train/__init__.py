"""Commands for training, one file each."""

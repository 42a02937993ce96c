"""Commands that train, one file each."""

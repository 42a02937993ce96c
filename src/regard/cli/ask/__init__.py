"""Commands that ask a trained run, one file each."""

"""Commands for inference with a trained run, one file each."""

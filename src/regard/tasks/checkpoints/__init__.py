"""Hugging Face checkpoints on disk, opened safely: their code is never run, nothing is unpickled or downloaded."""

"""Text datasets and tokenizers, and what the tasks of text share: labels, fine-tuning, prediction."""

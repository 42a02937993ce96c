"""The tasks of text: translation, tagging, classification, summarization, pre-training; and embeddings."""

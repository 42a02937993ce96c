"""Evaluation metrics: BLEU and chrF, accuracy and F1, and significance against a baseline."""

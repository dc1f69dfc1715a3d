"""Held-out questions in, accuracies with confidence intervals out."""

"""Responses in, rewards out."""

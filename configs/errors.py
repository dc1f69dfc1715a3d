"""Errors that are the user's to correct."""


class UserError(ValueError):
    """A mistake in what the user gave us: shown without a traceback."""

"""Addresses as they may be shown and stored: without the user and the password that they may hold."""

import re

_USER = re.compile(r"""(\b[\w+.-]+://)[^/?#\s"']*@""")


def holds_user(text: str) -> bool:
    """Tell whether a text is an address with a user name or a password, as in `http://me:secret@mlflow:5000`."""
    return _USER.match(text) is not None


def without_user(text: str) -> str:
    """Return an address, or a text with addresses in it, without their user names and passwords."""
    return _USER.sub(r"\1", text)

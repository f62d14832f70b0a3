"""Object ids as git prints them: whole, in lower case, of SHA-1 or of SHA-256."""

from __future__ import annotations

import re

OID = "(?:[0-9a-f]{40}|[0-9a-f]{64})"
"""A regular expression."""

_WHOLE = re.compile(OID)
_WORD = re.compile(rf"\b{OID}\b".encode())


def is_oid(text: str) -> bool:
    """Return whether a text has the form of an object id."""
    return _WHOLE.fullmatch(text) is not None


def oids_in(content: bytes) -> set[str]:
    """Return the object ids among the words of a file."""
    return {match.decode() for match in _WORD.findall(content)}

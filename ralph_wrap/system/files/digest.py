"""SHA-1 and SHA-256 of names and short files, from Python's own code.

``hashlib`` has both from OpenSSL, and loads it first. That takes 4 ms, which no short text gives back.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha1, sha256
    from typing import Any

__all__ = ["sha1", "sha256"]


def _find(name: str, *modules: str) -> Any:
    for module in modules:
        with suppress(ImportError):
            return getattr(import_module(module), name)
    return getattr(import_module("hashlib"), name)  # a Python that was built without its own code


if not TYPE_CHECKING:
    sha1 = _find("sha1", "_sha1")
    sha256 = _find("sha256", "_sha256", "_sha2")  # Python 3.12 renamed the module

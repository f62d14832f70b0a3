"""One answer of the doctor."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """What was looked at, and what came of it.

    Attributes:
        check: its name.
        ok: a session can do with what was found.
        found: what was found.
        why: what depends on it.
        fix: what to run or change; empty if there is nothing to do.

    """

    check: str
    ok: bool
    found: str
    why: str
    fix: str

    @property
    def verdict(self) -> str:
        """In one word: a note is no failure, but worth reading."""
        return "FAIL" if not self.ok else "note" if self.fix else "ok"


def fine(check: str, found: str, why: str) -> Check:
    """Return a check that has found nothing to do."""
    return Check(check, True, found, why, "")


def noted(check: str, found: str, why: str, fix: str) -> Check:
    """Return a check that has found what a session can do with, but what could be better."""
    return Check(check, True, found, why, fix)


def failed(check: str, found: str, why: str, fix: str) -> Check:
    """Return a check that has found what a session cannot do with."""
    return Check(check, False, found, why, fix)

"""The result of one check of the doctor."""

from __future__ import annotations

from typing import NamedTuple


class DoctorCheck(NamedTuple):
    """A check and its result.

    Attributes:
        check: its name.
        ok: a session can work with the result.
        found: the result in words.
        why: the reason why it matters.
        fix: a command or a change that fixes it; empty if nothing needs a fix.

    """

    check: str
    ok: bool
    found: str
    why: str
    fix: str

    @property
    def verdict(self) -> str:
        """The result in one word; a note is not a failure, but the user should read it."""
        return "FAIL" if not self.ok else "note" if self.fix else "ok"


def fine(check: str, found: str, why: str) -> DoctorCheck:
    """Return a check that needs no fix."""
    return DoctorCheck(check, True, found, why, "")


def noted(check: str, found: str, why: str, fix: str) -> DoctorCheck:
    """Return a check with a result that a session can work with, but that could be better."""
    return DoctorCheck(check, True, found, why, fix)


def failed(check: str, found: str, why: str, fix: str) -> DoctorCheck:
    """Return a check with a result that a session cannot work with."""
    return DoctorCheck(check, False, found, why, fix)

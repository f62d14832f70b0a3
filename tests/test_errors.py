"""What every error means to a program: its exit status and its code."""

from __future__ import annotations

import errno
import re
import subprocess
from pathlib import Path

import pytest

from ralph_wrap import errors
from ralph_wrap.errors import GitError, RalphError

STATUSES = {
    "problems": 1,
    "usage": 2,
    "not_a_repository": 3,
    "not_found": 4,
    "refused": 5,
    "conflict": 6,
    "not_ours": 7,
    "git_too_old": 8,
    "tampered": 9,
    "failed": 125,
}
"""The rows of the contract's table; the agent's own statuses are in AGENT."""

AGENT = {"AgentError": 126, "AgentNotFoundError": 127}
"""The convention of ``env``, ``timeout`` and ``docker run``."""


def _tree(kind: type[RalphError] = RalphError, depth: int = 0) -> list[tuple[int, str, int, str]]:
    """Return depth, name, status and code of an error of the module and of everything below it."""
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    below = [row for child in children for row in _tree(child, depth + 1)]
    return [(depth, kind.__name__, kind.exit_code, kind.code), *below]


def _drawn() -> list[tuple[int, str, int, str]]:
    """Return the same from the drawing in the module's docstring."""
    rows = re.finditer(r"^    ([| -]*)(\w+) +(\d+)  (\w+)", errors.__doc__ or "", re.MULTILINE)
    return [(len(row[1]) // 4, row[2], int(row[3]), row[4]) for row in rows]


def test_the_drawn_tree_is_the_real_one() -> None:
    """The docstring shows every error of the module, in order, below its parent, with its status and code."""
    assert _drawn() == _tree()


def test_codes_have_the_statuses_of_the_contract() -> None:
    """A program that knows the table needs no other list."""
    found = {code: status for _, name, status, code in _tree() if name not in AGENT}
    assert found == STATUSES


def test_an_agent_that_cannot_run_has_the_status_of_a_shell() -> None:
    """126 for what is there and cannot be run, 127 for what is not there."""
    assert {name: status for _, name, status, _ in _tree() if name in AGENT} == AGENT


def test_an_error_reads_as_its_message() -> None:
    """The hint is kept apart; a caller shows both."""
    error = RalphError("the fact", "what to do")
    assert (str(error), error.message, error.hint) == ("the fact", "the fact", "what to do")


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("fatal: bad revision\n", "fatal: bad revision"),
        ("warning: x\nfatal: it broke\nhint: mend it\n", "fatal: it broke"),
        ("error: first\nfatal: second\n", "error: first"),
        ("hint: one\nlast words\n\n", "last words"),
        ("fatal: unknown extension found:\n\tnoop\n", "fatal: unknown extension found: noop"),
        ("", "no message"),
        (" \n\n", "no message"),
    ],
)
def test_the_error_of_a_failed_git_command_has_the_reason(stderr: str, message: str) -> None:
    """Of all that git says, the line that tells why is shown; the rest stays at hand."""
    error = GitError("worktree", 128, stderr)
    assert (error.message, error.status, error.stderr) == (
        f"git worktree failed (128): {message}",
        128,
        stderr,
    )


def test_the_hint_about_a_path_looks_at_that_path(tmp_path: Path) -> None:
    """Doctor cannot know it; of what is not there, the nearest directory that is."""
    path = tmp_path / "a; b" / "gone"
    hint = errors.explained(PermissionError(errno.EACCES, "Permission denied", str(path))).hint
    assert "doctor" not in hint
    shown = subprocess.check_output(("sh", "-c", hint.partition(": ")[2]), text=True)
    assert (f" {tmp_path}\n" in shown, "uid=" in shown) == (True, True)

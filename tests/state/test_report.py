"""What a person reads at the end: what to type next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ralph_wrap.state.report import SessionReport, summary

ROOT = Path("/x y")
OURS, THEIRS = {"branch": "ralph/a3f2"}, {"branch": "topic;x"}
COMMITS: dict[str, Any] = {"commits": 2}
SAVED: dict[str, Any] = {"saved": "ralph/a3f2-wip", "saved_paths": ("a",)}


def _next(typed: tuple[str, ...] | None = None, **facts: Any) -> list[str]:
    """Return what stands behind the path of the output."""
    report = SessionReport(
        id="a3f2",
        session="20261121T203045Z-a3f2",
        agent="x",
        started="",
        ended="",
        exit_status=0,
        iterations=1,
        base="0123456789abcdef",
        **{"ended_by": "promise"} | facts,
    )
    rows = summary(report, ROOT, Path("/log"), typed).splitlines()
    return rows[rows.index("  output     /log") + 1 :]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (OURS | COMMITS, "ralph-wrap diff -C '/x y' a3f2, then ralph-wrap merge"),
        (OURS | SAVED, "ralph-wrap diff --saved -C '/x y' a3f2, then ralph-wrap apply"),
        (OURS | COMMITS | SAVED, "ralph-wrap diff --saved -C '/x y' a3f2, then ralph-wrap merge and apply"),
        ({"branch": "ralph/x;y"} | COMMITS, "ralph-wrap diff -C '/x y' 'ralph/x;y', then ralph-wrap merge"),
        (THEIRS | COMMITS, "git -C '/x y' log -p 0123456789ab..'topic;x'"),
        (THEIRS | {"saved": "a;b", "saved_paths": ("a",)}, "git -C '/x y' diff 'a;b'^ 'a;b'"),
    ],
)
def test_one_line_tells_what_is_next(facts: dict[str, Any], words: str) -> None:
    """What has come of the session decides; a branch of the user's own is theirs to land."""
    assert _next(**facts) == [f"  next       {words}"]


@pytest.mark.parametrize(
    "facts", [{}, OURS, OURS | {"commits": 0}, OURS | {"saved": "ralph/a3f2-wip"}, COMMITS], ids=repr
)
def test_nothing_came_of_it(facts: dict[str, Any]) -> None:
    """So nothing is next."""
    assert _next(**facts) == []


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ((), ""),
        (("--max-iterations", "5", "--prompt", "it's"), """ --max-iterations 5 --prompt 'it'"'"'s'"""),
        (("--", "sh", "-c", "a;b"), " -- sh -c 'a;b'"),
        (("--prompt", "two\nlines"), " …"),
        (("--prompt", "x" * 500), " …"),
        (None, " …"),
    ],
    ids=repr,
)
def test_who_goes_on_types_the_same_once_more(typed: tuple[str, ...] | None, shown: str) -> None:
    """Unless it fits on no line, or nobody has typed it."""
    rows = _next(typed, ended_by="max-iterations", branch="topic;x")
    assert rows == [f"  go on      ralph-wrap run -C '/x y' --branch 'topic;x'{shown}"]

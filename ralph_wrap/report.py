"""What a session tells at its start and at its end, for people and as ``report.json``."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ralph_wrap.log import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = 1
"""Of ``report.json``."""

_NAMED = 10  # ignored files that are named; the others are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """How a session ended. ``None`` where something does not apply or was not looked at.

    Attributes:
        id: agent id.
        session: session id.
        agent: what it ran.
        started: UTC, ISO 8601.
        ended: the same.
        ended_by: promise, max-iterations, max-failures, max-stalls, max-time, signal, not-started, error.
        exit_status: of ``ralph-wrap run``.
        error: what went wrong, where an error ended it.
        iterations: how many were started.
        commits: on *branch* since *base*.
        cost_usd: what the agent reported.
        tokens: the same.
        branch: what the session worked on; ``None`` in the plain project root, or if nothing is left of it.
        base: the commit it started from.
        saved: the branch that holds what was uncommitted.
        saved_paths: what was uncommitted.
        snapshots: refs that hold commits which were on no branch.
        workspace: where the agent worked.
        kept: why the worktree is still there.
        ignored_removed: ignored files that went with the worktree: their number, and the first few names.
        leaks: changes outside the workspace.
        fallback: why there was no worktree.

    """

    id: str
    session: str
    agent: str
    started: str
    ended: str
    ended_by: str
    exit_status: int
    iterations: int
    error: str | None = None
    commits: int | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    branch: str | None = None
    base: str | None = None
    saved: str | None = None
    saved_paths: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    workspace: str | None = None
    kept: str | None = None
    ignored_removed: dict[str, Any] | None = None
    leaks: tuple[str, ...] | None = None
    fallback: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in ``report.json``."""
        return {"version": VERSION, **dataclasses.asdict(self)}

    def to_json(self) -> bytes:
        """Return ``report.json``."""
        return json.dumps(self.to_dict(), indent=1).encode() + b"\n"


def ignored_removed(files: int, paths: Sequence[str]) -> dict[str, Any]:
    """Return the report's account of ignored files."""
    return {"files": files, "paths": list(paths[:_NAMED])}


def banner(
    *, session: str, branch: str | None, base: str | None, workspace: Path, log: Path, agent: str
) -> str:
    """Return what a person sees when a session starts."""
    rows = [
        ("session", session),
        ("branch", f"{branch} from {(base or '')[:12]}" if branch else "none: not isolated"),
        ("workspace", os.fspath(workspace)),
        ("agent", agent),
        ("output", os.fspath(log)),
    ]
    return _table("ralph-wrap: session started", rows)


def summary(report: SessionReport, root: Path, log: Path) -> str:
    """Return what a person sees when a session has ended."""
    rows = [("session", report.session)]
    if report.branch:
        rows.append(("branch", f"{report.branch}, {_counted(report.commits or 0, 'commit')}"))
    if report.saved:
        left = f", {_counted(len(report.saved_paths), 'path')} not committed" if report.saved_paths else ""
        rows.append(("saved", f"{report.saved}{left}"))
    rows += [("saved", ref) for ref in report.snapshots]
    if report.workspace and report.base:
        rows.append(("worktree", f"kept: {report.workspace} ({report.kept})" if report.kept else "removed"))
    if report.ignored_removed and report.ignored_removed["files"]:
        names = ", ".join(report.ignored_removed["paths"])
        rows.append(("ignored", f"{_counted(report.ignored_removed['files'], 'file')} went with it: {names}"))
    rows.append(("output", os.fspath(log)))
    where = shlex.quote(os.fspath(root))
    if report.branch and report.commits:
        rows.append(("review", f"git -C {where} log -p {(report.base or '')[:12]}..{report.branch}"))
    if report.saved and report.saved_paths:
        rows.append(("", f"git -C {where} diff {report.saved}^ {report.saved}"))
    if report.kept and report.workspace:
        place = shlex.quote(report.workspace)
        rows.append(("remove", f"git -C {where} worktree remove --force --force {place}"))
    return _table(f"ralph-wrap: {ending(report)}", rows)


def ending(report: SessionReport) -> str:
    """Return how a session ended, in one line."""
    return (
        f"session ended by {report.ended_by} after {_counted(report.iterations, 'iteration')}"
        f" (exit status {report.exit_status})"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join((title, *(f"  {label:<10} {one_line(words)}" for label, words in rows)))

"""The start banner and the exit report of a session, for people and as ``report.json``."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ralph_wrap.errors import RalphError
from ralph_wrap.state.ids import started
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.system.log import one_line
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.system.text import and_more

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ralph_wrap.agents.output import Usage
    from ralph_wrap.state.registry import SessionRecord

_FORMAT = DocumentFormat(version=1, indent=1)
_LONGEST = 500  # maximum number of characters of the user's command line to repeat
_NAMED = 10  # maximum number of changes outside the worktree to name; the others are counted


_LIMITS = {
    "max-iterations": "--max-iterations: this number of iterations has run",
    "max-failures": "--max-failures: this number of iterations in a row failed",
    "max-stalls": "--max-stalls: this number of iterations in a row changed nothing",
    "max-time": "--max-time: the time is over",
    "max-cost": "--max-cost: this amount is spent",
    "max-tokens": "--max-tokens: this number of tokens is used",
    "usage-limit": "the account's usage limit lasts longer than --max-time",
    "leak": "--on-leak stop: a file outside the worktree changed",
}
"""The cause of the end, for people, if a limit ended the loop."""


class SessionReport(NamedTuple):
    """The end of a session. ``None`` means that a field does not apply or was not checked.

    Attributes:
        id: agent id.
        session: session id.
        agent: the agent or command.
        started: UTC, ISO 8601.
        ended: UTC, ISO 8601.
        ended_by: promise, max-iterations, max-failures, max-stalls, max-time, max-cost, max-tokens,
            usage-limit, stop, signal, leak, not-started, error, killed.
        exit_status: of ``ralph-wrap run``.
        error: the message, if an error ended the session.
        iterations: number of iterations that were started.
        commits: number of commits on *branch* since *base*.
        cost_usd: the cost that the agent reported, in US dollars.
        tokens: the tokens that the agent reported: input, output and cached ones.
        branch: the session's branch; ``None`` in the plain project root, or if the branch was deleted.
        base: the commit that the branch started from.
        saved: the branch with the uncommitted work.
        saved_paths: the uncommitted paths.
        snapshots: refs with commits that were on no branch.
        submodules: submodules with saved work: path, repository that contains it now, refs in it.
        workspace: the directory in which the agent worked.
        kept: reason why the worktree was kept.
        ignored_removed: ignored files removed with the worktree: their number, and the first few names.
        leaks: changes outside the worktree, with their times; ``None`` without a worktree.
        fallback: reason why there was no worktree.

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
    submodules: tuple[dict[str, Any], ...] = ()
    workspace: str | None = None
    kept: str | None = None
    ignored_removed: dict[str, Any] | None = None
    leaks: tuple[str, ...] | None = None
    fallback: str | None = None

    @classmethod
    def of(
        cls,
        record: SessionRecord,
        *,
        ended_by: str,
        exit_status: int,
        commits: int | None,
        iterations: int,
        spent: Usage | None = None,
    ) -> SessionReport:
        """Return the report of a session that ends now.

        Arguments:
            ended_by: see above.
            exit_status: see above.
            commits: number of commits on its branch; ``None`` if there is no such branch.
            iterations: number of iterations that were started.
            spent: tokens and cost that the agent reported.

        """
        return cls(
            id=record.id,
            session=record.session,
            agent=record.agent,
            started=started(record.session).isoformat(),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            ended_by=ended_by,
            exit_status=exit_status,
            iterations=iterations,
            commits=commits,
            cost_usd=spent.cost if spent else None,
            tokens=spent.tokens if spent else None,
            branch=record.branch if commits is not None else None,
            base=record.base,
            workspace=record.workspace,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``report.json`` as a dictionary."""
        return _FORMAT.versioned(self._asdict())

    def to_json(self) -> bytes:
        """Return the content of ``report.json`` as bytes."""
        return _FORMAT.encode(self._asdict())


def read(path: Path) -> SessionReport | None:
    """Read a report; ``None`` if the file is not a report of this version."""
    try:
        return _FORMAT.read(path, _with_fields)
    except (OSError, ValueError):
        return None


def _with_fields(loaded: Mapping[str, Any]) -> SessionReport:
    return SessionReport(**{name: loaded[name] for name in SessionReport._fields if name in loaded})


def banner(record: SessionRecord, output: str) -> str:
    """Return the text for people at the start of a session.

    Arguments:
        output: path of its ``output.log``.

    """
    rows = [
        ("session", record.session),
        (
            "branch",
            f"{record.branch} from {(record.base or '')[:12]}" if record.branch else "none: not isolated",
        ),
        ("workspace", record.workspace or ""),
        ("agent", record.agent),
        ("output", output),
    ]
    return _table("ralph-wrap: session started", rows)


def summary(report: SessionReport, root: Path, log: Path, typed: Sequence[str] | None = None) -> str:
    """Return the text for people at the end of a session.

    Arguments:
        report: of the session.
        log: the session's ``output.log``.
        typed: see ``Settings.typed``.

    """
    rows = [("session", report.session)]
    if report.ended_by in _LIMITS:
        rows.append(("limit", _LIMITS[report.ended_by]))
    if report.branch:
        rows.append(("branch", f"{report.branch}, {_counted(report.commits or 0, 'commit')}"))
    if report.saved:
        left = f", {_counted(len(report.saved_paths), 'path')} not committed" if report.saved_paths else ""
        rows.append(("saved", f"{report.saved}{left}"))
    rows += [("saved", ref) for ref in report.snapshots]
    for submodule in report.submodules:
        seen = f"git --git-dir={shlex.quote(submodule['repository'])} log -p -m --first-parent"
        rows += [("submodule", f"{submodule['path']}: {seen} {ref}") for ref in submodule["refs"]]
    if report.workspace and report.base:
        rows.append(("worktree", f"kept: {report.workspace} ({report.kept})" if report.kept else "removed"))
    if report.ignored_removed and report.ignored_removed["files"]:
        names = ", ".join(report.ignored_removed["paths"])
        rows.append(("ignored", f"{_counted(report.ignored_removed['files'], 'file')} went with it: {names}"))
    if report.tokens is not None:
        cost = "" if report.cost_usd is None else f", ${report.cost_usd:.2f} reported"
        rows.append(("spent", f"{_counted(report.tokens, 'token')}{cost}"))
    rows += _outside(report.leaks or ())
    rows.append(("output", os.fspath(log)))
    rows += _next(report, root, typed)
    return _table(f"ralph-wrap: {ending(report)}", rows)


def how_it_ended(
    result: tuple[str, int] | None,
    signalled: int | None,
    failure: BaseException | None,
    *,
    agent_started: bool,
) -> tuple[str, int]:
    """Return the cause of a session's end and its exit status; a signal after the loop still counts.

    Arguments:
        result: cause and status of the loop's end, if the loop ended.
        signalled: the first signal, if one arrived.
        failure: the exception, if one was raised.
        agent_started: the agent was started at least once.

    """
    by_signal = 128 + signalled if signalled else None
    if result is not None:
        ended_by, status = result
        return ended_by, by_signal or status
    if by_signal:
        return "signal", by_signal
    if isinstance(failure, RalphError):
        return "error" if agent_started else "not-started", failure.exit_code
    if failure is not None:
        return "error", RalphError.exit_code
    return "not-started", 0


def _next(report: SessionReport, root: Path, typed: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield the commands to type next."""
    project = shlex.quote(os.fspath(root))
    branch = report.branch or ""
    saved = report.saved if report.saved_paths else None
    if branch.startswith("ralph/") and (report.commits or saved):
        name = report.id if branch == f"ralph/{report.id}" else branch
        shown = "diff --saved" if saved else "diff"
        verbs = " and ".join(verb for verb, does in (("merge", report.commits), ("apply", saved)) if does)
        yield "next", f"ralph-wrap {shown} -C {project} {shlex.quote(name)}, then ralph-wrap {verbs}"
    elif branch and report.commits:  # a branch of the user: the user merges it
        yield "next", f"git -C {project} log -p {(report.base or '')[:12]}..{shlex.quote(branch)}"
    elif saved:
        yield "next", f"git -C {project} diff {shlex.quote(saved)}^ {shlex.quote(saved)}"
    if report.branch and report.ended_by in _LIMITS and not report.kept:  # its branch is still checked out
        again = shlex.join(typed) if typed is not None else ""
        if typed is None or len(again) > _LONGEST or not again.isprintable():
            again = "…"
        yield "go on", f"ralph-wrap run -C {project} --branch {shlex.quote(report.branch)} {again}".rstrip()
    if report.kept and report.workspace:
        yield "remove", f"ralph-wrap rm -C {project} {report.id}"


def _outside(leaks: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in leaks[:_NAMED]:
        yield "outside", line
    for line in and_more(len(leaks), _NAMED, " changes: see report.json"):
        yield "", line


def ending(report: SessionReport) -> str:
    """Return one line about the end of a session."""
    return (
        f"session ended by {report.ended_by} after {_counted(report.iterations, 'iteration')}"
        f" (exit status {report.exit_status})"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join((title, *(f"  {label:<10} {one_line(words)}" for label, words in rows)))

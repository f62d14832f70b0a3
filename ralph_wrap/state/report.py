"""The start banner and the exit report of a session, for people and as ``report.json``."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

from ralph_wrap.agents.output import Usage
from ralph_wrap.errors import RalphError
from ralph_wrap.state import session_start
from ralph_wrap.state.ids import started
from ralph_wrap.state.project import Project
from ralph_wrap.state.record import FETCHED_REPORT, fetched_field
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.state.wording import ending_in_words
from ralph_wrap.system import files
from ralph_wrap.system.document import DocumentFormat, convert_fields
from ralph_wrap.system.log import one_line
from ralph_wrap.system.long_lists import CUT, cut_lists
from ralph_wrap.system.text import and_more, located, named, near, plain, shortened

_KIND = "end"  # of what is signed here
_FORMAT = DocumentFormat(version=1, largest=8 << 20, indent=1)  # every list in it is cut
_TITLE = 60  # columns: the line fits into a terminal of 80
_AGENT = 66  # columns: as above
_OLDER = "taken_up.older"  # the one list in a field of a field that can be long
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

NOT_LOGGED_IN = "not-logged-in"
"""``ended_by`` of a session whose agent has no login."""

BLOCKED = "blocked"
"""``ended_by`` of a session whose agent asks a person."""

_WAITING = {*_LIMITS, BLOCKED, NOT_LOGGED_IN}
"""The ends after which the session goes on as soon as a person wants it to."""

GATE_RESULTS = ("passed", "failed", "not run")
"""What ``verify`` of a report can say about the gate."""

_NO_WORKTREE = "the worktree was deleted or replaced"


class SavedSubmodule(TypedDict):
    """A submodule with saved work.

    Attributes:
        path: in the worktree.
        repository: the directory that contains the work now.
        refs: in that repository.

    """

    path: str
    repository: str
    refs: list[str]


class RemovedFiles(TypedDict):
    """Ignored files that went with the worktree: their number, and the first few names."""

    files: int
    paths: list[str]


class TakenUp(TypedDict):
    """What came back from a snapshot of a dead machine.

    Attributes:
        session: id of the session that made the snapshot.
        snapshot: its object id.
        older: paths that were not put back, because newer commits of the branch have them.

    """

    session: str
    snapshot: str
    older: list[str]


class SessionReport(NamedTuple):
    """The end of a session. ``None`` means that a field does not apply or was not checked.

    Attributes:
        id: agent id.
        session: session id.
        agent: the agent or command.
        started: UTC, ISO 8601.
        ended: UTC, ISO 8601.
        ended_by: promise, blocked, not-logged-in, max-iterations, max-failures, max-stalls, max-time,
            max-cost, max-tokens, usage-limit, stop, signal, leak, not-started, error, killed.
        exit_status: of ``ralph-wrap run``.
        error: the message, if an error ended the session; what the agent says, if it is not logged in.
        iterations: number of iterations that were started.
        commits: number of commits on *branch* since *base*, which the session has made.
        ahead: number of commits of *branch* that the main branch lacks, those of earlier sessions too.
        cost_usd: the cost that the agent reported, in US dollars.
        tokens: the tokens that the agent reported: input, output and cached ones.
        branch: the session's branch; ``None`` in the plain project root, or if the branch was deleted.
        base: the commit that the branch started from.
        saved: the branch with the uncommitted work.
        saved_paths: the uncommitted paths.
        saved_commits: number of commits on *saved* that were made on a detached HEAD.
        snapshots: refs with commits that were on no branch.
        submodules: submodules with saved work.
        workspace: the directory in which the agent worked.
        kept: reason why the worktree was kept.
        way_out: the command after which the worktree can go, if ``ralph-wrap rm`` would refuse.
        lost: what is lost, because somebody else had deleted the worktree; ``None`` if nothing is.
        ignored_removed: ignored files removed with the worktree.
        clones_removed: git repositories among them; nothing in these was on no remote.
        leaks: changes outside the worktree, with their times; *not known* and the reason if a look failed;
            ``None`` without a worktree.
        fallback: reason why there was no worktree.
        title: what people call the session; empty if it has no name and no prompt.
        resumes: id of the session that this one went on from; ``None`` if it began anew.
        tampering: what ``ralph-wrap audit`` finds since the session; ``None`` if no session looked.
        taken_up: what came back from a snapshot of a dead machine.
        question: what the agent asks a person, if it is blocked.
        verify: the gate: its last result (passed, failed, or not run for the work as it was at the end), its
            command, how often it ran, and iteration, exit status and seconds of its last run; ``None``
            without a gate.
        unread: what the session was told (``ralph-wrap tell``) and its agent has not read.
        teardown: the command that ran before the worktree was saved: its result (passed, failed, not run, or
            later, when the worktree goes), its text, exit status and seconds, and the reason if it has not
            passed; ``None`` without one.
        agents: what each agent has done, if there are others for a usage limit (``fallback``): name,
            iterations, tokens and cost of each that has worked; ``None`` with one agent.
        proof: a signature of the end, which a batch checks; ``None`` if there is no place for a key.
        cut: how many entries each list has that is cut here, after 1,000 entries; the whole list is in a file
            beside the report, ``saved_paths.jsonl`` for example, one JSON text a line.

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
    ahead: int | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    branch: str | None = None
    base: str | None = None
    saved: str | None = None
    saved_paths: tuple[str, ...] = ()
    saved_commits: int = 0
    snapshots: tuple[str, ...] = ()
    submodules: tuple[SavedSubmodule, ...] = ()
    workspace: str | None = None
    kept: str | None = None
    way_out: str | None = None
    lost: str | None = None
    ignored_removed: RemovedFiles | None = None
    clones_removed: tuple[str, ...] = ()
    leaks: tuple[str, ...] | None = None
    fallback: str | None = None
    title: str = ""
    resumes: str | None = None
    tampering: tuple[str, ...] | None = None
    taken_up: TakenUp | None = None
    question: str | None = None
    verify: dict[str, Any] | None = None
    unread: tuple[str, ...] = ()
    teardown: dict[str, Any] | None = None
    agents: tuple[dict[str, Any], ...] | None = None
    proof: str | None = None
    cut: Mapping[str, int] = MappingProxyType({})

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
        has_branch: bool = False,
    ) -> SessionReport:
        """Return the report of a session that ends now.

        Arguments:
            ended_by: see above.
            exit_status: see above.
            commits: number of commits on its branch; ``None`` if there is none, or git cannot count them.
            iterations: number of iterations that were started.
            spent: tokens and cost that the agent reported.
            has_branch: the branch exists, although its commits cannot be counted: one of them is damaged.

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
            branch=record.branch if commits is not None or has_branch else None,
            base=record.base,
            workspace=record.workspace,
            title=record.title,
            resumes=record.resumes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``report.json`` as a dictionary."""
        return _FORMAT.versioned(self._shortened()[0])

    def count(self, name: str) -> int:
        """Return how many entries a list has, also one that is cut."""
        return self.cut.get(name, len(getattr(self, name) or ()))

    def _shortened(self) -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
        """Return the fields with short lists, and the whole lists that were cut."""
        fields, whole = cut_lists(self._asdict() | {CUT: dict(self.cut)})
        fields[CUT] |= {name: len(values) for name, values in whole.items()}
        return fields, whole

    def proven(self, task: str, directory: Path, project: Project) -> SessionReport:
        """Return the report with a signature of its end: an agent can write the file.

        Arguments:
            task: the token in the record of the session.
            directory: of the session.

        """
        signed = session_start.signature(_KIND, self._end(task), directory, project)
        return self._replace(proof=signed or None)

    def is_proven(self, task: str, directory: Path, project: Project) -> bool:
        """Return whether the session has ended as the report says; arguments are those of :meth:`proven`."""
        return session_start.is_signed(_KIND, self._end(task), directory, project, self.proof)

    def _end(self, task: str) -> list[Any]:
        return [task, self.session, self.resumes, self.ended_by, self.exit_status, self.iterations]

    def to_json(self) -> bytes:
        """Return the content of ``report.json`` as bytes."""
        return _FORMAT.encode(self._shortened()[0])

    def write(self, path: Path) -> None:
        """Write the report, and beside it, first, each whole list that is too long for it.

        Raises:
            OSError: the report cannot be written; a list that cannot be written is only counted.

        """
        for name, values in self._shortened()[1].items():
            if name not in {*self._fields, _OLDER}:  # an agent may have chosen it
                continue
            with suppress(OSError):
                lines = b"".join(json.dumps(value).encode() + b"\n" for value in values)
                files.replace(path.with_name(f"{name}.jsonl"), lines)
        files.replace(path, self.to_json())


class UnreadableReport(NamedTuple):
    """A report that is there and cannot be read: nobody knows from it how its session ended.

    Attributes:
        path: of the file.
        reason: the error, for people.

    """

    path: Path
    reason: str

    @property
    def sentence(self) -> str:
        """The error in a sentence."""
        return f"its report {near(os.fspath(self.path))} cannot be read: {self.reason}"


def read(path: Path) -> SessionReport | UnreadableReport | None:
    """Read a report; ``None`` if there is none.

    The record of a session of another machine has its report.
    """
    try:
        return _FORMAT.read(path, _report)
    except FileNotFoundError:
        fields = fetched_field(path.parent, FETCHED_REPORT)
        try:
            return _report(fields) if isinstance(fields, dict) else None
        except ValueError as error:
            return UnreadableReport(path.with_name("record.json"), str(error))
    except OSError as error:
        return UnreadableReport(path, error.strerror or str(error))
    except ValueError as error:
        return UnreadableReport(path, str(error))


def _report(loaded: Mapping[str, Any]) -> SessionReport:
    return convert_fields(loaded, SessionReport)


def banner(record: SessionRecord, output: str) -> str:
    """Return the text for people at the start of a session.

    Arguments:
        output: path of its ``output.log``.

    """
    rows = [
        *_title(record.title),
        ("session", record.session),
        (
            "branch",
            f"{record.branch} from {(record.base or '')[:12]}" if record.branch else "none: not isolated",
        ),
        ("workspace", near(record.workspace) if record.workspace else ""),
        ("agent", shortened(one_line(record.agent), _AGENT)),
        ("output", near(output)),
    ]
    return _table("ralph-wrap: session started", rows)


def summary(report: SessionReport, log: Path, location: str = "") -> str:
    """Return the text for people at the end of a session.

    Arguments:
        report: of the session.
        log: the session's ``output.log``.
        location: see :func:`ralph_wrap.system.text.location`.

    """
    rows = [*_title(report.title), ("session", report.session)]
    if report.ended_by in _LIMITS:
        rows.append(("limit", _NO_WORKTREE if _has_lost_worktree(report) else _LIMITS[report.ended_by]))
    rows += _asked(report)
    rows += _of_agents(report)
    rows += _verified(report)
    rows += _unread(report)
    rows += _taken_up(report)
    if report.branch:
        rows.append(("branch", f"{report.branch}, {_commits(report)}"))
    if report.saved:
        rows.append(("saved", ", ".join([report.saved, *_saved_parts(report)])))
    rows += [("saved", ref) for ref in report.snapshots]
    for submodule in report.submodules:
        seen = f"git --git-dir={shlex.quote(submodule['repository'])} log -p -m --first-parent"
        rows += [("submodule", f"{submodule['path']}: {seen} {ref}") for ref in submodule["refs"]]
    if report.workspace and report.base:
        rows.append(("worktree", _worktree(report)))
    if report.ignored_removed and report.ignored_removed["files"]:
        names = ", ".join(report.ignored_removed["paths"])
        rows.append(("ignored", f"{_counted(report.ignored_removed['files'], 'file')} went with it: {names}"))
    if report.clones_removed:
        names = named(report.clones_removed, _NAMED)
        rows.append(("clones", f"{names} went with it, without work of their own"))
    if report.tokens is not None:
        cost = "" if report.cost_usd is None else f", ${report.cost_usd:.2f} reported"
        rows.append(("spent", f"{_counted(report.tokens, 'token')}{cost}"))
    rows += _named("outside", report.leaks or (), report.count("leaks"), " changes: see report.json")
    rows += _named(
        "tampering", report.tampering or (), report.count("tampering"), " findings: ralph-wrap audit"
    )
    rows.append(("output", near(os.fspath(log))))
    rows += ((label, located(command, location)) for label, command in _next(report))
    return _table(f"ralph-wrap: {ending(report)}", rows)


def drop_command(report: SessionReport) -> str:
    """Return the command that deletes the branch of a session without any work; empty if there is work.

    The command refuses if the branch holds work after all, for example a snapshot of an iteration. After a
    resume, the branch has the work of the earlier session.
    """
    branch = report.branch or ""
    if report.resumes or not branch.startswith("ralph/") or report.commits or report.kept:
        return ""
    if report.saved or report.snapshots or any(submodule["refs"] for submodule in report.submodules):
        return ""
    return f"ralph-wrap drop {_label(report)}"


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


def _commits(report: SessionReport) -> str:
    """Return what ``ps`` and ``review`` count, and the commits of this session if that is another number."""
    if report.commits is None:
        return "whose commits cannot be counted"
    commits = report.commits
    if report.ahead is None or report.ahead == commits:
        return _counted(commits, "commit")
    return f"{_counted(report.ahead, 'commit')} ahead, {commits} of this session"


def _has_lost_worktree(report: SessionReport) -> bool:
    """Return whether the loop ended because the agent deleted or replaced its worktree."""
    return report.ended_by == "leak" and bool(report.lost or report.way_out or not report.leaks)


def _saved_parts(report: SessionReport) -> Iterator[str]:
    """Yield what is on the branch of the saved work, in words."""
    if report.saved_commits:
        yield f"{_counted(report.saved_commits, 'commit')} of a detached HEAD"
    if count := report.count("saved_paths"):
        yield f"{_counted(count, 'path')} not committed"


def _next(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield the commands to type next, one a row."""
    if report.kept and report.workspace and report.way_out:  # until then, rm and resume refuse
        yield from _to_land(report)
        yield "remove", report.way_out
        return
    if gate_result(report.verify) == "failed":  # so nobody lands it by the first line
        yield from _to_go_on(report)
        yield from _to_land(report, ("look", "anyway", "anyway"))
    else:
        yield from _to_land(report)
        yield from _to_go_on(report)
    if report.ended_by not in _WAITING and (command := drop_command(report)):
        yield "drop", command


def _to_land(report: SessionReport, labels: Sequence[str] = ("next", "", "")) -> Iterator[tuple[str, str]]:
    """Yield the commands that show and land the work."""
    saved = report.saved if report.saved_paths or report.saved_commits else None
    if report.branch and (_has_commits(report) or saved):
        name = _label(report)
        wanted = {f"diff{' --saved' * bool(saved)}": True, "merge": _has_commits(report), "apply": saved}
        commands = [f"ralph-wrap {verb} {name}" for verb, does in wanted.items() if does]
        yield from zip(labels, commands, strict=False)
    elif saved:
        yield labels[0], f"git diff {shlex.quote(saved)}^ {shlex.quote(saved)}"


def _to_go_on(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield the command that goes on with the session, and before it the one that removes its worktree."""
    ends_early = report.ended_by in {*_WAITING, "signal", "stop"} or bool(report.unread)
    goes_on = report.branch is not None and ends_early
    kept = bool(report.kept and report.workspace)
    if kept:  # its branch is checked out there until then
        yield "go on" if goes_on else "remove", f"ralph-wrap rm {report.id}"
    if goes_on:
        answer = ' -m "…"' if report.ended_by == BLOCKED else ""
        yield "" if kept else "go on", f"ralph-wrap resume {report.id}{answer}"


def _worktree(report: SessionReport) -> str:
    if report.kept:
        return f"kept: {near(report.workspace or '')} ({report.kept})"
    return f"was deleted: lost is {report.lost}" if report.lost else "removed"


def _has_commits(report: SessionReport) -> bool:
    """Return whether the branch may have commits of its own; those of earlier sessions are not counted."""
    if report.ahead is not None:
        return report.ahead > 0
    return bool(report.commits or (report.branch and report.resumes))


def _title(title: str) -> Iterator[tuple[str, str]]:
    if title:
        yield "title", shortened(one_line(title), _TITLE)


def gate_result(verify: object) -> str | None:
    """Return the result of the gate in a report, which an agent may have written; ``None`` without one."""
    result = verify.get("result") if isinstance(verify, dict) else None
    return result if result in GATE_RESULTS else None


def _asked(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield what a blocked agent asks, line by line."""
    lines = [one_line(line) for line in str(report.question or "").splitlines() if line.strip()]
    yield from _named("question", lines, len(lines), " lines: see report.json")


def _of_agents(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield what an agent says that is not logged in, and what each of several agents has done."""
    if report.ended_by == NOT_LOGGED_IN and report.error:
        yield "agent said", report.error
    if report.agents:
        yield "agents", agents_in_words(report)


def agents_in_words(report: SessionReport) -> str:
    """Return what each of several agents has done, in words; empty if there was one."""
    shares = []
    for entry in report.agents or ():
        cost = entry.get("cost_usd")
        spent = f", ${cost:.2f}" if isinstance(cost, int | float) else ""
        shares.append(
            f"{entry.get('agent')} {_counted(int(entry.get('iterations') or 0), 'iteration')}{spent}"
        )
    return "; ".join(shares)


def _verified(report: SessionReport) -> Iterator[tuple[str, str]]:
    if report.verify and (result := gate_result(report.verify)):
        shown = shortened(one_line(" ".join(str(report.verify.get("command")).split())), _TITLE)
        yield "verify", f"{result}: {shown}"


def _unread(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield what the session was told and has not read; ``resume`` begins with it."""
    lines = [shortened(plain(str(text)), _TITLE) for text in report.unread]
    yield from _named("unread", lines, report.count("unread"), " messages: see report.json")


def _taken_up(report: SessionReport) -> Iterator[tuple[str, str]]:
    """Yield what came back from a snapshot, and the paths that did not: newer commits have them."""
    if work := report.taken_up:
        yield "taken up", f"snapshot {work['snapshot'][:12]} of session {work['session']}"
        if older := work["older"]:
            yield "older", f"not put back from it: {named(older, _NAMED)}"


def _label(report: SessionReport) -> str:
    """Return the shortest name of a session's branch that commands accept, quoted."""
    return shlex.quote(report.id if report.branch == f"ralph/{report.id}" else str(report.branch))


def _named(label: str, lines: Sequence[str], count: int, more: str) -> Iterator[tuple[str, str]]:
    for line in lines[:_NAMED]:
        yield label, line
    for line in and_more(count, _NAMED, more):
        yield "", line


def ending(report: SessionReport) -> str:
    """Return one line about the end of a session."""
    how = ending_in_words(report.ended_by)
    count = f" after {_counted(report.iterations, 'iteration')}" if report.iterations else ""
    return f"session ended: {how}{count} (exit status {report.exit_status})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join((title, *(f"  {label:<10} {one_line(words)}" for label, words in rows)))

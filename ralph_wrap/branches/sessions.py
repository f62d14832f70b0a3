"""The data that sessions recorded about branches, by branch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ralph_wrap.state import inventory, report
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import Project, registries
from ralph_wrap.state.registry import Registry, SessionRecord

_FIRST = (Verdict.LIVE, Verdict.FOREIGN, Verdict.UNKNOWN, Verdict.ORPHAN)  # the strictest comes first


class BranchSession(NamedTuple):
    """The recorded data of a branch.

    Attributes:
        record: of the newest session that names the branch; ``None`` if it cannot be read.
        verdict: of a session that is not finished; ``None`` if there is none.
        base: the commit that the branch started from.
        sessions: ids of the sessions that name the branch, the newest first.
        creators: ids of those that state that they created it.

    """

    record: Mapping[str, Any] | None
    verdict: str | None
    base: str | None
    sessions: tuple[str, ...] = ()
    creators: tuple[str, ...] = ()


class RecordedSession(NamedTuple):
    """One session of a project.

    Attributes:
        id: agent id.
        record: ``None`` if it cannot be read.
        registry: of a finished session.
        verdict: of a session that is not finished.

    """

    id: str
    record: SessionRecord | None
    registry: Registry | None
    verdict: Verdict | None

    @property
    def own(self) -> str:
        """The branch that it has, unless the user named another one."""
        return f"ralph/{self.id}"

    @property
    def branch(self) -> str | None:
        """The branch that it names; one that has not ended and cannot be read may have its own."""
        if self.record is not None and self.record.branch:
            return self.record.branch
        return self.own if self.verdict else None


def recorded(project: Project) -> list[RecordedSession]:
    """Return the sessions of a project that name a branch, or may have one."""
    found = [
        RecordedSession(record.id, record, registry, None)
        for registry in registries(project)
        for record in registry.finished()
        if isinstance(record, SessionRecord) and record.branch
    ]
    found += [
        RecordedSession(session.id, session.record, None, session.verdict)
        for session in inventory.unfinished(project)
    ]
    return found


def known(
    recorded_sessions: Sequence[RecordedSession], names: Collection[str], gone: Collection[str] = ()
) -> dict[str, BranchSession]:
    """Return the data that sessions recorded, by the short name of the branch.

    A session may continue on the branch of another session. The name of its saved work has its own id all the
    same. The data is then found under a branch that never existed.

    Arguments:
        recorded_sessions: the sessions.
        names: names of the branches; other branches are left out.
        gone: names of branches that do not exist, but have saved work.

    """
    wanted = {*names, *gone}
    by_branch: dict[str, list[RecordedSession]] = {}
    for session in recorded_sessions:
        for name in {session.branch, session.own} if session.own in gone else {session.branch}:
            is_other = name != session.branch
            if name in wanted and not (is_other and session.registry and not _has_saved(session)):
                by_branch.setdefault(str(name), []).append(session)
    return {branch: _of_branch(branch, sessions) for branch, sessions in by_branch.items()}


def _of_branch(branch: str, sessions: Sequence[RecordedSession]) -> BranchSession:
    readable = [(session, session.record) for session in sessions if session.record and session.record.branch]
    readable.sort(key=lambda pair: pair[1].session, reverse=True)
    verdicts = [session.verdict for session in sessions if session.verdict]
    records = [record for _, record in readable]
    return BranchSession(
        record=_merged(*readable[0]) if readable else None,
        verdict=min(verdicts, key=_FIRST.index).value if verdicts else None,
        base=_base(branch, records),
        sessions=tuple(record.session for record in records),
        creators=tuple(record.session for record in records if record.branch_created),
    )


def _has_saved(session: RecordedSession) -> bool:
    """Return whether the report of a finished session names its own branch for its saved work."""
    outcome = _report(session)
    if isinstance(outcome, report.UnreadableReport):  # perhaps: then the branch shows who has worked there
        return True
    return outcome is not None and outcome.saved == f"{session.own}-wip"


def _report(session: RecordedSession) -> report.SessionReport | report.UnreadableReport | None:
    if session.registry is None or session.record is None:
        return None
    outcome = report.read(session.registry.sessions / session.record.session / "report.json")
    is_other = isinstance(outcome, report.SessionReport) and outcome.session != session.record.session
    return None if is_other else outcome


def _merged(session: RecordedSession, record: SessionRecord) -> dict[str, Any]:
    """Return a record merged with its report; the report wins, but for the branch."""
    merged = record._asdict()
    extra = merged.pop("extra")
    merged = {**extra, **merged}
    if isinstance(outcome := _report(session), report.SessionReport):
        merged |= outcome._asdict()
    return merged | {"branch": record.branch}


def _base(branch: str, found: Sequence[SessionRecord]) -> str | None:
    """Return the commit that a branch started from, ``None`` if it is unknown.

    Agent ids are used again, and a session may continue on the branch of another session. So the newest
    session that created the branch, or whose id is in its name, decides. If it goes on from others, the first
    of them decides. Without one, a single session does.

    Arguments:
        found: records, the newest first.

    """
    own = [record for record in found if branch == f"ralph/{record.id}" or record.branch_created]
    if not own:
        return found[0].base if len(found) == 1 else None
    first, by_session = own[0], {record.session: record for record in found}
    while first.resumes is not None and first.resumes < first.session and first.resumes in by_session:
        first = by_session[first.resumes]
    return first.base

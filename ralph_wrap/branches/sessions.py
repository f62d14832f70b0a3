"""The data that sessions recorded about branches, by branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ralph_wrap.state import inventory, report
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import registries
from ralph_wrap.state.registry import SessionRecord
from ralph_wrap.system.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ralph_wrap.state.project import Project
    from ralph_wrap.state.registry import Registry

_FIRST = (Verdict.LIVE, Verdict.FOREIGN, Verdict.UNKNOWN, Verdict.ORPHAN)  # the strictest comes first


class BranchSession(NamedTuple):
    """The recorded data of a branch.

    Attributes:
        record: of the newest session that names the branch; ``None`` if it cannot be read.
        verdict: of a session that is not finished; ``None`` if there is none.
        base: the commit that the branch started from.

    """

    record: Mapping[str, Any] | None
    verdict: str | None
    base: str | None


def known(project: Project, names: Collection[str], gone: Collection[str] = ()) -> dict[str, BranchSession]:
    """Return the data that sessions recorded, by the short name of the branch.

    A session may continue on the branch of another session. The name of its saved work has its own id all the
    same. The data is then found under a branch that never existed.

    Arguments:
        names: names of the branches; other branches are left out.
        gone: names of branches that do not exist, but have saved work.

    """
    wanted = {*names, *gone}
    verdicts: dict[str, list[Verdict]] = {}
    records: dict[str, list[tuple[SessionRecord, Registry | None]]] = {}
    for registry in registries(project):
        for record in registry.finished():
            if isinstance(record, SessionRecord) and record.branch:
                own = f"ralph/{record.id}"
                if record.branch in wanted:
                    records.setdefault(record.branch, []).append((record, registry))
                if record.branch != own and own in gone and _has_saved(record, registry, f"{own}-wip"):
                    records.setdefault(own, []).append((record, registry))
    for session in inventory.unfinished(project):
        own = f"ralph/{session.id}"
        branch = own
        if session.record is not None and session.record.branch:
            branch = session.record.branch
        for name in {branch, own} if own in gone else {branch}:
            if session.record is not None and session.record.branch:
                records.setdefault(name, []).append((session.record, None))
            verdicts.setdefault(name, []).append(session.verdict)
    return {
        branch: BranchSession(
            record=_merged(records.get(branch, [])),
            verdict=min(verdicts[branch], key=_FIRST.index).value if branch in verdicts else None,
            base=_base(branch, [record for record, _ in records.get(branch, [])]),
        )
        for branch in {*records, *verdicts} & wanted
    }


def _has_saved(record: SessionRecord, registry: Registry, name: str) -> bool:
    """Return whether the report of a session names this branch for its saved work."""
    outcome = report.read(registry.sessions / record.session / "report.json")
    return outcome is not None and outcome.session == record.session and outcome.saved == name


def _merged(found: list[tuple[SessionRecord, Registry | None]]) -> dict[str, Any] | None:
    """Return the newest record merged with its report; the report wins, but for the branch."""
    if not found:
        return None
    record, registry = max(found, key=lambda pair: pair[0].session)
    merged = record._asdict()
    extra = merged.pop("extra")
    merged = {**extra, **merged}
    outcome = report.read(registry.sessions / record.session / "report.json") if registry else None
    if outcome is not None and outcome.session == record.session:
        merged |= outcome._asdict()
    return merged | {"branch": record.branch}


def _base(branch: str, found: list[SessionRecord]) -> str | None:
    """Return the commit that a branch started from, ``None`` if it is unknown.

    Agent ids are used again, and a session may continue on the branch of another session. So the newest
    session with the id in the branch's name decides. For a branch without an id, there must be one session.
    """
    own = [record for record in found if branch == f"ralph/{record.id}"]
    if own:
        return max(own, key=lambda record: record.session).base
    return found[0].base if len(found) == 1 else None

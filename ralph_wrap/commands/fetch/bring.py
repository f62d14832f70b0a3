"""Move our refs, and write our records, for sessions that were fetched."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ralph_wrap.commands.fetch.remote import RemoteSessions
from ralph_wrap.commands.fetch.watch import BEATS, SILENT, WATCHED, watched
from ralph_wrap.errors import GitError
from ralph_wrap.git import count_commits, is_branch_name, list_refs, list_worktrees
from ralph_wrap.git.merge import is_ancestor
from ralph_wrap.git.remote import list_remotes
from ralph_wrap.git.transaction import RefChange, change_refs
from ralph_wrap.state import inventory, remote_claim
from ralph_wrap.state.project import Project, own_registry, prepare_root
from ralph_wrap.state.record import FETCHED_FROM, FETCHED_REPORT, FETCHED_START, SessionRecord, read_record
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.report import SessionReport
from ralph_wrap.state.wording import ELSEWHERE
from ralph_wrap.system import files

HEADS = "refs/heads/"
_SNAPSHOTS = "refs/ralph/snapshots/"


class FetchedSession(NamedTuple):
    """What a fetch did with one session of a remote.

    Attributes:
        id: agent id.
        session: session id; empty if the claim cannot be read.
        title: what people call the session.
        node: the machine that it runs or ran on.
        state: running, stopped, done, or dead; empty if the claim cannot be read.
        branch: what it works on, or has worked on.
        action: new, moved, unchanged, or left.
        note: why it was left, or why the remote lacks some of its work.

    """

    id: str
    session: str
    title: str
    node: str
    state: str
    branch: str
    action: str
    note: str = ""


class SessionImport:
    """Brings sessions that were fetched into a project.

    Arguments:
        remote: the sessions.
        again: ids, branches or titles of sessions to bring even if they were dropped here.

    """

    def __init__(self, project: Project, remote: RemoteSessions, again: Collection[str] = ()) -> None:
        self._project = project
        self._again = again
        self._remote = remote
        self._git = remote.git
        self._refs = _Refs(
            remote.refs(),
            list_refs(self._git, HEADS),
            remote.before,
            {HEADS + info.branch for info in list_worktrees(self._git) if info.branch},
        )
        self._remotes = list_remotes(self._git)
        self._remote_snapshots = _snapshots_by_id(self._refs.remote)
        self._local_snapshots = _snapshots_by_id(list_refs(self._git, _SNAPSHOTS))
        prepare_root(project)
        self._home = own_registry(project)
        self._home.prepare()
        self._ids: set[str] | None = None

    def bring(self, ids: Sequence[str]) -> list[FetchedSession]:
        """Bring sessions, and return what became of each.

        Arguments:
            ids: their agent ids.

        """
        unfinished = {session.id for session in inventory.unfinished(self._project)}
        claims = self._remote.claims(ids)
        plans = []
        for agent_id in ids:
            if (claim := claims.get(agent_id)) is None:
                note = "its claim cannot be read"
                plans.append(_Plan(FetchedSession(agent_id, "", "", "", "", "", "left", note)))
                continue
            plan = _Plan(_entry(claim), claim)
            try:
                left = "a session here has this id" if agent_id in unfinished else self._choose(plan, claim)
            except (GitError, OSError) as error:
                left = str(error)
            plans.append(_Plan(plan.entry._replace(action="left", note=left)) if left else plan)
        self._change(plans)
        return [self._finish(plan) for plan in plans]

    def _choose(self, plan: _Plan, claim: RemoteClaim) -> str:
        """Add the changes of refs that a session needs here; return why it is left, empty if it is not."""
        if not claim.is_on_own_branch and not is_branch_name(self._git, claim.branch):
            return "its branch has a name that git refuses"
        if (name := self._hidden_by(claim.branch)) is not None:
            return f"its branch {claim.branch} would hide branches of the remote {name}"
        wip = f"{HEADS}ralph/{claim.id}-wip"
        changes: list[RefChange] = []
        again = not {claim.id, claim.session, claim.branch, claim.title}.isdisjoint(self._again)
        for ref in dict.fromkeys((HEADS + claim.branch, wip)):
            theirs, ours = self._refs.remote.get(ref), self._refs.local.get(ref)
            is_known = ours is None and self._refs.before.get(ref) == theirs
            if theirs == ours or (is_known and not again and claim.id in self._recorded()):
                continue  # or it was dropped here after the fetch before
            if theirs is None and (ref != wip or ours != self._refs.before.get(ref)):
                continue  # it never was there
            if problem := self._obstacle(ref, ours, theirs):
                return problem
            changes.append(RefChange(ref, ours, theirs))
        replaced = [change.before for change in changes if change.before and self._replaces(change)]
        plan.changes += [*self._snapshots(claim.id, replaced), *changes]
        return ""

    def _recorded(self) -> Collection[str]:
        """Return the ids of sessions with a record here; without one, the fetch before was killed."""
        if self._ids is None:
            paths = self._home.finished_paths()
            self._ids = {path.parent.name.rpartition("-")[2] for path in paths}
        return self._ids

    def _hidden_by(self, branch: str) -> str | None:
        """Return the remote whose branches a new branch here would hide, ``None`` if it hides none.

        Each user of the remote can write a claim. With a branch ``origin/main`` here, ``git reset --hard
        origin/main`` takes that one (gitrevisions(7)).
        """
        if f"{HEADS}{branch}" in self._refs.local:
            return None
        return next((name for name in self._remotes if f"{branch}/".startswith(f"{name}/")), None)

    def _change(self, plans: Sequence[_Plan]) -> None:
        """Change the refs of all sessions in one transaction; if that fails, those of each in its own."""
        reason, now = f"ralph-wrap: fetched from {self._remote.name}", int(time.time())
        if not (changes := [change for plan in plans for change in plan.changes]):
            return
        # A new ref has no commit before it, so it needs no reflog: a thousand sessions need a thousand files.
        logs_new = any(change.before for change in changes)
        try:
            change_refs(self._git, changes, reason, now, logs_new=logs_new)
        except GitError:
            for plan in plans:
                try:
                    change_refs(self._git, plan.changes, reason, now)
                except GitError as error:
                    plan.problem = str(error)

    def _finish(self, plan: _Plan) -> FetchedSession:
        """Write the record of a session whose refs are here, and return what became of it."""
        entry, claim = plan.entry, plan.claim
        if claim is None or plan.problem:
            return entry._replace(action="left", note=plan.problem or entry.note)
        wip = f"{HEADS}ralph/{claim.id}-wip"
        try:
            is_silent = self._record(claim, has_saved=wip in self._refs.remote)
        except (GitError, OSError) as error:
            return entry._replace(action="left", note=str(error))
        if is_silent:
            entry = entry._replace(state=SILENT)
        moved = [change for change in plan.changes if change.ref.startswith(HEADS)]
        is_new = any(change.before is None for change in moved)
        return entry._replace(action="new" if is_new else "moved" if moved else "unchanged")

    def _replaces(self, change: RefChange) -> bool:
        """Return whether a ref will not contain any more what it names now."""
        return change.after is None or not is_ancestor(self._git, str(change.before), change.after)

    def _obstacle(self, ref: str, ours: str | None, theirs: str | None) -> str:
        """Return why a ref of ours cannot move; empty if it can."""
        name = ref.removeprefix(HEADS)
        if ref in self._refs.held:
            return f"branch {name} is checked out here"
        if ours is None or ours == self._refs.before.get(ref):
            return ""
        if name.endswith("-wip"):
            return f"{name} has other saved work here"
        return (
            ""
            if count_commits(self._git, str(theirs), ours) == 0
            else f"branch {name} has other commits here"
        )

    def _snapshots(self, agent_id: str, replaced: Sequence[str]) -> list[RefChange]:
        """Return new snapshots, for those of the remote and for each commit that is replaced here."""
        prefix = f"{_SNAPSHOTS}{agent_id}/"
        theirs = self._remote_snapshots.get(agent_id, {})
        have = self._local_snapshots.get(agent_id, {})
        wanted = sorted({*replaced, *theirs.values()} - {*have.values()})
        numbers = [ref.removeprefix(f"{prefix}commit-") for ref in have]
        first = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
        return [RefChange(f"{prefix}commit-{n}", None, oid) for n, oid in enumerate(wanted, first)]

    def _record(self, claim: RemoteClaim, *, has_saved: bool) -> bool:
        """Write the record of a session, as of one that has ended here; an own one stays.

        Returns:
            Whether a session that says that it runs is dead.

        Raises:
            OSError: it cannot be written.

        """
        directory = self._home.sessions / claim.session
        earlier = read_record(directory / "record.json") if directory.exists() else None
        if earlier is not None and not (isinstance(earlier, SessionRecord) and FETCHED_FROM in earlier.extra):
            return isinstance(earlier, SessionRecord) and claim.state == remote_claim.RUNNING
        oid = self._refs.remote[remote_claim.ref_of(claim.id)]
        watch = watched(earlier, oid)
        is_silent = claim.state == remote_claim.RUNNING and watch.has_passed(BEATS * claim.beat)
        ended_by = "killed" if is_silent else ELSEWHERE
        marks = {FETCHED_FROM: self._remote.name, WATCHED: [*watch]}
        if earlier is not None and marks.items() <= earlier.extra.items() and not is_silent:
            return False
        report = _report_of(claim, ended_by, has_saved=has_saved)
        record = _record_of(claim, marks | {FETCHED_REPORT: report.to_dict()})
        directory.mkdir(exist_ok=True)
        # The next fetch writes it again, so the disk need not have it at once.
        files.replace(directory / "record.json", record.to_json(), sync=False)
        return is_silent


class _Plan:
    """The changes that one session needs here.

    Attributes:
        entry: what becomes of it.
        claim: ``None`` if it is left.
        changes: of refs here.
        problem: why they failed.

    """

    def __init__(self, entry: FetchedSession, claim: RemoteClaim | None = None) -> None:
        self.entry = entry
        self.claim = claim
        self.changes: list[RefChange] = []
        self.problem = ""


class _Refs(NamedTuple):
    """The refs that a decision needs: of the remote now and before, ours, and those in worktrees."""

    remote: Mapping[str, str]
    local: Mapping[str, str]
    before: Mapping[str, str]
    held: set[str]


def _snapshots_by_id(refs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the snapshots among some refs, by agent id."""
    found: dict[str, dict[str, str]] = {}
    for ref, oid in refs.items():
        if ref.startswith(_SNAPSHOTS):
            found.setdefault(ref.removeprefix(_SNAPSHOTS).partition("/")[0], {})[ref] = oid
    return found


def _entry(claim: RemoteClaim) -> FetchedSession:
    return FetchedSession(
        *(claim.id, claim.session, claim.title, claim.node, claim.state, claim.branch),
        action="unchanged",
        note=f"incomplete: {claim.incomplete}" if claim.incomplete else "",
    )


def _report_of(claim: RemoteClaim, running: str, *, has_saved: bool) -> SessionReport:
    """Return the report of a session of another machine.

    Arguments:
        running: how it ended, if its claim says that it runs.

    """
    report = SessionReport.of(
        _record_of(claim, {}),
        ended_by=running if claim.state == remote_claim.RUNNING else claim.ended_by,
        exit_status=0,
        commits=None,
        iterations=claim.iteration,
    )
    saved = f"ralph/{claim.id}-wip" if has_saved else None
    return report._replace(branch=claim.branch, cost_usd=claim.cost_usd, saved=saved)


def _record_of(claim: RemoteClaim, marks: Mapping[str, Any]) -> SessionRecord:
    """Return the record of a session of another machine, with fields that only a fetch knows."""
    return SessionRecord(
        id=claim.id,
        session=claim.session,
        pid=0,
        start_time=0.0,
        boot_id="",
        pid_namespace="",
        host=claim.node,
        branch=claim.branch,
        base=claim.base,
        agent=claim.agent,
        iteration=claim.iteration,
        state="finished",
        worktree=claim.worktree if claim.worktree != claim.session else None,
        branch_created=claim.branch == f"ralph/{claim.id}",
        title=claim.title,
        extra={**marks, FETCHED_START: claim.start and claim.start.to_dict()},
    )

"""Move our refs, and write our records, for sessions that were fetched."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ralph_wrap.errors import GitError
from ralph_wrap.git import count_commits, is_branch_name, list_refs, list_worktrees
from ralph_wrap.git.merge import is_ancestor
from ralph_wrap.git.transaction import RefChange, change_refs
from ralph_wrap.state import inventory, remote_claim, session_start
from ralph_wrap.state.ids import started
from ralph_wrap.state.project import registries
from ralph_wrap.state.record import FETCHED_FROM, SessionRecord, read_record
from ralph_wrap.state.report import SessionReport
from ralph_wrap.state.wording import ELSEWHERE
from ralph_wrap.system import files
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.worktree.save.commits import make_snapshots

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ralph_wrap.commands.fetch.remote import RemoteSessions
    from ralph_wrap.state.project import Project
    from ralph_wrap.state.remote_claim import RemoteClaim

HEADS = "refs/heads/"


class FetchedSession(NamedTuple):
    """What a fetch did with one session of a remote.

    Attributes:
        id: agent id.
        session: session id; empty if the claim cannot be read.
        title: what people call the session.
        node: the machine that it runs or ran on.
        state: running, stopped or done; empty if the claim cannot be read.
        branch: its branch.
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


class Bringing:
    """Brings sessions that were fetched into a project.

    Arguments:
        project: the project.
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
        self._home = next(registries(project))
        self._home.prepare()

    def bring(self, ids: Sequence[str]) -> list[FetchedSession]:
        """Bring sessions, and return what became of each.

        Arguments:
            ids: their agent ids.

        """
        unfinished = {session.id for session in inventory.unfinished(self._project)}
        claims = self._remote.claims(ids)
        brought = []
        for agent_id in ids:
            claim = claims.get(agent_id)
            if claim is None:
                note = "its claim cannot be read"
                brought.append(FetchedSession(agent_id, "", "", "", "", "", "left", note))
                continue
            entry = FetchedSession(
                *(agent_id, claim.session, claim.title, claim.node, claim.state, claim.branch),
                action="unchanged",
                note=f"incomplete: {claim.incomplete}" if claim.incomplete else "",
            )
            if agent_id in unfinished:
                brought.append(entry._replace(action="left", note="a session here has this id"))
                continue
            try:
                entry = self._bring(entry, claim)
            except (GitError, OSError) as error:
                entry = entry._replace(action="left", note=str(error))
            brought.append(entry)
        return brought

    def _bring(self, entry: FetchedSession, claim: RemoteClaim) -> FetchedSession:
        if not claim.is_on_own_branch and not is_branch_name(self._git, claim.branch):
            return entry._replace(action="left", note="its branch has a name that git refuses")
        wip = f"{HEADS}ralph/{claim.id}-wip"
        changes: list[RefChange] = []
        again = not {claim.id, claim.session, claim.branch, claim.title}.isdisjoint(self._again)
        for ref in dict.fromkeys((HEADS + claim.branch, wip)):
            theirs, ours = self._refs.remote.get(ref), self._refs.local.get(ref)
            if theirs == ours or (ours is None and self._refs.before.get(ref) == theirs and not again):
                continue  # or it was dropped here after the fetch before
            if theirs is None and (ref != wip or ours != self._refs.before.get(ref)):
                continue  # it never was there
            if problem := self._obstacle(ref, ours, theirs):
                return entry._replace(action="left", note=problem)
            changes.append(RefChange(ref, ours, theirs))
        self._keep(
            claim.id, [change.before for change in changes if change.before and self._replaces(change)]
        )
        if changes:
            change_refs(self._git, changes, f"ralph-wrap: fetched from {self._remote.name}", int(time.time()))
        self._record(claim, has_saved=wip in self._refs.remote)
        is_new = any(change.before is None for change in changes)
        return entry._replace(action="new" if is_new else "moved" if changes else "unchanged")

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

    def _keep(self, agent_id: str, replaced: Sequence[str]) -> None:
        """Give a snapshot to the snapshots of the remote, and to each commit that is replaced here."""
        prefix = f"refs/ralph/snapshots/{agent_id}/"
        theirs = {oid for ref, oid in self._refs.remote.items() if ref.startswith(prefix)}
        if wanted := {*replaced, *theirs}:
            have = {*list_refs(self._git, prefix).values()}
            make_snapshots(self._git, agent_id, sorted(wanted - have))

    def _record(self, claim: RemoteClaim, *, has_saved: bool) -> None:
        """Write the record of a session, as of one that has ended here; an own one stays.

        Raises:
            OSError: it cannot be written.

        """
        directory = self._home.sessions / claim.session
        earlier = read_record(directory / "record.json") if directory.exists() else None
        if earlier is not None and not (isinstance(earlier, SessionRecord) and FETCHED_FROM in earlier.extra):
            return
        directory.mkdir(exist_ok=True)
        if claim.start is not None:
            session_start.write_foreign(claim.start, directory)
        report = SessionReport(
            id=claim.id,
            session=claim.session,
            agent=claim.agent,
            started=started(claim.session).isoformat(),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            ended_by=claim.ended_by if claim.state != remote_claim.RUNNING else ELSEWHERE,
            exit_status=0,
            iterations=claim.iteration,
            cost_usd=claim.cost_usd,
            branch=claim.branch,
            base=claim.base,
            saved=f"ralph/{claim.id}-wip" if has_saved else None,
            title=claim.title,
        )
        files.replace(directory / "report.json", report.to_json())
        files.replace(directory / "record.json", _record_of(claim, self._remote.name).to_json())


class _Refs(NamedTuple):
    """The refs that a decision needs: of the remote now and before, ours, and those in worktrees."""

    remote: Mapping[str, str]
    local: Mapping[str, str]
    before: Mapping[str, str]
    held: set[str]


def _record_of(claim: RemoteClaim, remote: str) -> SessionRecord:
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
        extra={FETCHED_FROM: remote},
    )

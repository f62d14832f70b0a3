"""Make the last mirrored work of a dead session the saved work of the session that goes on from it.

The claim names the ref with the newest uncommitted work. Every push changes both together, so no clock and
no name decides. The ref is

- ``ralph/<id>-wip``: the session ended and saved its work. Fetch has brought it.
- a snapshot: the machine died. It becomes ``ralph/<id>-wip`` here, and older saved work becomes a snapshot.
- none: all was committed. Saved work that the session had put back becomes a snapshot.

If the session ran in this project, the sweep has finished it here, and knows more than the remote.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from ralph_wrap.git import Git, create_ref, delete_ref, list_refs, move_ref
from ralph_wrap.session.context import SessionContext
from ralph_wrap.state.record import FETCHED_FROM, SessionRecord, read_record
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.report import TakenUp
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.text import named
from ralph_wrap.worktree.save.commits import make_snapshots
from ralph_wrap.worktree.save.from_snapshot import work_of_snapshot
from ralph_wrap.worktree.save.index import scratch_in
from ralph_wrap.worktree.save.trees import session_of

log = get_logger()

_NAMED = 5  # older files that a message names; it counts the others


class TakeUp:
    """Takes up the work of the session that had the claim before.

    Arguments:
        context: of the session that goes on.
        git: at the project root.
        earlier: the claim before.
        remote_refs: refs of the remote, as that claim was fetched with them.
        directory: of the session that goes on, for temporary files.

    """

    def __init__(
        self,
        context: SessionContext,
        git: Git,
        earlier: RemoteClaim,
        remote_refs: Mapping[str, str],
        directory: Path,
    ) -> None:
        self._context = context
        self._git = git
        self._earlier = earlier
        self._remote_refs = remote_refs
        self._directory = directory
        self._wip = f"refs/heads/ralph/{earlier.id}-wip"
        self._branch = f"refs/heads/{context.branch}"

    def take_up(self) -> TakenUp | None:
        """Make the newest work of the earlier session its saved work here.

        Returns:
            What came back from a snapshot; ``None`` if nothing did.

        Raises:
            GitError: git failed; no ref is gone.
            OSError: a temporary file cannot be written.

        """
        self._keep_snapshots()
        work, local = self._earlier.work, list_refs(self._git, self._wip, self._branch)
        saved = local.get(self._wip)
        if work == self._wip or self._ended_here(self._earlier.session):
            return None
        if saved is not None and session_of(self._git, saved) == self._earlier.session:
            return None  # a user has pushed it by hand: it is from the end of the session
        if work:
            return self._take_snapshot(work, saved, local.get(self._branch))
        if saved is not None and saved == self._remote_refs.get(self._wip):
            make_snapshots(self._git, self._earlier.id, [saved])
            delete_ref(self._git, self._wip, saved)
        return None

    def _keep_snapshots(self) -> None:
        """Give each snapshot of the remote a ref here: our next push may replace its name there."""
        prefix = f"refs/ralph/snapshots/{self._earlier.id}/"
        kept = {*list_refs(self._git, prefix).values()}
        found = {oid for ref, oid in self._remote_refs.items() if ref.startswith(prefix)}
        make_snapshots(self._git, self._earlier.id, sorted(found - kept))

    def _take_snapshot(self, work: str, saved: str | None, tip: str | None) -> TakenUp | None:
        context, agent_id = self._context, self._earlier.id
        snapshot = self._remote_refs.get(work)
        if snapshot is None:
            log.warning(
                "snapshot.missing", f"{work} is not on {context.settings.remote}: its work is not put back"
            )
            return None
        if (session := session_of(self._git, snapshot)) != self._earlier.session and self._ended_here(
            session
        ):
            return None
        with scratch_in(self._directory) as directory:
            scratch = self._git._replace(index_file=directory / "index")
            made = work_of_snapshot(scratch, snapshot, tip, session or self._earlier.session)
        reason = f"ralph-wrap: last snapshot of {session}"
        if saved is not None:
            make_snapshots(self._git, agent_id, [saved])
        if made.commit is None:
            if saved is not None:
                delete_ref(self._git, self._wip, saved)
        elif saved is None:
            create_ref(self._git, self._wip, made.commit, reason)
        else:
            move_ref(self._git, self._wip, saved, made.commit, reason, no_deref=True)
        log.event(
            "work.taken_up", f"session {session} left uncommitted work in a snapshot", snapshot=snapshot
        )
        if made.older:
            log.warning(
                "snapshot.older",
                f"{context.branch} has newer commits than the last snapshot: not put back from it:"
                f" {named(made.older, _NAMED)}",
                f"git diff {shlex.quote(context.branch)} {snapshot[:12]}",
            )
        return TakenUp(session=session, snapshot=snapshot, older=list(made.older))

    def _ended_here(self, session: str) -> bool:
        """Return whether a session ran in this project."""
        home = self._context.home
        if home is None or not session.endswith(f"-{self._earlier.id}") or "/" in session:
            return False
        record = read_record(home.sessions / session / "record.json")
        return isinstance(record, SessionRecord) and FETCHED_FROM not in record.extra

"""Claim a session on its remote before the agent starts, so that no two machines run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ralph_wrap.errors import ConflictError, UsageError
from ralph_wrap.git import Git, count_commits, list_refs, set_refs, store_blob
from ralph_wrap.git.remote import push_error, start_atomic_push, start_fetch, start_remote_listing
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.session.context import SessionContext
from ralph_wrap.session.ending import SessionState
from ralph_wrap.session.remote.last_push import MirrorEnd
from ralph_wrap.session.remote.mirror import Mirror
from ralph_wrap.session.remote.portable_start import portable
from ralph_wrap.session.remote.submodules import SubmoduleWatch
from ralph_wrap.session.remote.take_up import TakeUp
from ralph_wrap.session.remote.view import HEADS, RemoteView
from ralph_wrap.state import remote_claim, stop_request
from ralph_wrap.state.claim import SessionClaim
from ralph_wrap.state.ids import agent_ids_in
from ralph_wrap.state.record import is_fetched
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.remote_refs import everything, fetched, refspecs, tracking
from ralph_wrap.state.session_start import SessionStart
from ralph_wrap.state.stop_request import StopMode
from ralph_wrap.system.log import Commands, current, get_logger
from ralph_wrap.system.process import RunningCommand
from ralph_wrap.system.text import command

log = get_logger()

_PATIENCE = 15.0  # seconds for each of two network operations; then the session starts all the same
_ATTEMPTS = 10
_SINCE = (2, 29)  # git fetch --no-write-fetch-head


__all__ = ["begin", "taken_at"]


def begin(
    context: SessionContext,
    session_claim: SessionClaim,
    start: SessionStart | None,
    state: SessionState,
    at_end: Callable[[str, Callable[[], None]], None],
) -> Mirror | None:
    """Claim the session on the remote of its settings; ``None`` if they name none.

    If the remote does not answer, the session starts, and claims later. What another machine had not
    committed becomes the saved work of the session here.

    Arguments:
        context: of the session.
        session_claim: the session's claim in this project.
        start: how the session was started.
        state: what has happened in the session.
        at_end: adds a step to the end of the session.

    Raises:
        ConflictError: another machine has the session.
        GitError: the work of the other machine cannot be made saved work; it is still on the remote.
        OSError: the same.
        UsageError: git is too old.

    """
    settings, repository = context.settings, context.project.repository
    remote = settings.remote
    if remote is None or repository is None or context.base is None:
        return None
    if repository.git_version < _SINCE:
        raise UsageError("git before 2.29 cannot mirror a session", "install git 2.29 or newer")
    git = context.project.git._replace(cwd=context.project.main, git_dir=repository.common_dir)
    claiming = _Claiming(context, git, remote)
    earlier = claiming.look()
    goes_on = earlier if earlier and earlier.branch == context.branch else None
    claim = RemoteClaim(
        id=session_claim.record.id,
        session=session_claim.record.session,
        branch=context.branch,
        base=goes_on.base if goes_on else context.base,
        node=session_claim.record.host,
        title=session_claim.record.title,
        agent=session_claim.record.agent,
        worktree=session_claim.record.worktree_name,
        beat=settings.remote_beat,
        start=portable(start, context),
    )
    claim, view = claiming.claim(claim)
    mirror = Mirror(
        git,
        remote,
        claim,
        view,
        fence=lambda: stop_request.ask(session_claim.directory, StopMode.SOON),
        cost=state.cost,
        # Without its claim, nobody knows where a branch began that a resumed session goes on with.
        submodules=SubmoduleWatch(
            claim.base if goes_on or not session_claim.record.resumes else "", context.cancel
        ),
        cancel=context.cancel,
    )
    at_end("mirror the end", lambda: MirrorEnd(mirror, state, context).push(session_claim.record))
    if claiming.earlier is not None:
        state.taken_up = TakeUp(
            context, git, claiming.earlier, claiming.refs, session_claim.directory
        ).take_up()
    wip = f"{HEADS}ralph/{claim.id}-wip"
    mirror.work = wip if list_refs(git, wip) else ""
    return mirror


def taken_at(git: Git, remote: str | None, agent_id: str) -> set[str]:
    """Return the agent ids that sessions have on a remote; none if it does not answer.

    Arguments:
        git: at the project root.
        remote: its name; ``None`` for no remote.
        agent_id: search for this id only; empty for all.

    """
    if remote is None:
        return set()
    with start_remote_listing(
        git, remote, remote_claim.ref_of(agent_id or "*"), f"{HEADS}ralph/{agent_id}*"
    ) as running:
        if not running.ended(_PATIENCE):
            return set()
        completed = running.wait()
    return agent_ids_in(completed.stdout) if completed.status == 0 else set()


class _Claiming:
    """The two network operations of a start: look, then claim.

    Attributes:
        refs: of the remote.
        earlier: the claim among them; ``None`` if there is none.

    """

    def __init__(self, context: SessionContext, git: Git, remote: str) -> None:
        self._context = context
        self._git = git
        self._remote = remote
        self._agent_id = context.record.id
        self._ref = remote_claim.ref_of(self._agent_id)
        self.refs: Mapping[str, str] = {}
        self.earlier: RemoteClaim | None = None

    def look(self) -> RemoteClaim | None:
        """Return the claim that the remote has, if this session may take it over.

        Raises:
            ConflictError: it may not.

        """
        specs = refspecs(self._remote, self._agent_id, self._context.branch)
        with start_fetch(self._git, self._remote, specs) as running:
            self._wait(running)
        self.refs = fetched(list_refs(self._git, everything(self._remote)), self._remote)
        self.earlier = self._read_claim()
        return self.earlier

    def _read_claim(self) -> RemoteClaim | None:
        oid = self.refs.get(self._ref)
        if oid is None:
            return None
        try:
            found = remote_claim.decode(read_blobs(self._git, [oid]).get(oid, b""), self._agent_id)
        except ValueError as error:
            raise ConflictError(
                f"the claim on session {self._agent_id} at {self._remote} cannot be read: {error}",
                f"to delete it: {command('git', 'push', self._remote, f':{self._ref}')}",
            ) from None
        settings = self._context.settings
        if not settings.resumes:
            raise ConflictError(
                f"{self._remote} has another session {self._agent_id}", "start it again: it gets another id"
            )
        if settings.takes_over not in {oid, remote_claim.ANY} and not self._ran_here(found.session):
            raise self._taken(found)
        return found

    def _ran_here(self, session: str) -> bool:
        """Return whether this session goes on from one that ran in this project.

        One that was fetched lives on its machine if its claim moves: its branch here is older than its own.
        """
        home = self._context.home
        if home is None or session != self._context.settings.resumes:
            return False
        return not is_fetched(home.sessions / session)

    def claim(self, claim: RemoteClaim, attempts: int = _ATTEMPTS) -> tuple[RemoteClaim, RemoteView]:
        """Push the claim; return it, and what the remote has then.

        Arguments:
            attempts: a session that the user takes over may still move its claim, so there are several.

        Raises:
            ConflictError: another machine was faster.

        """
        earlier = self.earlier
        claim = claim._replace(
            epoch=earlier.epoch + 1 if earlier else 1,
            work=earlier.work if earlier else "",
            earlier_cost_usd=(earlier.total_cost or 0.0) if earlier else 0.0,
        ).next()
        held = self.refs.get(self._ref)
        view = RemoteView(claim.id, claim.session, claim.branch, held, self.refs)
        self._leave_foreign_branch(view)
        blob = store_blob(self._git, claim.encode())
        changes = view.changes({}, blob)
        with start_atomic_push(self._git, self._remote, changes) as running:
            if self._wait(running):
                after = view.acknowledge()
                set_refs(self._git, {tracking(self._remote, ref): oid for ref, oid in after.items()})
                return claim, view
        found = self._look_again()
        if found is not None and found.get(self._ref) not in {held, blob}:
            if attempts > 1 and self._context.settings.takes_over == remote_claim.ANY:
                self.refs = found
                self.earlier = self._read_claim()
                return self.claim(claim, attempts - 1)
            raise ConflictError(
                f"another machine took session {self._agent_id} at {self._remote} in this moment",
                command("ralph-wrap", "fetch", "--remote", self._remote),
            )
        if found is not None:
            view.compare(found)
        return claim, view

    def _look_again(self) -> dict[str, str] | None:
        """Return the refs of the remote after a failed push; ``None`` if it does not answer."""
        specs = refspecs(self._remote, self._agent_id, self._context.branch)
        with start_fetch(self._git, self._remote, specs) as running:
            if not self._wait(running, states=False):
                return None
        return fetched(list_refs(self._git, everything(self._remote)), self._remote)

    def _leave_foreign_branch(self, view: RemoteView) -> None:
        """Leave a branch of the remote alone if it has commits that ours lacks.

        Raises:
            ConflictError: ours was fetched in the moment of a push. A server lists its refs one by one.

        """
        theirs = self.refs.get(view.branch_ref)
        local = list_refs(self._git, view.branch_ref).get(view.branch_ref)
        ours = local or self._context.base
        if theirs is None or ours is None or count_commits(self._git, ours, theirs) == 0:
            return
        names_claim = self._context.settings.takes_over not in {"", remote_claim.ANY}
        if local and names_claim and self.earlier and not self._ran_here(self.earlier.session):
            raise ConflictError(
                f"{self._context.branch} moved at {self._remote} in this moment",
                "the same command again fetches it",
            )
        view.divert(view.branch_ref)

    def _wait(self, running: RunningCommand, *, states: bool = True) -> bool:
        """Wait for a network operation, and return whether it succeeded."""
        deadline = time.monotonic() + _PATIENCE
        while not running.ended(0.1):
            if time.monotonic() >= deadline or self._context.cancel.requested:
                running.end()
                break
            current().progress(f"asking {self._remote}")
        current().progress("")
        completed = running.wait()
        if completed.status != 0 and states:
            log.warning(
                "mirror.failed",
                f"{self._remote} does not answer: {push_error(completed)}",
                "the session starts, and tries again",
            )
        return completed.status == 0

    def _taken(self, found: RemoteClaim) -> ConflictError:
        agent_id = self._agent_id
        if found.state == remote_claim.RUNNING:
            return ConflictError(
                f"session {found.session} runs on {found.node or 'another machine'}",
                Commands.of(f"to go on with it here: ralph-wrap resume {agent_id} --remote {self._remote}"),
            )
        return ConflictError(
            f"session {found.session} went on on {found.node or 'another machine'}",
            f"to go on with that: ralph-wrap resume {agent_id} --remote {self._remote}",
        )

"""Delete what a dropped session has on a remote; every commit of it stays in this repository.

The refs of the remote are as the fetch before has brought them. Before the remote deletes them, a snapshot
here keeps each commit that no other ref of the session here keeps. The remote deletes a ref only if it is
still what was fetched (``--force-with-lease``). A branch that the user named stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ralph_wrap.branches import HEADS, WIP, Branch
from ralph_wrap.errors import ConflictError, GitError, RalphError, RefusedError
from ralph_wrap.git import Git, list_refs, set_refs
from ralph_wrap.git.merge import is_ancestor
from ralph_wrap.git.remote import RemoteChange, push_error, start_atomic_push
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.state import remote_claim
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.remote_refs import everything, fetched, owner_of, tracking
from ralph_wrap.system.log import Commands
from ralph_wrap.system.text import command
from ralph_wrap.worktree.save.commits import make_snapshots

_PATIENCE = 600.0  # seconds for git push
_AT_ONCE = 100  # sessions in one push: their refs must fit into one command line


class RemoteCopies:
    """The refs that sessions have on one remote.

    Arguments:
        remote: name of the remote; its refs were fetched.

    """

    def __init__(self, project: Project, remote: str) -> None:
        self.name = remote
        self._git = project.git._replace(cwd=project.main, git_dir=repository_of(project).common_dir)
        self._refs: dict[str, dict[str, str]] = {}
        for ref, oid in fetched(list_refs(self._git, everything(remote)), remote).items():
            if agent_id := owner_of(ref):
                self._refs.setdefault(agent_id, {})[ref] = oid

    def __contains__(self, agent_id: str) -> bool:
        return agent_id in self._refs

    def obstacle(
        self, agent_id: str, local: Branch | None, objects: Git, *, force: bool
    ) -> RalphError | None:
        """Return why the refs of a session must stay on the remote, ``None`` if they may go.

        Arguments:
            agent_id: of the session.
            local: its branch here.
            objects: git in a shadow git directory.
            force: the user wants to lose work; a session that runs stays all the same.

        """
        refs = self._refs[agent_id]
        if error := self._in_use(agent_id, refs.get(remote_claim.ref_of(agent_id))):
            return error
        lost = [] if force else [*self._only_on_remote(objects, agent_id, local, refs)]
        if not lost:
            return None
        return RefusedError(
            f"session {agent_id} kept, this is only on {self.name}: {'; '.join(lost)}",
            Commands.of(
                f"to see it: {command('git', 'log', tracking(self.name, lost[0]))}",
                "to drop it: " + command("ralph-wrap", "drop", "--force", agent_id, "--remote", self.name),
            ),
        )

    def delete(self, ids: Sequence[str]) -> dict[str, RalphError | None]:
        """Delete the refs of sessions on the remote, and return an error for each session that stays there.

        Arguments:
            ids: agent ids; those without refs on the remote are left out.

        """
        errors: dict[str, RalphError | None] = {}
        ready = []
        for agent_id in filter(self.__contains__, ids):
            try:
                self._keep(agent_id)
                ready.append(agent_id)
            except GitError as error:
                errors[agent_id] = self._stays(agent_id, error.message)
        for first in range(0, len(ready), _AT_ONCE):
            some = ready[first : first + _AT_ONCE]
            reason = self._push(some)
            if reason and len(some) > 1:  # one of them has moved, for example
                errors |= {agent_id: self._result(agent_id, self._push([agent_id])) for agent_id in some}
            else:
                errors |= {agent_id: self._result(agent_id, reason) for agent_id in some}
        return errors

    def _in_use(self, agent_id: str, oid: str | None) -> RalphError | None:
        if oid is None:
            return None
        try:
            claim = remote_claim.decode(read_blobs(self._git, [oid]).get(oid, b""), agent_id)
        except ValueError as error:
            return ConflictError(
                f"the claim on session {agent_id} at {self.name} cannot be read: {error}",
                f"to delete it: {command('git', 'push', self.name, f':{remote_claim.ref_of(agent_id)}')}",
            )
        return self._running(claim) if claim.state == remote_claim.RUNNING else None

    def _running(self, claim: RemoteClaim) -> RalphError:
        return ConflictError(
            f"session {claim.session} runs on {claim.node or 'another machine'}: its refs stay",
            Commands.of(
                f"there: ralph-wrap stop {claim.id}",
                "if that machine is gone: "
                + command("git", "push", self.name, f":{remote_claim.ref_of(claim.id)}"),
            ),
        )

    def _only_on_remote(
        self, objects: Git, agent_id: str, local: Branch | None, refs: dict[str, str]
    ) -> Iterator[str]:
        """Yield the refs whose commits the branch here, and its saved work, do not hold."""
        branch = f"{HEADS}ralph/{agent_id}"
        tip = local.tip if local and not local.only_saved else None
        saved = local.saved if local else None
        for ref, oid in refs.items():
            ours = tip if ref == branch else saved if ref == branch + WIP else None
            if ref.startswith(("refs/ralph/claims/", "refs/ralph/snapshots/")) or oid in {tip, saved}:
                continue
            if ours is None or not is_ancestor(objects, oid, ours):
                yield ref

    def _keep(self, agent_id: str) -> None:
        """Make a snapshot of each commit that no ref of the session keeps here.

        Raises:
            GitError: a ref cannot be made.

        """
        patterns = [f"refs/ralph/{name}" for name in (f"dropped/{agent_id}", f"dropped/{agent_id}{WIP}")]
        kept = {*list_refs(self._git, *patterns, f"refs/ralph/snapshots/{agent_id}/").values()}
        oids = {oid for ref, oid in self._refs[agent_id].items() if not ref.startswith(remote_claim.CLAIMS)}
        make_snapshots(self._git, agent_id, sorted(oids - kept))

    def _push(self, ids: Sequence[str]) -> str:
        """Delete the refs of sessions, and return why that failed; empty if it did not."""
        refs = {ref: oid for agent_id in ids for ref, oid in self._refs[agent_id].items()}
        changes = [RemoteChange(ref, oid, None) for ref, oid in refs.items()]
        with start_atomic_push(self._git, self.name, changes) as running:
            try:
                completed = running.wait(_PATIENCE)
            except TimeoutError:
                return f"no answer for {_PATIENCE:.0f} s"
        if completed.status != 0:
            return push_error(completed)
        set_refs(self._git, {tracking(self.name, ref): None for ref in refs})
        return ""

    def _result(self, agent_id: str, reason: str) -> RalphError | None:
        return self._stays(agent_id, reason) if reason else None

    def _stays(self, agent_id: str, reason: str) -> RalphError:
        again = f"ralph-wrap drop {agent_id} --remote {self.name}"
        return ConflictError(f"{self.name} still has session {agent_id}: {reason}", f"to try again: {again}")

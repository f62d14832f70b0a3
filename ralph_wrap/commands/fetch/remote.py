"""The sessions of a remote, as ``git fetch`` brings their refs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ralph_wrap.commands.fetch.watch import BEATS
from ralph_wrap.errors import ConflictError, NotFoundError, RalphError, UnreachableError
from ralph_wrap.git import Git, is_branch_name, list_refs
from ralph_wrap.git.remote import Silence, list_remotes, push_error, start_fetch
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.state import inventory, remote_claim
from ralph_wrap.state.ids import is_agent_id
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.state.remote_claim import CLAIMS, RemoteClaim
from ralph_wrap.state.remote_refs import every_refspec, everything, fetched, refspecs
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.text import command

log = get_logger()

_PATIENCE = 600.0  # seconds of silence of git fetch
_LOOK = 0.1  # seconds between two looks at it
_LOOKS = 20  # fetches at most: a live session can push as often as we fetch


class RemoteSessions:
    """The sessions of one remote.

    Arguments:
        remote: name of the remote.

    Attributes:
        git: at the project root.
        name: of the remote.
        before: refs of the remote, as the fetch before has brought them.

    Raises:
        NotFoundError: there is no such remote.

    """

    def __init__(self, project: Project, remote: str) -> None:
        repository = repository_of(project)
        if remote not in (names := list_remotes(project.git)):
            listed = f"the remotes are: {', '.join(names)}"
            raise NotFoundError(
                f"there is no remote {remote!r}", listed if names else "git remote add NAME URL"
            )
        self._project = project
        self.name = remote
        self.git: Git = project.git._replace(cwd=project.main, git_dir=repository.common_dir)
        self._refs: dict[str, str] | None = None  # a thousand sessions have thousands of refs
        self._claims: dict[str, RemoteClaim] = {}  # by object id
        self.before = self.refs()

    def fetch(self) -> list[str]:
        """Fetch all sessions, and return their agent ids.

        Only its claim says the name of a branch that a user has named. So a second fetch brings those that no
        earlier claim has named. With a list of refs first, there would be two connections each time. A ref on
        the remote for each such branch would need leases and deletions of its own.
        """
        known = self._named_branches()
        self._fetch([*every_refspec(self.name), *self._specs(known)])
        if new := self._named_branches() - known:
            self._fetch(self._specs(new))
        return self._ids()

    def _ids(self) -> list[str]:
        return sorted(ref.removeprefix(CLAIMS) for ref in self.refs() if ref.startswith(CLAIMS))

    def _named_branches(self) -> set[str]:
        """Return the branches in the claims that are not named after a session."""
        claims = self.claims([agent_id for agent_id in self._ids() if is_agent_id(agent_id)]).values()
        named = {claim.branch for claim in claims if not claim.is_on_own_branch}
        return {branch for branch in named if is_branch_name(self.git, branch)}

    def _specs(self, branches: set[str]) -> list[str]:
        return [spec for branch in sorted(branches) for spec in refspecs(self.name, "none", branch)[-1:]]

    def fetch_one(self, agent_id: str) -> tuple[str, RemoteClaim]:
        """Fetch one session, and return its claim with the claim's object id."""
        before = self.claims([agent_id]).get(agent_id)
        known = f"ralph/{agent_id}"
        if before is not None and is_branch_name(self.git, before.branch):
            known = before.branch
        self._fetch(refspecs(self.name, agent_id, known))
        oid = self.refs().get(remote_claim.ref_of(agent_id))
        if oid is None:
            raise NotFoundError(
                f"{self.name} has no session {agent_id}",
                command("ralph-wrap", "fetch", "--remote", self.name),
            )
        claim = self.claims([agent_id]).get(agent_id)
        if claim is None:
            raise RalphError(f"the claim on session {agent_id} at {self.name} cannot be read")
        if not claim.is_on_own_branch and claim.branch != known and is_branch_name(self.git, claim.branch):
            self._fetch(self._specs({claim.branch}))
        return oid, claim

    def id_of(self, name: str) -> str:
        """Return the agent id of a session of the remote."""
        if is_agent_id(agent_id := name.rpartition("-")[2] or name):
            return agent_id
        return inventory.find(self._project, name).id

    def wait_until_dead(self, oid: str, claim: RemoteClaim) -> str:
        """Wait for three beats of the session, and return its claim if that has not moved.

        No clock of another machine takes part: we watch the claim for as long as the session has for its own
        pushes.
        """
        deadline = time.monotonic() + BEATS * claim.beat
        while (left := deadline - time.monotonic()) > 0:
            current().progress(f"session {claim.id} may run on {claim.node}: watching it for {left:.0f} s")
            time.sleep(min(left, claim.beat / 2, 5.0))
            now, found = self.fetch_one(claim.id)
            if now != oid and found.state == remote_claim.RUNNING:
                raise self._lives(found)
            oid = now
            if found.state != remote_claim.RUNNING:
                break
        current().progress("")
        return oid

    def settled(self, agent_id: str, oid: str, *, at_once: bool) -> tuple[str, RemoteClaim]:
        """Fetch until a fetch finds the claim of the one before, and return it: then the refs belong to it.

        A server lists its refs one by one, also during a push. The claim comes last in a push, so a list can
        have the new claim without the saved work that it names.

        Arguments:
            oid: the claim that the fetch before has found.
            at_once: the user takes the session over although it may run.

        Raises:
            ConflictError: it runs.

        """
        for _ in range(_LOOKS):
            now, claim = self.fetch_one(agent_id)
            if now == oid:
                return oid, claim
            if claim.state == remote_claim.RUNNING and not at_once:
                break
            oid = now
        raise self._lives(claim)

    def _lives(self, claim: RemoteClaim) -> ConflictError:
        current().progress("")
        resume = f"ralph-wrap resume {claim.id} --remote {self.name} --take-over"
        return ConflictError(
            f"session {claim.session} runs on {claim.node or 'another machine'}",
            f"if you know that it is dead: {resume}",
        )

    def refs(self) -> dict[str, str]:
        """Return the refs of the remote, as fetched, by their names there."""
        if self._refs is None:
            self._refs = fetched(list_refs(self.git, everything(self.name)), self.name)
        return self._refs

    def claims(self, ids: Sequence[str]) -> dict[str, RemoteClaim]:
        """Return the claims of agent ids that can be read."""
        refs = self.refs()
        oids = {agent_id: refs[ref] for agent_id in ids if (ref := remote_claim.ref_of(agent_id)) in refs}
        blobs = read_blobs(self.git, [oid for oid in oids.values() if oid not in self._claims])
        for agent_id, oid in oids.items():
            if oid in self._claims:
                continue
            try:
                self._claims[oid] = remote_claim.decode(blobs.get(oid, b""), agent_id)
            except ValueError as error:
                log.event("claim.unreadable", id=agent_id, reason=str(error))
        known = {agent_id: self._claims[oid] for agent_id, oid in oids.items() if oid in self._claims}
        return {agent_id: claim for agent_id, claim in known.items() if claim.id == agent_id}

    def _fetch(self, specs: Sequence[str]) -> None:
        self._refs = None
        with start_fetch(self.git, self.name, specs) as running:
            silence = Silence(running, _PATIENCE, fetches=True)
            while not running.ended(_LOOK):
                if silence.is_too_long:
                    raise UnreachableError(f"{self.name} was silent for {_PATIENCE:.0f} s")
            completed = running.wait()
        if completed.status != 0:
            reason = push_error(completed)
            raise UnreachableError(
                f"{self.name} cannot be read: {reason}", command("git", "fetch", self.name)
            )

"""Give the claim of a killed start back: its agent never ran, so no machine needs to wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from ralph_wrap.config.repository_trust import require_direct
from ralph_wrap.errors import GitError, RalphError
from ralph_wrap.git import Git, list_refs, set_refs, store_blob
from ralph_wrap.git.remote import RemoteChange, start_atomic_push
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.state import remote_claim
from ralph_wrap.state.project import Project, repository_of
from ralph_wrap.state.record import SessionRecord
from ralph_wrap.state.remote_claim import RemoteClaim
from ralph_wrap.state.remote_refs import REMOTES, tracking
from ralph_wrap.system import liveness
from ralph_wrap.system.log import get_logger

log = get_logger()

_PATIENCE = 5.0  # seconds; without an answer, the claim counts as dead after three beats


def give_back(project: Project, record: SessionRecord) -> None:
    """Give back the claims of a session that was killed before its agent ran; a failure is logged.

    The claim on a new session goes. If it went on from another session, the claim says that it is stopped:
    the remote has the work of the earlier one.

    Arguments:
        record: of the killed session.

    """
    git = project.git._replace(cwd=project.main, git_dir=repository_of(project).common_dir)
    for remote, oid, claim in _claims(git, record):
        ref = remote_claim.ref_of(record.id)
        try:
            require_direct(project.git.safe, remote)
            after = None
            if record.resumes is not None:
                ended = claim.next(state=remote_claim.STOPPED, ended_by="killed")
                after = store_blob(git, ended.encode())
            with start_atomic_push(git, remote, [RemoteChange(ref, oid, after)]) as running:
                if running.ended(_PATIENCE) and running.wait().status == 0:
                    set_refs(git, {tracking(remote, ref): after})
                    log.event("claim.given_back", remote=remote, id=record.id)
        except (RalphError, OSError) as error:
            log.event("claim.not_given_back", remote=remote, id=record.id, reason=str(error))


def _claims(git: Git, record: SessionRecord) -> Iterator[tuple[str, str, RemoteClaim]]:
    """Yield remote, object id and content of each claim that the session has pushed, and still has.

    An agent can write a record of a session that lives on another machine. The claim has the name of its
    machine.
    """
    end = f"/{remote_claim.ref_of(record.id).removeprefix('refs/')}"
    try:
        found = {ref: oid for ref, oid in list_refs(git, REMOTES).items() if ref.endswith(end)}
        blobs = read_blobs(git, [*found.values()])
    except (GitError, OSError):
        return
    for ref, oid in found.items():
        try:
            claim = remote_claim.decode(blobs.get(oid, b""), record.id)
        except ValueError:
            continue
        is_ours = claim.session == record.session and claim.node == liveness.host()
        if is_ours and claim.state == remote_claim.RUNNING:
            yield ref.removeprefix(REMOTES).removesuffix(end), oid, claim

"""Stop runs and sessions of a fleet, let them go on, and delete what a run has left."""

from __future__ import annotations

import json
import os

from ralph_wrap.errors import ConflictError, NotFoundError
from ralph_wrap.git import store_blob
from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.git.safe.batch import read_blobs, store_blobs
from ralph_wrap.interfaces.fleet.index import CLAIMED, STOPPED
from ralph_wrap.interfaces.fleet.listing import read_indexes
from ralph_wrap.interfaces.fleet.refs import FLEET, index_ref, stop_ref
from ralph_wrap.interfaces.fleet.remote import FleetRemote

_NONCE = 16  # bytes


def ask_to_stop(remote: FleetRemote, agent_id: str) -> str:
    """Ask a session to stop, through a ref of the remote; return its run.

    Its worker looks at the ref every half minute.

    Raises:
        NotFoundError: no run on the remote has this session.
        UnreachableError: the remote does not answer.

    """
    run = _run_of(remote, agent_id)
    ref = stop_ref(run, agent_id)
    if ref not in remote.listed(ref):
        content = json.dumps({"version": 1, "nonce": os.urandom(_NONCE).hex()}).encode()
        remote.change([RemoteChange(ref, None, store_blob(remote.git, content))])
    return run


def withdraw_stop_requests(remote: FleetRemote, run: str) -> int:
    """Take back the requests to stop sessions of a run, and return the number of stopped indexes.

    Raises:
        NotFoundError: the remote has no such run.
        ConflictError: a worker changes the run in this moment.
        UnreachableError: the remote does not answer.

    """
    stopped = [state for state in read_indexes(remote, run) if state.state == STOPPED]
    requests, states = stop_ref(run, ""), index_ref(run, 0).removesuffix("0")
    refs = remote.listed(f"{states}*")
    asked = remote.fetched_below(requests)  # another machine may have asked: their objects are not here yet
    changes = []
    again = [state._replace(state=CLAIMED, ended_by="").encode() for state in stopped]
    for state, oid in zip(stopped, store_blobs(remote.git, again), strict=True):
        ref = index_ref(run, state.number)
        changes.append(RemoteChange(ref, refs.get(ref), oid))
    if (asked and not remote.delete_below(requests, asked)) or not remote.change_many(changes):
        raise ConflictError(f"a worker changes run {run} in this moment", f"ralph-wrap fleet resume {run}")
    return len(stopped)


def forget(remote: FleetRemote, run: str) -> int:
    """Delete the refs of a run; the branches and the claims of its sessions stay. Errors as above.

    Returns:
        The number of refs.

    """
    refs = remote.listed(f"{FLEET}{run}/*")
    if not refs:
        raise NotFoundError(f"{remote.name} has no run {run}", "ralph-wrap fleet ps --all")
    remote.delete_below(f"{FLEET}{run}/")
    return len(refs)


def _run_of(remote: FleetRemote, agent_id: str) -> str:
    refs = remote.listed(f"{FLEET}*/index/*")
    remote.fetch(refs)
    blobs = read_blobs(remote.git, {*refs.values()})
    for ref, oid in refs.items():
        if f'"{agent_id}"'.encode() in blobs.get(oid, b""):
            return ref.removeprefix(FLEET).partition("/")[0]
    raise NotFoundError(f"no run at {remote.name} has session {agent_id}", "ralph-wrap fleet ps --all")

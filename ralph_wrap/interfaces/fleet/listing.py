"""What a run looks like: from the refs of its indexes, the claims of its sessions, and the status of its Job.

Everybody with access to the remote can write those refs. While there is a Job, an index counts as done only
if the Job says so. No text from the remote reaches a terminal unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ralph_wrap.errors import NotFoundError
from ralph_wrap.git.safe.batch import read_blobs
from ralph_wrap.interfaces.fleet.index import DONE, STOPPED, IndexState, decode_index
from ralph_wrap.interfaces.fleet.refs import FLEET, index_ref, is_run_id, spec_ref
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.state import remote_claim
from ralph_wrap.state.remote_claim import CLAIMS, RemoteClaim

_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)
_MOST = 100_000  # indexes of a Job


class FleetRow(NamedTuple):
    """One run of a remote.

    Attributes:
        run: its id.
        claimed: number of indexes that a worker has claimed.

    """

    run: str
    claimed: int


class IndexRow(NamedTuple):
    """One session of a run.

    Attributes:
        number: its index.
        id: its agent id.
        state: claimed, running, interrupted, finishing, done or stopped.
        title: what people call it.
        node: where it runs or ran.
        iterations: number of iterations that were started.
        cost_usd: the cost that its agent has reported, in all pods or workers.
        ended_by: why it ended.

    """

    number: int
    id: str
    state: str
    title: str = ""
    node: str = ""
    iterations: int = 0
    cost_usd: float | None = None
    ended_by: str = ""


class JobStatus(NamedTuple):
    """What Kubernetes says about the Job of a run.

    Attributes:
        state: running, suspended, complete, failed, or gone.
        completed: the indexes whose worker has ended with 0; ``None`` without a Job.

    """

    state: str
    completed: frozenset[int] | None

    @property
    def is_over(self) -> bool:
        """Whether the Job exists, and starts no worker any more."""
        return self.state in {"complete", "failed"}


def job_status(job: Mapping[str, Any] | None) -> JobStatus:
    """Return what a Job as JSON says."""
    if job is None:
        return JobStatus("gone", None)
    status = job.get("status") or {}
    kinds = {entry.get("type") for entry in status.get("conditions") or () if entry.get("status") == "True"}
    completed = _indexes(str(status.get("completedIndexes") or ""))
    if "Complete" in kinds:
        return JobStatus("complete", completed)
    if "Failed" in kinds:
        return JobStatus("failed", completed)
    return JobStatus("suspended" if (job.get("spec") or {}).get("suspend") else "running", completed)


def list_runs(remote: FleetRemote) -> list[FleetRow]:
    """Return the runs of a remote; errors are those of :meth:`FleetRemote.listed`."""
    refs = [ref.removeprefix(FLEET).split("/") for ref in remote.listed(f"{FLEET}*")]
    runs = sorted(parts[0] for parts in refs if parts[1:] == ["spec"] and is_run_id(parts[0]))
    return [FleetRow(run, sum(parts[0] == run and parts[1] == "index" for parts in refs)) for run in runs]


def list_indexes(remote: FleetRemote, run: str, job: JobStatus) -> list[IndexRow]:
    """Return the sessions of a run that a worker has claimed.

    Raises:
        NotFoundError: the remote has no such run.
        UnreachableError: the remote does not answer.

    """
    states = read_indexes(remote, run)
    claims = _claims(remote)
    return [_row(state, claims.get(state.id), job) for state in states]


def read_indexes(remote: FleetRemote, run: str) -> list[IndexState]:
    """Return the states of the indexes of a run; those that are damaged are left out. Errors as above."""
    prefix = index_ref(run, 0).removesuffix("0")
    if not remote.listed(spec_ref(run)):
        raise NotFoundError(f"{remote.name} has no run {run}", "ralph-wrap fleet ps --all")
    refs = remote.fetched_below(prefix)
    blobs = read_blobs(remote.git, {*refs.values()})
    states = []
    for ref, oid in refs.items():
        number = ref.removeprefix(prefix)
        try:
            states.append(decode_index(blobs.get(oid, b""), int(number)))
        except ValueError:
            continue
    return sorted(states)


def _claims(remote: FleetRemote) -> dict[str, RemoteClaim]:
    refs = remote.fetched_below(CLAIMS)
    blobs = read_blobs(remote.git, {*refs.values()})
    claims = {}
    for ref, oid in refs.items():
        agent_id = ref.removeprefix(CLAIMS)
        try:
            claims[agent_id] = remote_claim.decode(blobs.get(oid, b""), agent_id)
        except ValueError:
            continue
    return claims


def _row(state: IndexState, claim: RemoteClaim | None, job: JobStatus) -> IndexRow:
    row = IndexRow(state.number, state.id, _word(state, claim, job), ended_by=state.ended_by)
    if claim is None:
        return row
    return row._replace(
        title=claim.title,
        node=claim.node,
        iterations=claim.iteration,
        cost_usd=claim.total_cost,
        ended_by=state.ended_by or claim.ended_by,
    )


def _word(state: IndexState, claim: RemoteClaim | None, job: JobStatus) -> str:
    if state.state == STOPPED:
        return STOPPED
    if state.state == DONE:
        is_believed = job.completed is None or state.number in job.completed
        return DONE if is_believed else "finishing"
    if claim is None:
        return state.state
    return "running" if claim.state == remote_claim.RUNNING else "interrupted"


def _indexes(text: str) -> frozenset[int]:
    """Return the numbers in a list as Kubernetes writes it: ``0,2-4``."""
    found: set[int] = set()
    for part in text.split(","):
        if matched := _RANGE.fullmatch(part):
            first = int(matched[1])
            found.update(range(first, min(int(matched[2] or first), first + _MOST) + 1))
    return frozenset(found)

"""Faults of a cluster: whatever ends a pod, its session goes on elsewhere, and nothing is lost.

Each fault comes once, at a moment that a fixed seed decides. ``EVERY_POINT=1`` makes it twenty rounds: each
fault comes twenty times, at moments from new seeds. The names of the tests have the seeds.
``FLEET_SEED=N FLEET_ROUNDS=M`` takes M seeds from N on: so twenty rounds can run in parts, and one can be
repeated.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.kubernetes.chart_run import ChartRun
from tests.kubernetes.evidence import require_everything, require_output, require_rescue
from tests.kubernetes.run import BEAT, LIMIT
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.gate import Gate
    from tests.kubernetes.remote import GitServer, Remote
    from tests.support.repo import Repo

    Begin = Callable[..., ChartRun]

LINES = 8
_EVERY = bool(os.environ.get("EVERY_POINT"))
_SEED = int(os.environ.get("FLEET_SEED", random.randrange(1000) if _EVERY else 0))  # noqa: S311 - of faults
_ROUNDS = int(os.environ.get("FLEET_ROUNDS", "20" if _EVERY else "1"))
SEEDS = range(_SEED, _SEED + _ROUNDS)

# With this scope, pytest runs every fault of a seed before those of the next one.
pytestmark = pytest.mark.parametrize("seed", SEEDS, scope="module")


@pytest.fixture
def begin(cluster: Cluster, remote: Remote, repo: Repo) -> Iterator[Begin]:
    """Return a function that starts a run; it is deleted after the test."""
    started: list[ChartRun] = []

    def start(values: dict[str, Any] | None = None, **agent: int) -> ChartRun:
        run = ChartRun(cluster, remote, repo, lines=LINES, **agent)
        started.append(run)
        run.start(**values or {})
        return run

    yield start
    for run in started:
        run.end()


def _line(seed: int) -> int:
    """Return the line at which the fault comes."""
    return random.Random(seed).randrange(1, LINES - 2)  # noqa: S311 - of a fault


def _wait_for_a_line(run: ChartRun, seed: int) -> Any:
    """Wait until a moment after the agent has written a line, both from the seed; return its pod."""
    run.wait_for_line(0, _line(seed))
    (pod,) = run.pods()
    time.sleep(random.Random(-seed).random())  # noqa: S311 - the agent writes a line a second
    return pod


def _finish(run: ChartRun, first: Any, *, graceful: bool) -> None:
    """Wait for the end; another pod than the first one must have brought it."""
    run.wait_until_done()
    require_everything(run, graceful=graceful)
    assert run.written(0)[-1][1] != _address(first)


def _address(pod: Any) -> str:
    return str(pod["status"]["podIP"])


def _uid(pod: Any) -> str:
    return str(pod["metadata"]["uid"])


def test_a_deleted_pod(begin: Begin, seed: int) -> None:
    """`kubectl delete pod`: the session saves in the grace period, and another pod goes on."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    run.cluster.control.kubectl("delete", "pod", pod["metadata"]["name"])
    _finish(run, pod, graceful=True)


def test_a_drained_node(begin: Begin, seed: int) -> None:
    """`kubectl drain` evicts the pod through the API: the session goes on on the other node."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    node = pod["spec"]["nodeName"]
    run.cluster.control.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    try:
        _finish(run, pod, graceful=True)
    finally:
        run.cluster.control.kubectl("uncordon", node)


def test_a_pod_that_fills_its_disk(begin: Begin, seed: int) -> None:
    """Its kubelet evicts it, and waits for no grace. The line that only a snapshot has is not lost."""
    line = _line(seed)
    limits = {"memory": "512Mi", "ephemeral-storage": "100Mi"}
    run = begin({"resources": {"requests": {"cpu": "10m"}, "limits": limits}}, fills=line)
    pod = _wait_for_a_line(run, seed)
    _finish(run, pod, graceful=False)
    evicted = [
        other["status"] for other in run.every_pod() if other["metadata"]["uid"] == pod["metadata"]["uid"]
    ]
    assert [status["reason"] for status in evicted] == ["Evicted"]


def test_an_agent_that_needs_too_much_memory(begin: Begin, seed: int) -> None:
    """The kernel kills the agent alone: its session goes on in the same pod, with the line that it had."""
    run = begin(eats=_line(seed))
    pod = _wait_for_a_line(run, seed)
    run.wait_until_done()
    require_everything(run, graceful=True)
    assert {address for _, address in run.written(0)} == {_address(pod)}
    [again] = run.every_pod()
    assert [status["restartCount"] for status in again["status"]["containerStatuses"]] == [0]
    assert "137" in run.output(0)


def test_a_killed_kubelet_and_containerd(begin: Begin, gate: Gate, seed: int) -> None:
    """The pod works on without them, and the one that replaces it waits, because the claim still moves."""
    run = begin(hold=_line(seed))
    pod = _wait_for_a_line(run, seed)
    node = run.cluster.nodes[pod["spec"]["nodeName"]]
    node.kill("kubelet", "containerd")
    try:
        eventually(
            lambda: any(_uid(other) != _uid(pod) for other in run.pods()), "a pod that replaces it", LIMIT
        )
        gate.open()
        run.wait_for_line(0, LINES)
    finally:
        node.start()
        eventually(run.cluster.ready, "the node to be back", LIMIT)
    run.wait_until_done()
    require_everything(run, graceful=True)
    assert {address for _, address in run.written(0)} == {_address(pod)}


def test_a_node_without_a_network(begin: Begin, gate: Gate, seed: int) -> None:
    """The pod is replaced. When the cable is in again, its session is fenced, and its work is rescued.

    What the pod has printed reaches the remote, too.
    The agent waits at a line until the network is back. So it still works when the other pod has the claim.
    """
    run = begin(hold=_line(seed))
    pod = _wait_for_a_line(run, seed)
    session = run.claim(0)["session"]
    node = run.cluster.nodes[pod["spec"]["nodeName"]]
    run.cluster.cut(node.name)
    try:
        gate.open()
        _finish(run, pod, graceful=False)
        assert node.has_agent()
    finally:
        run.cluster.mend(node.name)
        eventually(run.cluster.ready, "the node to be back", LIMIT)
    eventually(lambda: not node.has_agent(), "the agent of the old pod to end", LIMIT)
    require_rescue(run, 0, session, _address(pod))
    require_output(run, 0, session)
    require_everything(run, graceful=False)
    assert run.claim(0)["session"] != session


def test_a_remote_that_is_away(begin: Begin, git_server: GitServer, seed: int) -> None:
    """The agent works on, and the remote gets everything when it is back."""
    run = begin()
    _wait_for_a_line(run, seed)
    git_server.stop()
    try:
        run.wait_for_line(0, LINES)
    finally:
        git_server.start()
    run.wait_until_done()
    require_everything(run, graceful=True)


def test_a_remote_that_refuses(begin: Begin, seed: int) -> None:
    """The same for a hook that refuses each push for a while."""
    run = begin()
    _wait_for_a_line(run, seed)
    run.remote.refuse(yes=True)
    run.wait_for_line(0, LINES)
    run.remote.refuse(yes=False)
    run.wait_until_done()
    require_everything(run, graceful=True)


def test_an_api_server_that_is_away(begin: Begin, seed: int) -> None:
    """No session needs it: they work to their end, and the Job is complete when it is back."""
    run = begin()
    _wait_for_a_line(run, seed)
    run.cluster.control.stop_api()
    try:
        run.wait_for_line(0, LINES)
    finally:
        run.cluster.control.start_api()
    run.wait_until_done()
    require_everything(run, graceful=True)


def test_a_deleted_job(begin: Begin, seed: int) -> None:
    """Its pods save and end. The same Job, applied again, goes on."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    run.cluster.control.kubectl("delete", "job", run.job, "--cascade=foreground")
    run.start()
    _finish(run, pod, graceful=True)


def test_two_pods_of_one_index(begin: Begin, gate: Gate, seed: int) -> None:
    """The second one waits for the first, and finds the index done."""
    run = begin(hold=_line(seed))
    pod = _wait_for_a_line(run, seed)
    second = run.start_second_pod(pod, index=0)
    run.cluster.control.kubectl("wait", "--for=condition=Ready", f"pod/{second}", f"--timeout={LIMIT:.0f}s")
    time.sleep(4 * BEAT)  # it would take the claim over after three
    gate.open()
    run.wait_until_done()
    run.cluster.control.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{second}", f"--timeout={LIMIT:.0f}s"
    )
    require_everything(run, graceful=True)
    assert run.claim(0)["epoch"] == 1
    assert {address for _, address in run.written(0)} == {_address(pod)}

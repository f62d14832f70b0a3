"""Faults of a cluster: whatever ends a pod, its session goes on elsewhere, and nothing is lost.

Each fault comes at a line that a fixed seed decides, once. With ``EVERY_POINT=1`` in the environment it comes
twenty times, each time at another line.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.kubernetes.evidence import require_everything
from tests.kubernetes.run import LIMIT, Run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import GitServer, Remote
    from tests.support.repo import Repo

LINES = 8
SEEDS = range(20 if os.environ.get("EVERY_POINT") else 1)

pytestmark = pytest.mark.parametrize("seed", SEEDS)


@pytest.fixture
def begin(cluster: Cluster, remote: Remote, repo: Repo) -> Iterator[Callable[..., Run]]:
    """Return a function that starts a run; it is deleted after the test."""
    started: list[Run] = []

    def start(**values: Any) -> Run:
        run = Run(cluster, remote, repo, lines=LINES)
        started.append(run)
        run.start(**values)
        return run

    yield start
    for run in started:
        run.end()


def _wait_for_a_line(run: Run, seed: int) -> Any:
    """Wait until the agent has written a line that the seed decides; return its pod."""
    line = random.Random(seed).randrange(1, LINES - 2)  # noqa: S311 - of a fault
    run.wait_for_line(0, line)
    (pod,) = run.pods()
    return pod


def _finish(run: Run, first: Any, *, graceful: bool) -> None:
    """Wait for the end; another pod than the first one must have brought it."""
    run.wait_until_done()
    require_everything(run, graceful=graceful)
    last = run.written(0)[-1][1]
    assert last != first["status"]["podIP"]


def test_a_deleted_pod(begin: Callable[..., Run], seed: int) -> None:
    """`kubectl delete pod`: the session saves in the grace period, and another pod goes on."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    run.cluster.control.kubectl("delete", "pod", pod["metadata"]["name"])
    _finish(run, pod, graceful=True)


def test_a_drained_node(begin: Callable[..., Run], seed: int) -> None:
    """`kubectl drain`: the session goes on on the other node."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    node = pod["spec"]["nodeName"]
    run.cluster.control.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    try:
        _finish(run, pod, graceful=True)
    finally:
        run.cluster.control.kubectl("uncordon", node)


def test_a_killed_kubelet_and_containerd(begin: Callable[..., Run], seed: int) -> None:
    """The pod works on without them. It is replaced, fenced, and ended when they are back."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    node = run.cluster.nodes[pod["spec"]["nodeName"]]
    node.kill("kubelet", "containerd")
    try:
        run.wait_until_done()
    finally:
        node.start()
        eventually(run.cluster.ready, "the node to be back", LIMIT)
    require_everything(run, graceful=False)


def test_a_node_without_a_network(begin: Callable[..., Run], seed: int) -> None:
    """The pod is replaced. When the cable is in again, the old session is fenced, and its work is rescued."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    run.cluster.cut(pod["spec"]["nodeName"])
    try:
        _finish(run, pod, graceful=False)
    finally:
        run.cluster.mend(pod["spec"]["nodeName"])
        eventually(run.cluster.ready, "the node to be back", LIMIT)
    require_everything(run, graceful=False)


def test_a_remote_that_is_away(begin: Callable[..., Run], git_server: GitServer, seed: int) -> None:
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


def test_a_remote_that_refuses(begin: Callable[..., Run], seed: int) -> None:
    """The same for a hook that refuses each push for a while."""
    run = begin()
    _wait_for_a_line(run, seed)
    run.remote.refuse(yes=True)
    run.wait_for_line(0, LINES)
    run.remote.refuse(yes=False)
    run.wait_until_done()
    require_everything(run, graceful=True)


def test_an_api_server_that_is_away(begin: Callable[..., Run], seed: int) -> None:
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


def test_a_deleted_job(begin: Callable[..., Run], seed: int) -> None:
    """Its pods save and end. The same Job, applied again, goes on."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    run.cluster.control.kubectl("delete", "job", run.name, "--cascade=foreground")
    run.start()
    _finish(run, pod, graceful=True)


def test_two_pods_of_one_index(begin: Callable[..., Run], seed: int) -> None:
    """The second one waits for the first, and finds the index done."""
    run = begin()
    pod = _wait_for_a_line(run, seed)
    second = run.start_second_pod(pod, index=0)
    run.wait_until_done()
    run.cluster.control.kubectl(
        "wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{second}", f"--timeout={LIMIT:.0f}s"
    )
    require_everything(run, graceful=True)
    assert {address for _, address in run.written(0)} == {pod["status"]["podIP"]}

"""Faults of a cluster: whatever ends a pod, its session goes on elsewhere, and nothing is lost.

Each fault comes once, at a moment that the seed 0 decides. ``FLEET_SEED=N FLEET_ROUNDS=M`` takes M seeds from
N on: each fault comes M times, at other moments. Some rounds of a fault run at the same time, each with a
session, a remote, a moment and a check of its own. A fault of a node comes to all sessions on it, each at its
own line. The names of the tests have the seeds, so one round can be repeated.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.kubernetes.evidence import require_everything, require_output, require_rescue
from tests.kubernetes.remote import Remote
from tests.kubernetes.rounds import LINES, Round, Rounds
from tests.kubernetes.run import BEAT, LIMIT
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import GitServer
    from tests.support.repo import Repo

    Begin = Callable[..., Rounds]

TOGETHER = 5
"""Rounds at the same time: on two busy processors, the agents of ten wrote no line for minutes."""
_SEED = int(os.environ.get("FLEET_SEED", "0"))
_ROUNDS = int(os.environ.get("FLEET_ROUNDS", "1"))
_SEEDS = range(_SEED, _SEED + _ROUNDS)
GROUPS = [_SEEDS[first : first + TOGETHER] for first in range(0, _ROUNDS, TOGETHER)]

# With this scope, pytest runs every fault of some seeds before those of the next ones.
pytestmark = pytest.mark.parametrize(
    "seeds", GROUPS, ids=["-".join(map(str, group)) for group in GROUPS], scope="module"
)


@pytest.fixture
def begin(cluster: Cluster, git_server: GitServer, repo: Repo, seeds: range) -> Iterator[Begin]:
    """Return a function that makes the rounds; they are deleted after the test."""
    made: list[Round] = []

    def make(at_line: str = "") -> Rounds:
        for number, seed in enumerate(seeds):
            name = f"run-{os.urandom(4).hex()}"
            made.append(Round(cluster, Remote(git_server.root, name), repo, number, seed, at_line))
        return Rounds(made)

    yield make
    for current in made:
        current.end()


def _start(current: Round) -> None:
    """Start a session, and wait until its moment."""
    current.run.start()
    current.wait_for_the_moment()


def _uid(pod: Any) -> str:
    return str(pod["metadata"]["uid"])


def test_a_deleted_pod(begin: Begin) -> None:
    """`kubectl delete pod`: the session saves in the grace period, and another pod goes on."""

    def fault(current: Round) -> None:
        _start(current)
        current.kubectl("delete", "pod", current.pod["metadata"]["name"])
        current.finish(graceful=True, elsewhere=True)

    begin().each(fault)


def test_a_drained_node(begin: Begin, cluster: Cluster) -> None:
    """`kubectl drain` evicts the pods through the API: the sessions go on on the other node."""
    rounds = begin("hold")
    node = rounds.start_on_one_node()
    rounds.each(Round.let_go)
    cluster.control.kubectl("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    try:
        rounds.each(lambda current: current.finish(graceful=True, elsewhere=True))
    finally:
        cluster.control.kubectl("uncordon", node.name)


def test_a_pod_that_fills_its_disk(begin: Begin) -> None:
    """Its kubelet evicts it, and waits for no grace. The line that only a snapshot has is not lost."""

    def fault(current: Round) -> None:
        current.run.start(**{"ephemeral-storage": "100Mi"})
        current.wait_for_the_line()
        current.finish(graceful=False, elsewhere=True)
        pods = [pod for pod in current.run.every_pod() if _uid(pod) == _uid(current.pod)]
        assert [pod["status"]["reason"] for pod in pods] == ["Evicted"]

    begin("fills").each(fault)


def test_an_agent_that_needs_too_much_memory(begin: Begin) -> None:
    """The kernel kills the agent alone: its session goes on in the same pod, with the line that it had."""

    def fault(current: Round) -> None:
        current.run.start()
        current.wait_for_the_line()
        current.finish(graceful=True, elsewhere=False)
        [again] = current.run.every_pod()
        assert [status["restartCount"] for status in again["status"]["containerStatuses"]] == [0]
        assert "137" in current.run.output(0)

    begin("eats").each(fault)


def test_a_killed_kubelet_and_containerd(begin: Begin, cluster: Cluster) -> None:
    """The pods work on without them. Those that replace them wait, because the claims still move."""
    rounds = begin("hold")
    node = rounds.start_on_one_node()
    node.kill("kubelet", "containerd")
    try:
        rounds.each(lambda current: current.run.wait_for_a_replacement())
        rounds.each(Round.let_go)
        rounds.each(lambda current: current.run.wait_for_line(0, LINES))
    finally:
        node.start()
        eventually(cluster.ready, "the node to be back", LIMIT)
    rounds.each(lambda current: current.finish(graceful=True, elsewhere=False))


def test_a_node_without_a_network(begin: Begin, cluster: Cluster) -> None:
    """The pods are replaced. With the cable in again, their sessions are fenced, and their work is rescued.

    What the pods have printed reaches the remote, too.
    The agents wait at a line until the network is back. So they still work when other pods have the claims.
    """
    rounds = begin("hold")
    node = rounds.start_on_one_node()
    rounds.each(Round.note_session)
    cluster.cut(node.name)
    try:
        rounds.each(Round.let_go)
        rounds.each(lambda current: current.finish(graceful=False, elsewhere=True))
        assert node.agents() == len(rounds)
    finally:
        cluster.mend(node.name)
        eventually(cluster.ready, "the node to be back", LIMIT)
    eventually(lambda: not node.agents(), "the agents of the old pods to end", LIMIT)

    def require(current: Round) -> None:
        require_rescue(current.run, 0, current.session, current.address)
        require_output(current.run, 0, current.session)
        require_everything(current.run, graceful=False)
        assert current.run.claim(0)["session"] != current.session

    rounds.each(require)


def test_a_remote_that_is_away(begin: Begin, git_server: GitServer) -> None:
    """The agents work on, and the remote gets everything when it is back."""
    rounds = begin("hold")
    rounds.each(_start)
    rounds.each(Round.let_go)
    git_server.stop()
    try:
        rounds.each(lambda current: current.run.wait_for_line(0, LINES))
    finally:
        git_server.start()
    rounds.each(lambda current: current.finish(graceful=True, elsewhere=False))


def test_a_remote_that_refuses(begin: Begin) -> None:
    """The same for a hook that refuses each push for a while."""

    def fault(current: Round) -> None:
        _start(current)
        current.run.remote.refuse(yes=True)
        current.run.wait_for_line(0, LINES)
        current.run.remote.refuse(yes=False)
        current.finish(graceful=True, elsewhere=False)

    begin().each(fault)


def test_an_api_server_that_is_away(begin: Begin, cluster: Cluster) -> None:
    """No session needs it: they work to their end, and the Jobs are complete when it is back."""
    rounds = begin("hold")
    rounds.each(_start)
    rounds.each(Round.let_go)
    cluster.control.stop_api()
    try:
        rounds.each(lambda current: current.run.wait_for_line(0, LINES))
    finally:
        cluster.control.start_api()
    rounds.each(lambda current: current.finish(graceful=True, elsewhere=False))


def test_a_deleted_job(begin: Begin) -> None:
    """Its pods save and end. The same Job, applied again, goes on."""

    def fault(current: Round) -> None:
        _start(current)
        current.kubectl("delete", "job", current.run.job, "--cascade=foreground")
        current.run.start()
        current.finish(graceful=True, elsewhere=True)

    begin().each(fault)


def test_two_pods_of_one_index(begin: Begin) -> None:
    """The second one waits for the first, and finds the index done."""

    def fault(current: Round) -> None:
        _start(current)
        second = f"pod/{current.run.start_second_pod(current.pod, index=0)}"
        limit = f"--timeout={LIMIT:.0f}s"
        current.kubectl("wait", "--for=condition=Ready", second, limit)
        time.sleep(4 * BEAT)  # it would take the claim over after three
        current.let_go()
        current.finish(graceful=True, elsewhere=False)
        current.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", second, limit)
        assert current.run.claim(0)["epoch"] == 1

    begin("hold").each(fault)

"""Sessions behind a hub: they have its password alone, and the git server gets its pushes.

The policy of the network is not tested: nothing on this cluster enforces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kubernetes.chart_run import ChartRun
from tests.kubernetes.hub import CLIENT, ClusterHub
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.gate import Gate
    from tests.kubernetes.remote import Remote
    from tests.support.repo import Repo

LINES = 6
SIZE = 2


def test_a_hub_whose_pod_is_replaced_forwards_everything(
    cluster: Cluster, remote: Remote, repo: Repo, gate: Gate
) -> None:
    """Its sessions work on meanwhile. An index is done only after origin has all of it."""
    run = ChartRun(cluster, remote, repo, size=SIZE, lines=LINES, hold=2)
    hub = ClusterHub(cluster, remote)
    try:
        run.start(remote=hub.address, hub=True, gitSecret=CLIENT)
        for index in range(SIZE):
            run.wait_for_line(index, 2)
        hub.delete_pod()
        gate.open()
        for index in range(SIZE):
            run.wait_for_line(index, LINES)
        hub.route()
        run.wait_until_done()
        # The hub forwards the end of an index after all work of its session.
        eventually(lambda: _states(run) == ["done"] * SIZE, "origin to know the end of both")
        for index in range(SIZE):
            final = run.lines_of(f"refs/heads/ralph/{run.agent_id(index)}")
            assert [number for number, _ in final] == [*range(1, LINES + 1)]
            assert final == run.written(index)
            assert run.claim(index)["epoch"] == 1
            assert run.claim(index)["state"] == "done"
    finally:
        run.end()
        hub.end()


def _states(run: ChartRun) -> list[str]:
    return [run.state(index)["state"] for index in range(run.size)]

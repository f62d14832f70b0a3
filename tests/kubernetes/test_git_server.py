"""The git server that docs/fleet.md shows, in the cluster of its sessions.

The policy of its network is not tested: nothing on this cluster enforces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kubernetes.cluster_git import ClusterGit
from tests.kubernetes.evidence import require_everything
from tests.kubernetes.user import User

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.gate import Gate
    from tests.kubernetes.remote import GitServer
    from tests.support.repo import Repo

LINES = 6
SIZE = 2


def test_a_server_whose_pod_is_replaced_gets_everything(
    cluster: Cluster, git_server: GitServer, repo: Repo, gate: Gate
) -> None:
    """Its sessions work on meanwhile, and push to the next pod, which has the same volume."""
    repo.git("config", "--global", "safe.directory", "*")  # the server runs as another user
    remote = ClusterGit(cluster, git_server)
    try:
        keys = {"remote": f"git://{remote.service}/project.git"}
        user = User(cluster, remote, repo, lines=LINES, pause=0, keys=keys, hold=2)
        remote.give_to_the_server()
        words = ("--count", str(SIZE), "--max-iterations", "5", "--", "numbered-lines")
        run = user.run(*words, size=SIZE)
        for index in range(SIZE):
            run.wait_for_line(index, 2)
        remote.delete_pod()
        gate.open()
        for index in range(SIZE):
            run.wait_for_line(index, LINES)
        repo.git("remote", "set-url", "origin", remote.route())
        run.wait_until_done()
        require_everything(run, graceful=True)
        assert [run.claim(index)["epoch"] for index in range(SIZE)] == [1] * SIZE
        assert [row["state"] for row in user.rows(run)] == ["done"] * SIZE
        user.fleet("rm", run.name)
    finally:
        remote.end()

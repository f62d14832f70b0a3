"""A run of a thousand sessions: one Job, and ``fleet ps`` from the refs.

A hundred pods at once do not exist; in ``make test-all`` also a thousand.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from tests.kubernetes.run import LIMIT, pod_fields
from tests.kubernetes.thousand import SELECTOR, TOLERATION, delete_nodes, start_nodes, write_sessions
from tests.kubernetes.user import User
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.remote import Remote
    from tests.support.repo import Repo

SIZE = 1000
LONGEST_PS = 2.0
"""Seconds of processor time of the fastest of some answers; the clock counts what else the machine does."""
ANSWERS = 3
LARGEST_JOB = 1 << 20
_LOG = logging.getLogger(__name__)


@pytest.mark.parametrize("pods", [100, pytest.param(SIZE, marks=pytest.mark.matrix)])
def test_a_thousand_sessions_are_listed(cluster: Cluster, remote: Remote, repo: Repo, pods: int) -> None:
    """`fleet ps` asks for one Job of a few kilobytes, and for no pod; its cost is logged."""
    keys = {"pod": pod_fields() | {"nodeSelector": SELECTOR, "tolerations": [TOLERATION]}}
    user = User(cluster, remote, repo, lines=1, pause=0, keys=keys)
    kwok = start_nodes(cluster)
    try:
        run = user.run("--count", str(SIZE), "--parallel", str(pods), "--", "numbered-lines", size=SIZE)
        try:
            ready = f"--for=jsonpath={{.status.ready}}={pods}"
            cluster.control.kubectl(
                "wait", ready, f"job/{run.job}", f"--timeout={LIMIT:.0f}s", limit=2 * LIMIT
            )
            write_sessions(remote, run.name, SIZE, repo.head)
            assert len(user.rows(run)) == SIZE  # the first one brings the refs
            answers = [user.timed_rows(run) for _ in range(ANSWERS)]
            for rows, _, _ in answers:
                assert [row["title"] for row in rows] == [f"task {number}" for number in range(SIZE)]
            seconds = min(processor for _, processor, _ in answers)
            by_the_clock = min(clock for _, _, clock in answers)
            assert seconds < LONGEST_PS
            job = len(json.dumps(cluster.control.get("job", run.job)))
            _LOG.info("fleet ps: %.2f s of processor time, %.2f s; Job: %d bytes", seconds, by_the_clock, job)
            assert job < LARGEST_JOB
            user.fleet("stop", run.name)
            eventually(lambda: not run.every_pod(), "the pods of a suspended Job to be gone", LIMIT)
        finally:
            cluster.control.kubectl("delete", "job", run.job, limit=2 * LIMIT)
    finally:
        delete_nodes(cluster)
        kwok.kill()

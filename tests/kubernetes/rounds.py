"""Rounds of a fault at the same time: each has a session, a remote and a moment of its own."""

from __future__ import annotations

import logging
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.kubernetes.evidence import require_everything
from tests.kubernetes.failure_output import describe_pushes
from tests.kubernetes.gate import Gate
from tests.kubernetes.seeded_run import SeededRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.kubernetes.cluster import Cluster
    from tests.kubernetes.node import Node
    from tests.kubernetes.remote import Remote
    from tests.support.repo import Repo

LINES = 10
LAST = 5
"""The last line at which a fault may come: the session has some seconds of work left."""
_LOG = logging.getLogger(__name__)


class Round:
    """A run of one session; the fault comes at a line of its agent, and some time after it.

    Arguments:
        number: of the round, among those at the same time.
        seed: what decides the line and the time.
        at_line: what the agent does at that line, as :func:`agent_variables` has it.

    Attributes:
        line: the number of the line at which the fault comes
        gate: where the agent waits, if it holds at that line
        run: the run, whose one index is the session
        pod: the first pod, once the session has come to the line
        session: the id of the session that has the claim, once it was noted

    """

    def __init__(
        self, cluster: Cluster, remote: Remote, project: Repo, number: int, seed: int, at_line: str = ""
    ) -> None:
        chance = random.Random(seed)  # noqa: S311 - of a fault
        self.seed = seed
        self.line = chance.randrange(1, LAST + 1)
        self._delay = chance.random()  # the agent writes a line a second
        self.gate = Gate(cluster.hub, number)
        does = {at_line: self.line} if at_line else {}
        self.run = SeededRun(cluster, remote, project, gate=number, lines=LINES, **does)
        self.pod: Any = None
        self.session = ""

    @property
    def address(self) -> str:
        """The address of the first pod."""
        return str(self.pod["status"]["podIP"])

    def kubectl(self, *arguments: str) -> None:
        """Run kubectl; it must succeed."""
        self.run.cluster.control.kubectl(*arguments)

    def wait_for_the_line(self) -> None:
        """Wait until the agent has written its line."""
        self.run.wait_for_line(0, self.line)
        (self.pod,) = self.run.pods()

    def wait_for_the_moment(self) -> None:
        """Wait until a moment after the agent has written its line."""
        self.wait_for_the_line()
        time.sleep(self._delay)

    def note_session(self) -> None:
        """Note which session has the claim."""
        self.session = str(self.run.claim(0)["session"])

    def let_go(self) -> None:
        """Open the gate at which the agent waits, after a time that the seed decides."""
        time.sleep(self._delay)
        self.gate.open()

    def finish(self, *, graceful: bool, elsewhere: bool) -> None:
        """Wait for the end, and require all of the work.

        Arguments:
            graceful: each pod had its grace period.
            elsewhere: another pod than the first one must have brought the end, or else no other pod.

        """
        self.run.wait_until_done()
        require_everything(self.run, graceful=graceful)
        pods = [address for _, address in self.run.written(0)]
        if elsewhere:
            assert pods[-1] != self.address
        else:
            assert {*pods} == {self.address}

    def end(self) -> None:
        """Delete what the round has made on the cluster."""
        self.gate.close()
        self.run.end()


class Rounds:
    """Rounds of one fault.

    Arguments:
        rounds: at least one.

    """

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._rounds = rounds
        self._begun = time.monotonic()

    def __len__(self) -> int:
        return len(self._rounds)

    def each(self, step: Callable[[Round], object]) -> None:
        """Take a step of all rounds at the same time, and wait for all.

        Raises:
            ExceptionGroup: some of them failed.

        """

        def attempt(current: Round) -> Exception | None:
            try:
                step(current)
            except Exception as error:  # noqa: BLE001 - raised below, with those of the other rounds
                _LOG.info("seed %d failed after %.0f s", current.seed, time.monotonic() - self._begun)
                error.add_note(f"seed {current.seed}\n{describe_pushes(current.run.remote)}")
                return error
            return None

        with ThreadPoolExecutor(len(self._rounds)) as pool:
            errors = [error for error in pool.map(attempt, self._rounds) if error]
        if errors:
            message = "rounds of a fault"
            raise ExceptionGroup(message, errors)

    def start_on_one_node(self) -> Node:
        """Start all sessions on a node that the first seed decides, and wait until each is at its line."""
        cluster = self._rounds[0].run.cluster
        names = sorted(cluster.nodes)
        name = names[self._rounds[0].seed // len(self._rounds) % len(names)]
        with cluster.only(name):
            self.each(lambda current: current.run.start())
            self.each(Round.wait_for_the_line)
        return cluster.nodes[name]

"""``--fleet-max-cost``: each session gets its share as its own limit, which counts on in the next worker."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet.spec import FleetSpec, read_spec
from tests.support.agent_script import result_line
from tests.support.sessions import Result, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.interfaces.fleet.runs import FleetRun

ITERATION = 0.25  # dollars, as result_line() reports
NEVER_ENDS = {"agent": "mine", "prompt": "go", "max_iterations": "0", "max_stalls": "0"}
HANG = "[ $(wc -l < {0}/runs) != 2 ] || exec sleep 1000"


def begin(run: FleetRun, max_cost: str, body: str = "", *, size: int = 1) -> None:
    """Put a run on the remote whose sessions have a limit; each iteration notes and reports its cost."""
    script = f"echo run >> {run.directory}/runs\n{body}\n{result_line('Fine.')}"
    run.repo.write("agent.sh", script)
    run.repo.write(
        ".ralph/config.toml",
        '[agents.mine]\ncommand = ["sh", "agent.sh"]\noutput = "claude"\nprompt = "stdin"\n',
    )
    run.begin("", size=size, parallel=size, command=(), options=NEVER_ENDS | {"max_cost": max_cost})


def spent(run: FleetRun) -> float:
    """Return what the agents have really cost."""
    runs = run.directory / "runs"
    return len(runs.read_text().split()) * ITERATION if runs.exists() else 0.0


def _options(run: FleetRun, started: Result) -> dict[str, str | None]:
    """Return the options of the last session of a run with four."""
    commit = run.refs()[f"refs/ralph/fleet/{started.stdout.decode().strip()}/spec"]
    return read_spec(Git(run.repo.path, git_environment(os.environ)), commit)[0].options_of(3)


@pytest.mark.parametrize(
    ("arguments", "share"),
    [
        (("--fleet-max-cost", "2"), "0.5"),
        (("--fleet-max-cost", "2", "--max-cost", "0.1"), "0.1"),
        (("--fleet-max-cost", "2", "--max-cost", "9"), "0.5"),
        (("--fleet-max-cost", "0.000001"), "0.000001"),
        (("--fleet-max-cost", "10", "--max-cost", "0"), "2.5"),
        (("--max-cost", "3"), "3"),
        (("--fleet-max-cost", "0"), None),
        ((), None),
    ],
)
def test_each_session_gets_the_same_share(
    fleet_run: FleetRun, arguments: tuple[str, ...], share: str | None
) -> None:
    """Or its own limit, if that is lower; however small a share is, it is never 0, which is no limit."""
    fleet_run.repo.write(".ralph/fleet.yaml", "image: i\n")
    env = {"RALPH_TRUST": "1"} | fleet_run.kubectl()
    words = ("fleet", "run", "--count", "4", *arguments, "--", "true")
    started = command(*words, cwd=fleet_run.repo.path, env=env)
    assert started.status == 0, started.stderr
    assert _options(fleet_run, started).get("max_cost") == share


def test_a_lower_limit_of_the_configuration_counts(fleet_run: FleetRun) -> None:
    """The share is an option of each session, and options come before the file."""
    fleet_run.repo.write(".ralph/fleet.yaml", "image: i\n")
    fleet_run.repo.write(".ralph/config.toml", 'max_cost = "0.1"\n')
    env = {"RALPH_TRUST": "1"} | fleet_run.kubectl()
    words = ("fleet", "run", "--count", "4", "--fleet-max-cost", "2", "--", "true")
    started = command(*words, cwd=fleet_run.repo.path, env=env)
    assert started.status == 0, started.stderr
    assert _options(fleet_run, started)["max_cost"] == "0.1"


def test_a_session_ends_at_its_share(fleet_run: FleetRun) -> None:
    """With its work saved; its index is done, as with every other limit of a session."""
    begin(fleet_run, "0.5", "echo work >> made", size=2)
    for status, printed in [worker.ended() for worker in (fleet_run.work(0), fleet_run.work(1))]:
        assert status == 0, printed
    states = [fleet_run.state(index) for index in range(2)]
    assert {(state["state"], state["ended_by"]) for state in states} == {("done", "max-cost")}
    assert spent(fleet_run) == 2 * 0.5
    assert all(fleet_run.refs(f"refs/heads/ralph/{state['id']}-wip") for state in states)


def test_what_a_killed_worker_has_spent_counts_on(fleet_run: FleetRun) -> None:
    """The next one gets the rest, and the table shows the sum. A killed iteration has reported nothing."""
    begin(fleet_run, "0.75", HANG.format(fleet_run.directory))
    worker = fleet_run.work()
    eventually(lambda: spent(fleet_run) == 2 * ITERATION, "the second iteration")
    eventually(lambda: fleet_run.claim().get("cost_usd") == ITERATION, "the cost of the first one")
    worker.kill()
    status, printed = fleet_run.work().ended()
    assert (status, fleet_run.state()["ended_by"]) == (0, "max-cost"), printed
    assert spent(fleet_run) == 0.75 + ITERATION
    listed = command("fleet", "ps", "r1", "--json", cwd=fleet_run.repo.path, env=fleet_run.kubectl())
    assert [row["cost_usd"] for row in json.loads(listed.stdout)["data"]] == [0.75], listed.stderr


def test_the_work_of_a_killed_worker_is_saved_when_its_share_is_spent(fleet_run: FleetRun) -> None:
    """The next one takes it over as always, and starts the agent once at most."""
    begin(fleet_run, "0.75", f"echo x > loose; {HANG.format(fleet_run.directory)}")
    worker = fleet_run.work()
    eventually(lambda: fleet_run.claim().get("cost_usd") == ITERATION, "the cost of the first iteration")
    eventually(lambda: spent(fleet_run) == 2 * ITERATION, "the second iteration")
    fleet_run.wait_until_mirrored("loose")
    worker.kill()
    claim = fleet_run.claim()
    fleet_run.put(f"refs/ralph/claims/{claim['id']}", json.dumps(claim | {"earlier_cost_usd": 0.5}))
    status, printed = fleet_run.work().ended()
    assert (status, fleet_run.state()["ended_by"]) == (0, "max-cost"), printed
    assert spent(fleet_run) == 3 * ITERATION
    assert fleet_run.holds("loose", f"refs/heads/ralph/{claim['id']}-wip")


def test_a_rest_is_never_no_limit() -> None:
    """An option of 0 would be none, and an option has six decimals."""
    spec = FleetSpec("r1", 1, options={"max_cost": "0.75"})
    rests = [spec.options_of(0, spent)["max_cost"] for spent in (0.0, 0.5, 0.7499999, 0.75, 9.0)]
    assert rests == ["0.75", "0.25", "0.000001", "0.000001", "0.000001"]

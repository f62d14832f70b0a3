"""``--fleet-max-cost``: workers lease what they spend, by compare-and-swap of one ref of the run."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.errors import RalphError
from ralph_wrap.git import Git, git_environment
from ralph_wrap.interfaces.fleet.limits.background import Background
from ralph_wrap.interfaces.fleet.limits.budget import RunBudget
from ralph_wrap.interfaces.fleet.limits.ledger import DOLLAR, Ledger, decode_ledger
from ralph_wrap.interfaces.fleet.remote import FleetRemote
from ralph_wrap.interfaces.fleet.spec import FleetSpec
from tests.interfaces.fleet.runs import RUN
from tests.support.agent_script import result_line
from tests.support.sessions import command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.interfaces.fleet.runs import FleetRun

COST = f"refs/ralph/fleet/{RUN}/cost"
ITERATION = 0.25  # dollars, as result_line() reports
NEVER_ENDS = {"agent": "mine", "prompt": "go", "max_iterations": "0", "max_stalls": "0"}


def begin(run: FleetRun, max_cost: float, body: str = "", **more: Any) -> None:
    """Put a run with a limit on the remote; each iteration of its agent notes and reports its cost."""
    script = f"echo run >> {run.directory}/runs\n{body}\n{result_line('Fine.')}"
    run.repo.write("agent.sh", script)
    run.repo.write(
        ".ralph/config.toml",
        '[agents.mine]\ncommand = ["sh", "agent.sh"]\noutput = "claude"\nprompt = "stdin"\n',
    )
    more = {"options": NEVER_ENDS} | more
    run.begin("", max_cost=max_cost, command=(), **more)
    put_ledger(run, Ledger())


def put_ledger(run: FleetRun, ledger: Ledger) -> None:
    """Replace the ledger on the remote."""
    run.put(COST, ledger.encode().decode())


def ledger(run: FleetRun) -> Ledger:
    """Return the ledger on the remote."""
    return decode_ledger(run.remote.show(COST))


def spent(run: FleetRun) -> float:
    """Return what the agents have really cost."""
    return len((run.directory / "runs").read_text().split()) * ITERATION


def test_all_workers_together_keep_the_limit(fleet_run: FleetRun) -> None:
    """Each may exceed its lease by what its agent reports at once; their work is saved, none is done."""
    begin(fleet_run, 2.0, "echo work >> made", size=3, parallel=3)
    workers = [fleet_run.work(index) for index in range(3)]
    for status, printed in [worker.ended() for worker in workers]:
        assert status == 0, printed
    states = [fleet_run.state(index) for index in range(3)]
    assert {(state["state"], state["ended_by"]) for state in states} == {("stopped", "fleet-max-cost")}
    slices = 3 * 2.0 / 12
    assert 2.0 - slices <= spent(fleet_run) <= 2.0 + 3 * ITERATION
    counted = ledger(fleet_run)
    assert counted.leases == {}
    assert counted.spent <= 2 * DOLLAR
    worked = [state for state in states if fleet_run.refs(f"refs/heads/ralph/{state['id']}-wip")]
    assert worked, states


def test_a_run_without_a_limit_leases_nothing(fleet_run: FleetRun) -> None:
    """Negative control: the agent runs as often as it may, and there is no ref for the cost."""
    begin(fleet_run, 0.0, options=NEVER_ENDS | {"max_iterations": "12"})
    before = fleet_run.refs(COST)
    assert fleet_run.work().ended()[0] == 0
    assert (fleet_run.state()["state"], spent(fleet_run)) == ("done", 12 * ITERATION)
    assert fleet_run.refs(COST) == before


def test_the_lease_of_a_killed_worker_counts_as_spent(fleet_run: FleetRun) -> None:
    """The next worker of the index gets the rest, and no more."""
    flag = fleet_run.directory / "killed"
    begin(fleet_run, 4.0, f"test -e {flag} || {{ touch {flag}.hangs; exec sleep 1000; }}")
    worker = fleet_run.work()
    eventually(flag.with_suffix(".hangs").exists, "the agent")
    worker.kill()
    flag.touch()
    [lost] = ledger(fleet_run).leases.values()
    assert (lost.number, lost.epoch, lost.amount) == (0, 1, DOLLAR)
    status, printed = fleet_run.work().ended()
    assert (status, fleet_run.state()["state"]) == (0, "stopped"), printed
    really = spent(fleet_run) - ITERATION  # the killed iteration has reported nothing
    assert 3.0 - ITERATION <= really <= 3.0 + ITERATION
    assert [*ledger(fleet_run).leases.values()] in ([lost], [])


def test_a_claim_proves_that_a_killed_worker_has_spent_less(fleet_run: FleetRun) -> None:
    """Its session had ended, and only the return of the lease was missing."""
    flag = fleet_run.directory / "away"
    hook = fleet_run.remote.path / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\ncase $1 in */cost) ! test -e "{flag}";; esac\n')
    hook.chmod(0o755)
    options = NEVER_ENDS | {"max_failures": "1"}
    begin(fleet_run, 8.0, f"test -e {flag}.2 && exit 0; touch {flag}; trap 'exit 7' EXIT", options=options)
    worker = fleet_run.work()
    eventually(lambda: fleet_run.claim().get("ended_by") == "max-failures", "the end of the session")
    worker.kill()
    assert [lease.amount for lease in ledger(fleet_run).leases.values()] == [2 * DOLLAR]
    flag.rename(flag.with_suffix(".2"))
    again = fleet_run.work()
    eventually(lambda: ledger(fleet_run).returned, "the return of the lease")
    assert ledger(fleet_run).returned == (2 - ITERATION) * DOLLAR
    again.process.send_signal(signal.SIGTERM)
    assert again.ended()[0] in {143, 0, 1}


@pytest.mark.parametrize(
    "content", ["", "{}", '{"version": 1, "granted": -5, "returned": 0, "leases": {}}', None]
)
def test_a_damaged_ledger_stops_all_agents(fleet_run: FleetRun, content: str | None) -> None:
    """A worker that cannot read what is spent spends nothing."""
    begin(fleet_run, 2.0)
    if content is None:
        fleet_run.repo.git("push", "-q", "origin", f":{COST}")
    else:
        fleet_run.put(COST, content)
    status, printed = fleet_run.work().ended()
    assert (status, COST in printed) == (1, True), printed
    assert not (fleet_run.directory / "runs").exists()


def test_a_ledger_that_goes_while_the_agent_works_costs_no_work(fleet_run: FleetRun) -> None:
    """The worker fails, and another branch of its agent is on the remote: the workspace may go now."""
    other = "git branch side $(git commit-tree -m side -p HEAD 'HEAD^{tree}')"
    begin(
        fleet_run, 2.0, f"{other}; git push -q origin :{COST}", options=NEVER_ENDS | {"max_iterations": "1"}
    )
    status, printed = fleet_run.work().ended()
    assert (status, COST in printed) == (1, True), printed
    [rescued] = [ref for ref in fleet_run.refs("refs/ralph/rescue/") if ref.endswith("/heads/side")]
    assert fleet_run.remote.git("log", "-1", "--format=%s", rescued) == "side"


def test_a_stopped_run_goes_on_with_a_higher_limit(fleet_run: FleetRun) -> None:
    """What it has spent counts on, and the Job gets the commit with the new limit."""
    env = {"RALPH_TRUST": "1"} | fleet_run.kubectl(None)
    script = fleet_run.directory / "agent"
    script.write_text(f"#!/bin/sh\necho run >> {fleet_run.directory}/runs\n{result_line('Fine.')}")
    script.chmod(0o755)
    fleet_run.repo.write(".ralph/fleet.yaml", "image: i\n")
    fleet_run.repo.write(".ralph/config.toml", f'[agents.mine]\ncommand = ["{script}"]\noutput = "claude"\n')
    fleet_run.repo.write(".gitignore", ".ralph/run/\n.ralph/worktrees/\n")
    fleet_run.repo.git("add", "-A")
    fleet_run.repo.git("commit", "-qm", "an agent")

    def fleet(*words: str) -> str:
        done = command("fleet", *words, cwd=fleet_run.repo.path, env=env)
        assert done.status == 0, done.stderr
        return done.stdout.decode().strip()

    def work(run: str) -> None:
        spec = fleet_run.refs()[f"refs/ralph/fleet/{run}/spec"]
        order = {"RALPH_FLEET_RUN": run, "RALPH_FLEET_SPEC": spec}
        status, printed = fleet_run.work(env=order).ended()
        assert status == 0, printed

    limit, endless = "--fleet-max-cost", ("-n", "0", "--max-stalls", "0", "-p", "go")
    name = fleet("run", "--count", "1", limit, "1", *endless, "-a", "mine")
    work(name)
    first = spent(fleet_run)
    assert 0.75 <= first <= 1.0 + ITERATION
    listed = fleet("ps", name)
    assert ("limit $1.00: $1.00 spent" in listed, "fleet-max-cost" in listed) == (True, True), listed
    fleet("resume", name)
    work(name)
    assert spent(fleet_run) == first
    fleet("resume", name, limit, "2")
    work(name)
    assert 1.75 <= spent(fleet_run) <= 2.0 + 2 * ITERATION
    jobs = [json.loads(call["stdin"]) for call in fleet_run.calls() if "create" in call["arguments"]]
    pinned = fleet_run.refs()[f"refs/ralph/fleet/{name}/spec"]
    assert [pinned in json.dumps(job) for job in jobs] == [False, False, True]


def _budget(run: FleetRun, index: int = 0) -> RunBudget:
    git = Git(run.repo.path, git_environment(os.environ))
    return RunBudget(FleetRemote(git, "origin"), FleetSpec(RUN, 2, max_cost=8.0, parallel=2), index)


def test_a_ledger_that_is_set_back_gives_nothing_more(fleet_run: FleetRun) -> None:
    """An agent that forges it stops the workers that have seen more."""
    put_ledger(fleet_run, Ledger())
    budget = _budget(fleet_run)
    allowance = budget.open(None)
    assert allowance is not None
    assert allowance.left == 1.0
    put_ledger(fleet_run, Ledger())
    allowance.spend(0.5)
    with Background(budget.more) as money:

        def closed() -> bool:
            money.look()
            return allowance.is_closed

        eventually(closed, "the end of the allowance")
    with pytest.raises(RalphError, match="back"):
        budget.open(None)


def test_more_is_leased_beside_the_session(fleet_run: FleetRun) -> None:
    """Before the session has used its lease; the rest comes back at the end."""
    put_ledger(fleet_run, Ledger())
    budget, other = _budget(fleet_run), _budget(fleet_run, 1)
    allowance, others = budget.open(None), other.open(None)
    assert allowance is not None
    assert others is not None
    with Background(budget.more) as money:
        allowance.spend(0.75)

        def has_more() -> bool:
            money.look()
            return allowance.left >= 1.0

        eventually(has_more, "more money")
    assert allowance.left == 1.25
    budget.close()
    other.close()
    counted = ledger(fleet_run)
    assert (counted.spent, counted.leases) == (0.75 * DOLLAR, {})
    assert json.loads(fleet_run.remote.show(COST))["granted"] == 3 * DOLLAR

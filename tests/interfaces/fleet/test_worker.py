"""A worker of a fleet: environment in, refs out, whatever ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.interfaces.fleet.order import with_credential
from tests.support.agent_script import PROMISE, limited, result_line
from tests.support.repo import make_repo
from tests.support.sessions import PROGRAM
from tests.support.submodules import ALLOWED
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interfaces.fleet.runs import FleetRun

COMMIT = "echo work >> made; git add made; git commit -qm one"
HANG = "echo loose > loose; exec sleep 1000"


def test_an_index_is_done_once(fleet_run: FleetRun) -> None:
    """Its work, its state and its output are on the remote; a second worker finds nothing to do."""
    fleet_run.begin(f"echo said; {COMMIT}")
    status, printed = fleet_run.work().ended()
    assert (status, "said" in printed) == (0, True), printed
    state = fleet_run.state()
    assert (state["state"], len(state["id"]), state["ended_by"]) == ("done", 8, "max-iterations")
    assert fleet_run.remote.show(f"ralph/{state['id']}:made") == b"work\n"
    output = "refs/ralph/fleet/r1/output/0"
    assert b"said" in fleet_run.remote.show(f"{output}:output.log")
    assert json.loads(fleet_run.remote.show(f"{output}:report.json"))["id"] == state["id"]
    before = fleet_run.refs()
    assert fleet_run.work().ended()[0] == 0
    assert fleet_run.refs() == before


def test_a_terminated_index_comes_back(fleet_run: FleetRun) -> None:
    """The worker ends with 143, all work is on the remote, and the next worker goes on with it."""
    fleet_run.begin(f"if [ -e loose ]; then git add loose; git commit -qm two; else {HANG}; fi")
    worker = fleet_run.work()
    fleet_run.wait_until_mirrored("loose")
    worker.process.send_signal(signal.SIGTERM)
    status, printed = worker.ended()
    assert status == 143, printed
    first = fleet_run.state()
    assert first["state"] == "claimed"
    assert fleet_run.remote.show(f"ralph/{first['id']}-wip:loose") == b"loose\n"
    status, printed = fleet_run.work().ended()
    assert status == 0, printed
    assert fleet_run.state()["id"] == first["id"]
    assert fleet_run.remote.show(f"ralph/{first['id']}:loose") == b"loose\n"


def test_a_killed_worker_is_replaced(fleet_run: FleetRun) -> None:
    """The next one takes the session over after three silent beats, with what the first had not committed."""
    fleet_run.begin(
        f"if [ -e made ]; then cp loose two; git add two; git commit -qm two; else {COMMIT}; {HANG}; fi"
    )
    worker = fleet_run.work()
    fleet_run.wait_until_mirrored("loose")
    worker.kill()
    assert fleet_run.claim()["state"] == "running"
    status, printed = fleet_run.work().ended()
    assert status == 0, printed
    assert fleet_run.claim()["epoch"] == 2
    agent_id = fleet_run.state()["id"]
    assert fleet_run.remote.show(f"ralph/{agent_id}:two") == b"loose\n"
    assert fleet_run.remote.show(f"ralph/{agent_id}-wip:loose") == b"loose\n"


def test_a_worker_that_was_cut_off_brings_its_work_and_what_it_printed(fleet_run: FleetRun) -> None:
    """Another one took its session over meanwhile and was done: nothing of the first one is lost."""
    fleet_run.begin(f"if [ -e made ]; then {COMMIT}; else echo said; {COMMIT}; {HANG}; fi")
    first = fleet_run.work()
    fleet_run.wait_until_mirrored("loose")
    session = fleet_run.claim()["session"]
    first.signal_all(signal.SIGSTOP)
    status, printed = fleet_run.work().ended()
    assert (status, fleet_run.claim()["epoch"]) == (0, 2), printed
    first.signal_all(signal.SIGCONT)
    status, printed = first.ended()
    assert status == 0, printed
    assert fleet_run.holds("loose", f"refs/ralph/rescue/{fleet_run.state()['id']}/{session}/")
    outputs = fleet_run.remote.git("rev-list", "refs/ralph/fleet/r1/output/0").split()
    reports = {json.loads(fleet_run.remote.show(f"{oid}:report.json"))["session"]: oid for oid in outputs}
    log = fleet_run.remote.show(f"{reports[session]}:output.log")
    assert b"said" in log
    assert b"another machine goes on" in log


def test_two_workers_of_one_index_run_one_session(fleet_run: FleetRun) -> None:
    """One of them wins, the other one waits; the agent ran once, and both end with 0."""
    fleet_run.begin(f"echo run >> {fleet_run.directory}/runs; {COMMIT}")
    workers = [fleet_run.work(), fleet_run.work()]
    ended = [worker.ended() for worker in workers]
    assert [status for status, _ in ended] == [0, 0], ended
    assert (fleet_run.directory / "runs").read_text() == "run\n"
    assert len(fleet_run.refs("refs/ralph/claims/")) == 1


def test_a_worker_that_only_waited_has_no_work(fleet_run: FleetRun) -> None:
    """It has fetched a snapshot, which the remote no longer has when the session is done: both end with 0."""
    gate = fleet_run.directory / "gate"
    fleet_run.begin(f"echo x > loose; until [ -e {gate} ]; do sleep 0.1; done; git add -A; git commit -qm x")
    first = fleet_run.work()
    fleet_run.wait_until_mirrored("loose")
    second = fleet_run.work()
    output = "refs/ralph/fleet/r1/output/0"
    eventually(lambda: fleet_run.refs(output), "the second worker to wait")
    assert [*second.workspace.glob("project/.git/refs/ralph/snapshots/*/commit-1")]
    gate.touch()
    ended = [worker.ended() for worker in (first, second)]
    assert [status for status, _ in ended] == [0, 0], ended


NIGHT = f"""cat > given
case $RALPH_ITERATION in
1) {PROGRAM} tell $RALPH_SESSION_ID "Use the new one."; echo "<promise>COMPLETE</promise>" ;;
2) cp given heard; printf "<promise>BLOCKED</promise>\\nThe whole of it?\\n" ;;
esac
"""


def test_a_worker_verifies_hears_and_asks(fleet_run: FleetRun) -> None:
    """As any session: the gate refuses a promise, the next prompt has its output and what was told."""
    options = {"max_iterations": "3", "prompt": "Do it.", "verify": "echo no proof; false"}
    fleet_run.begin(NIGHT, options=options)
    status, printed = fleet_run.work().ended()
    assert (status, fleet_run.state()["state"]) == (0, "stopped"), printed
    agent_id = fleet_run.state()["id"]
    heard = fleet_run.remote.show(f"ralph/{agent_id}-wip:heard").decode()
    assert heard.startswith("Use the new one.\n\nDo it.")
    assert "no proof" in heard
    report = json.loads(fleet_run.remote.show("refs/ralph/fleet/r1/output/0:report.json"))
    assert (report["ended_by"], report["question"]) == ("blocked", "The whole of it?")
    assert (report["verify"]["runs"], report["unread"]) == (1, [])


def test_the_fallback_of_a_worker_goes_on_while_a_limit_holds(fleet_run: FleetRun) -> None:
    """Typed at fleet run, more than once; the report on the remote says who it was."""
    scripts = {"first": f"{limited(3600)}exit 1", "third": f"{COMMIT}\n{result_line(PROMISE)}"}
    scripts["second"] = scripts["first"]
    for name, script in scripts.items():
        fleet_run.repo.write(f"{name}.sh", script)
    rows = [f"[agents.{name}]\ncommand = ['sh', '{name}.sh']\noutput = 'claude'\n" for name in scripts]
    fleet_run.repo.write(".ralph/config.toml", "".join(rows))
    options = {"agent": "first", "fallback": "second\nthird", "prompt": "go", "max_iterations": "1"}
    fleet_run.begin("", command=(), options=options)
    status, printed = fleet_run.work().ended()
    state = fleet_run.state()
    assert (status, state["state"], state["ended_by"]) == (0, "done", "promise"), printed
    report = json.loads(fleet_run.remote.show("refs/ralph/fleet/r1/output/0:report.json"))
    shares = [(entry["agent"], entry["iterations"]) for entry in report["agents"]]
    assert shares == [("first", 0), ("second", 0), ("third", 1)]
    assert fleet_run.remote.show(f"ralph/{state['id']}:made") == b"work\n"


@pytest.mark.parametrize("end", ["done", "a signal"])
def test_teardown_and_notify_of_the_configuration_work_in_a_worker(fleet_run: FleetRun, end: str) -> None:
    """The engine has approved them; what a teardown leaves is on the remote, and a person hears of it."""
    told, begun = fleet_run.directory / "told", fleet_run.directory / "begun"
    fleet_run.repo.write(
        ".ralph/config.toml",
        f"teardown = 'echo bye > farewell'\nnotify = 'echo \"$RALPH_EVENT\" >> {told}'\n",
    )
    last = f"echo '{PROMISE}'" if end == "done" else f"touch {begun}; exec sleep 1000"
    fleet_run.begin(f"{COMMIT}; {last}")
    worker = fleet_run.work()
    if end == "a signal":
        eventually(begun.exists, "the agent")
        worker.process.send_signal(signal.SIGTERM)
    status, printed = worker.ended()
    assert status == (0 if end == "done" else 143), printed
    assert told.read_text().split() == ["done" if end == "done" else "interrupted"]
    assert fleet_run.remote.show(f"ralph/{fleet_run.state()['id']}-wip:farewell") == b"bye\n"


def test_a_worker_rescues_the_work_in_submodules(fleet_run: FleetRun, tmp_path: Path) -> None:
    """No session pushes it, and the workspace goes: it is on the remote before the index is done."""
    library = make_repo(tmp_path / "library")
    fleet_run.repo.git(*ALLOWED, "submodule", "--quiet", "add", library.path, "lib")
    fleet_run.begin(
        f"git {' '.join(ALLOWED)} submodule --quiet update --init; cd lib;"
        " git commit -q --allow-empty -m inner; echo new > new"
    )
    status, printed = fleet_run.work().ended()
    assert status == 0, printed
    [rescued] = [ref for ref in fleet_run.refs("refs/ralph/rescue/") if ref.endswith("/submodule-1")]
    assert fleet_run.remote.show(f"{rescued}:new") == b"new\n"
    assert fleet_run.remote.git("log", "-1", "--format=%s", f"{rescued}^1") == "inner"


def test_a_worker_that_waits_never_takes_a_live_session_over(fleet_run: FleetRun) -> None:
    """It has fetched the session before, and watches the claim again each time."""
    runs, gate = fleet_run.directory / "runs", fleet_run.directory / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.1; done"
    # On a busy machine the first worker may need more than a moment for a beat.
    fleet_run.begin(f"echo run >> {runs}; echo x > loose; {wait}; git add -A; {COMMIT}", beat="1s")
    first = fleet_run.work()
    fleet_run.wait_until_mirrored("loose")
    second = fleet_run.work()
    output = "refs/ralph/fleet/r1/output/0"

    def refusals() -> int:
        return int(fleet_run.remote.git("rev-list", "--count", output)) if fleet_run.refs(output) else 0

    eventually(lambda: refusals() > 1 or fleet_run.claim()["epoch"] > 1, "the second worker to ask twice")
    assert fleet_run.claim()["epoch"] == 1
    gate.touch()
    ended = [worker.ended() for worker in (first, second)]
    assert [status for status, _ in ended] == [0, 0], ended
    assert runs.read_text() == "run\n"
    assert not fleet_run.refs("refs/ralph/rescue/")


def test_a_session_that_is_done_while_a_worker_watches_it_stays_done(fleet_run: FleetRun) -> None:
    """The worker does not go on with it; the next look at the index finds its end."""
    runs, gate = fleet_run.directory / "runs", fleet_run.directory / "gate"
    fleet_run.begin(f"echo run >> {runs}; until [ -e {gate} ]; do sleep 0.1; done; {COMMIT}", beat="4s")
    first = fleet_run.work()
    eventually(runs.exists, "the agent to run")
    second = fleet_run.work()
    eventually(
        lambda: [*second.workspace.glob("project/.ralph/run/sessions/*/record.json")], "a fetched session"
    )
    gate.touch()
    ended = [worker.ended() for worker in (first, second)]
    assert [status for status, _ in ended] == [0, 0], ended
    assert runs.read_text() == "run\n"
    assert fleet_run.claim()["epoch"] == 1


def test_a_worker_that_waits_outlives_its_remote(fleet_run: FleetRun) -> None:
    """The remote goes away while the worker watches a dead session; when it is back, the worker goes on."""
    gate, away = fleet_run.directory / "gate", fleet_run.directory / "away.git"
    fleet_run.begin(f"until [ -e {gate} ]; do sleep 0.1; done; {COMMIT}", beat="2s")
    first = fleet_run.work()
    eventually(lambda: fleet_run.claim().get("iteration"), "the agent to run")
    first.kill()
    second = fleet_run.work()
    records = "project/.ralph/run/sessions/*/record.json"
    eventually(lambda: [*second.workspace.glob(records)], "a fetched session")
    fleet_run.remote.path.rename(away)
    eventually(lambda: not second.children(), "the second worker to miss its remote")
    away.rename(fleet_run.remote.path)
    gate.touch()
    status, printed = second.ended()
    assert (status, fleet_run.state()["state"], fleet_run.claim()["epoch"]) == (0, "done", 2), printed


def test_a_failing_agent_fails_the_index(fleet_run: FleetRun) -> None:
    """The engine counts it, and the next worker resumes."""
    options = {"max_failures": "1"}
    fleet_run.begin(
        "test -e made && exit 0; echo work > made; exit 7", options=options | {"max_iterations": "1"}
    )
    status, printed = fleet_run.work().ended()
    assert (status, fleet_run.state()["state"]) == (1, "claimed"), printed
    status, printed = fleet_run.work().ended()
    assert (status, fleet_run.state()["state"]) == (0, "done"), printed


def test_a_blocked_agent_stops_the_index(fleet_run: FleetRun) -> None:
    """It waits for a person, not for another worker, which would only hear the question again."""
    fleet_run.begin(f"{COMMIT}; echo '<promise>BLOCKED</promise>'; echo 'May I?'")
    status, printed = fleet_run.work().ended()
    assert status == 0, printed
    state = fleet_run.state()
    assert (state["state"], state["ended_by"]) == ("stopped", "blocked")
    assert fleet_run.remote.show(f"ralph/{state['id']}:made") == b"work\n"


def test_a_remote_that_is_away_at_the_end_costs_nothing(fleet_run: FleetRun) -> None:
    """The worker waits for it, and only then ends with 0."""
    away, flag = fleet_run.directory / "away.git", fleet_run.directory / "go"
    fleet_run.begin(f"touch {flag}.ready; while ! test -e {flag}; do sleep 0.05; done; {COMMIT}")
    worker = fleet_run.work()
    eventually(lambda: flag.with_suffix(".ready").exists(), "the agent")
    fleet_run.remote.path.rename(away)
    flag.touch()
    printed = eventually(lambda: _events(worker.workspace, "mirror.failed"), "a failed push")
    assert printed
    away.rename(fleet_run.remote.path)
    status, text = worker.ended()
    assert (status, fleet_run.state()["state"]) == (0, "done"), text


def _events(workspace: Path, name: str) -> bool:
    logs = workspace.glob("project/.ralph/run/sessions/*/events.jsonl")
    return any(f'"{name}"' in log.read_text() for log in logs)


def test_a_signal_during_the_start_ends_it(fleet_run: FleetRun) -> None:
    """A worker that waits for its staggered start claims nothing, and asks to come back."""
    fleet_run.begin(COMMIT, size=2, parallel=2, stagger=1000.0)
    worker = fleet_run.work(1)
    eventually((worker.workspace / "project/.gitignore").exists, "the checkout")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended()[0] == 143
    assert fleet_run.state(1) == {}


def test_a_workspace_with_content_is_refused(fleet_run: FleetRun) -> None:
    """Nothing in it changes, and nothing runs."""
    fleet_run.begin(COMMIT)
    theirs = fleet_run.directory / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("content")
    status, printed = fleet_run.work(workspace="theirs").ended()
    assert (status, "is not empty" in printed) == (1, True), printed
    assert [path.name for path in theirs.iterdir()] == ["file"]
    assert fleet_run.state() == {}


def test_another_spec_by_the_name_of_the_run_is_not_run(fleet_run: FleetRun) -> None:
    """The engine has pinned the commit: a user of the remote cannot choose what a pod runs."""
    pinned = fleet_run.begin(COMMIT)
    fleet_run.repo.git("push", "-qf", "origin", "main:refs/ralph/fleet/r1/spec")
    status, printed = fleet_run.work().ended()
    assert (status, "another run by this name" in printed) == (1, True), printed
    fleet_run.repo.git("push", "-qf", "origin", f"{pinned}:refs/ralph/fleet/r1/spec")
    assert fleet_run.work().ended()[0] == 0


def test_a_forged_index_is_named_with_the_way_out(fleet_run: FleetRun) -> None:
    """Whoever may push can write anything there: the worker says so, and the printed command helps."""
    fleet_run.begin(COMMIT)
    ref = "refs/ralph/fleet/r1/index/0"
    forged = fleet_run.repo.git("hash-object", "-w", fleet_run.repo.path / "file.txt")
    fleet_run.repo.git("push", "-q", "origin", f"{forged}:{ref}")
    status, printed = fleet_run.work().ended()
    assert (status, f"{ref} on the remote cannot be read" in printed, "Traceback" in printed) == (
        1,
        True,
        False,
    )
    assert f"git push origin :{ref}" in printed
    fleet_run.repo.git("push", "-q", "origin", f":{ref}")
    assert fleet_run.work().ended()[0] == 0


def test_a_request_to_stop_is_obeyed_before_a_start(fleet_run: FleetRun) -> None:
    """The worker ends with 0, so that the engine does not bring the index back."""
    fleet_run.begin(HANG)
    worker = fleet_run.work()
    fleet_run.wait_until_mirrored("loose")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended()[0] == 143
    agent_id = fleet_run.state()["id"]
    fleet_run.repo.git("push", "-q", "origin", f"main:refs/ralph/fleet/r1/stop/{agent_id}")
    assert fleet_run.work().ended()[0] == 0
    assert fleet_run.state()["state"] == "stopped"


ELSEWHERE = """
git checkout -q -b side; echo s > side; git add side; git commit -qm side; git checkout -q -
for n in 1 2; do echo $n >> made; git stash -q; done"""


@pytest.mark.parametrize("end", ["done", "a signal"])
def test_other_branches_and_stashes_of_an_agent_reach_the_remote(fleet_run: FleetRun, end: str) -> None:
    """The workspace goes after the end of a worker, with each ref that only it has."""
    last = "" if end == "done" else f"touch {fleet_run.directory}/begun; exec sleep 1000"
    fleet_run.begin(f"{COMMIT}; {ELSEWHERE}; git rev-parse side stash@{{0}} stash@{{1}} >&2; {last}")
    worker = fleet_run.work()
    if end == "a signal":
        eventually((fleet_run.directory / "begun").exists, "the work")
        worker.process.send_signal(signal.SIGTERM)
    status, printed = worker.ended()
    assert status == (0 if end == "done" else 143), printed
    made = re.findall("^(?:agent: )?([0-9a-f]{40})$", printed, re.MULTILINE)
    there = fleet_run.remote.git("rev-list", "--all").split()
    assert (len(made), {*made} - {*there}) == (3, set()), printed


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"RALPH_FLEET_RUN": "R/1"}, "RALPH_FLEET_RUN is no run id"),
        ({"RALPH_FLEET_SPEC": "main"}, "RALPH_FLEET_SPEC is no object id"),
        ({"RALPH_FLEET_INDEX": "-1"}, "RALPH_FLEET_INDEX is no number"),
        ({"RALPH_FLEET_INDEX": "1"}, "of 1 sessions"),
        ({"RALPH_FLEET_REMOTE": ""}, "RALPH_FLEET_REMOTE is not set"),
    ],
)
def test_a_wrong_order_is_an_error(fleet_run: FleetRun, env: dict[str, str], message: str) -> None:
    """The message names the variable."""
    fleet_run.begin(COMMIT)
    status, printed = fleet_run.work(env=env).ended()
    assert (status, message in printed) == (1, True), printed


def test_the_credential_file_is_read_and_never_written(tmp_path: Path) -> None:
    """The helpers of the user are asked first; git's own store helper would write a mounted secret."""
    stored, users = tmp_path / "it's stored", tmp_path / "users"
    stored.write_text("https://ada:secret@git.example\n")
    users.write_text("https://ada:own@other.example\n")
    config = tmp_path / "gitconfig"
    config.write_text(f"[credential]\n\thelper = store --file={users}\n")
    environ = with_credential(os.environ | {"GIT_CONFIG_GLOBAL": str(config)}, stored)
    for host, password in (("git.example", "secret"), ("other.example", "own")):
        asked = f"protocol=https\nhost={host}\n\n".encode()
        filled = subprocess.run(
            ["git", "credential", "fill"], input=asked, env=environ, capture_output=True, check=True
        )
        assert f"password={password}\n" in filled.stdout.decode()
        subprocess.run(["git", "credential", "approve"], input=filled.stdout, env=environ, check=True)
    assert stored.read_text() == "https://ada:secret@git.example\n"

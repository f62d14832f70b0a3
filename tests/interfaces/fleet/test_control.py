"""``fleet ps``, ``logs``, ``stop``, ``resume`` and ``rm``: the refs and the Job are all that they read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.git import Git, git_environment
from ralph_wrap.git.remote import RemoteChange
from ralph_wrap.interfaces.fleet import remote as fleet_remote
from ralph_wrap.interfaces.fleet.listing import job_status
from tests.interfaces.fleet.runs import RUN
from tests.support.sessions import Result, command, start
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wait import CAP, eventually

if TYPE_CHECKING:
    from tests.interfaces.fleet.runs import FleetRun

TRUST = {"RALPH_TRUST": "1"}
COMMIT = "echo said; echo work >> made; git add made; git commit -qm one"
RUNNING: dict[str, Any] = {"spec": {}, "status": {}}


def fleet(run: FleetRun, *arguments: str, job: dict[str, Any] | None = None) -> Result:
    """Run a command of the group in the project, with a kubectl that answers with a Job."""
    run.repo.write(".ralph/fleet.yaml", "image: i\n")
    return command("fleet", *arguments, cwd=run.repo.path, env=TRUST | run.kubectl(job))


def rows(run: FleetRun, job: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return what ``fleet ps`` lists."""
    listed = fleet(run, "ps", RUN, "--json", job=job)
    assert listed.status == 0, listed.stderr
    found: list[dict[str, Any]] = json.loads(listed.stdout)["data"]
    return found


def test_a_run_is_listed_with_its_output(fleet_run: FleetRun) -> None:
    """From the refs; the output of each worker is there, although its pod has gone."""
    fleet_run.begin(COMMIT, size=2)
    assert rows(fleet_run) == []
    assert fleet_run.work(1).ended()[0] == 0
    [row] = rows(fleet_run)
    assert (row["number"], row["state"], row["ended_by"]) == (1, "done", "max-iterations")
    listed = fleet(fleet_run, "ps", "--all").stdout.decode()
    assert listed == f"{RUN}  1 claimed\n"
    assert "said" in fleet(fleet_run, "logs", RUN, "1").stdout.decode()
    absent = fleet(fleet_run, "logs", RUN, "0")
    assert (absent.status, "fleet logs -f" in absent.stderr) == (4, True), absent.stderr


def test_a_forged_end_is_not_believed(fleet_run: FleetRun) -> None:
    """An index is done once its Job says so; texts and costs from the remote stay harmless."""
    fleet_run.begin(COMMIT)
    assert fleet_run.work().ended()[0] == 0
    assert [row["state"] for row in rows(fleet_run, RUNNING)] == ["finishing"]
    job = {"spec": {}, "status": {"completedIndexes": "0"}}
    assert [row["state"] for row in rows(fleet_run, job)] == ["done"]
    claim = fleet_run.claim()
    ref = f"refs/ralph/claims/{claim['id']}"
    forged = json.dumps(claim | {"title": "\x1b]0;x\x07t", "node": "\x1b[2Jn", "cost_usd": -5.0})
    fleet_run.put(ref, forged)
    shown = fleet(fleet_run, "ps", RUN, job=job).stdout
    assert (b"\x1b" in shown, b"$" in shown) == (False, False), shown
    state = fleet_run.state()
    fleet_run.put(f"refs/ralph/fleet/{RUN}/index/0", json.dumps(state | {"id": "../../x"}))
    assert rows(fleet_run, job) == []


def test_a_stopped_run_goes_on(fleet_run: FleetRun) -> None:
    """Its Job is suspended and let go on: no other object changes."""
    fleet_run.begin(COMMIT)
    assert fleet(fleet_run, "stop", RUN).status == 0
    assert fleet(fleet_run, "resume", RUN, job={"spec": {"suspend": True}}).status == 0
    patches = [call["arguments"] for call in fleet_run.calls() if "patch" in call["arguments"]]
    assert [(words[2], json.loads(words[-1])["spec"]["suspend"]) for words in patches] == [
        (f"ralph-{RUN}", True),
        (f"ralph-{RUN}", False),
    ]


def test_a_stopped_session_goes_on(fleet_run: FleetRun) -> None:
    """The request is a ref; ``resume`` takes it back, and the next worker resumes the session."""
    fleet_run.begin(f"test -e made || {{ {COMMIT}; exit 7; }}", options={"max_failures": "1"})
    assert fleet_run.work().ended()[0] == 1
    agent_id = fleet_run.state()["id"]
    stopped = fleet(fleet_run, "stop", agent_id)
    assert (stopped.status, RUN in stopped.stdout.decode()) == (0, True), stopped.stderr
    assert fleet_run.work().ended()[0] == 0
    assert fleet_run.state()["state"] == "stopped"
    resumed = fleet(fleet_run, "resume", RUN, job=RUNNING)
    assert (resumed.status, "1 sessions that were stopped" in resumed.stdout.decode()) == (0, True), (
        resumed.stderr
    )
    assert fleet_run.state()["state"] == "claimed"
    assert fleet_run.work().ended()[0] == 0
    assert (fleet_run.state()["state"], fleet_run.state()["id"]) == ("done", agent_id)


def test_a_request_of_another_machine_is_taken_back(fleet_run: FleetRun) -> None:
    """Its object is on the remote alone: git names it only in the machine that has it."""
    fleet_run.begin(COMMIT)
    ref = f"refs/ralph/fleet/{RUN}/stop/0123abcd"
    request = fleet_run.directory / "request"
    request.write_text('{"version": 1, "nonce": "x"}')
    oid = fleet_run.remote.git("hash-object", "-w", str(request))
    fleet_run.remote.git("update-ref", ref, oid)
    resumed = fleet(fleet_run, "resume", RUN, job=RUNNING)
    assert (resumed.status, fleet_run.refs(ref)) == (0, {}), resumed.stderr


def test_a_job_is_created_again_from_what_its_user_wrote_down(fleet_run: FleetRun) -> None:
    """Not from the spec on the remote, which each of its users can replace."""
    fleet_run.repo.write(".ralph/fleet.yaml", "image: i\n")
    started = fleet(fleet_run, "run", "--count", "2", "--", "true")
    name = started.stdout.decode().strip()
    pinned = fleet_run.refs()[f"refs/ralph/fleet/{name}/spec"]
    fleet_run.repo.git("push", "-qf", "origin", f"main:refs/ralph/fleet/{name}/spec")
    again = fleet(fleet_run, "resume", name)
    assert again.status == 0, again.stderr
    jobs = [json.loads(call["stdin"]) for call in fleet_run.calls() if "create" in call["arguments"]]
    assert jobs[0] == jobs[1]
    assert pinned in json.dumps(jobs[1])
    fleet_run.begin("true")
    unknown = fleet(fleet_run, "resume", RUN)
    assert (unknown.status, "have not started run" in unknown.stderr) == (4, True), unknown.stderr


def test_a_pod_that_is_followed_drives_no_terminal(fleet_run: FleetRun) -> None:
    """Colours pass, and a title becomes visible text; Ctrl-C ends kubectl and the command."""
    fleet_run.repo.write(".ralph/fleet.yaml", "image: i\n")
    env = TRUST | fleet_run.kubectl()
    printed = r"\033]0;mine\007 \033[31mred\033[0m\n"
    (fleet_run.directory / "programs/kubectl").write_text(f"#!/bin/sh\nprintf '{printed}'\nexec sleep 1000\n")
    words = (sys.executable, "-m", "ralph_wrap", "fleet", "logs", "-f", RUN, "0")
    with Terminal(*words, cwd=fleet_run.repo.path, env=env) as terminal:
        eventually(lambda: b"red" in terminal.read(), "the output of the pod")
        terminal.type(CTRL_C)
        terminal.finish()
    assert (b"\x1b]0" in terminal.screen, b"\x1b[31mred" in terminal.screen) == (False, True), terminal.screen


def test_a_run_of_many_sessions_is_removed(fleet_run: FleetRun) -> None:
    """No command line is too long: a small stack makes the limit a quarter. Another run stays."""
    fleet_run.begin(COMMIT)
    prefix, count = f"refs/ralph/fleet/{RUN}", 2_500
    kinds = ("index", "output")
    rows = [f"create {prefix}/{kind}/{number} {fleet_run.spec}" for kind in kinds for number in range(count)]
    rows.append(f"create {prefix}2/spec {fleet_run.spec}")
    words = ("git", "-C", str(fleet_run.remote.path), "update-ref", "--stdin")
    subprocess.run(words, input="\n".join([*rows, ""]).encode(), check=True)
    fleet_run.remote.git("pack-refs", "--all")
    fleet_run.repo.write(".ralph/fleet.yaml", "image: i\n")
    env = TRUST | fleet_run.kubectl()
    small = ("sh", "-c", 'ulimit -s 2048; exec "$@"', "sh")
    with start("fleet", "rm", RUN, cwd=fleet_run.repo.path, env=env, under=small) as process:
        stdout, stderr = process.communicate(timeout=3 * CAP)
    assert (process.returncode, f"{2 * count + 1} refs" in stdout.decode()) == (0, True), stderr
    assert {*fleet_run.refs("refs/ralph/")} == {f"{prefix}2/spec"}


def test_a_change_of_many_refs_goes_in_parts(fleet_run: FleetRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a part or none; the parts before one that another program has moved stay done."""
    fleet_run.begin(COMMIT)
    monkeypatch.setattr(fleet_remote, "MOST_REFS", 2)
    remote = fleet_remote.FleetRemote(Git(fleet_run.repo.path, git_environment(os.environ)), "origin")
    refs = [f"refs/ralph/fleet/{RUN}/index/{number}" for number in range(5)]
    assert remote.change_many([RemoteChange(ref, None, fleet_run.spec) for ref in refs])
    assert {*refs} <= {*fleet_run.refs()}
    fleet_run.put(refs[3], "moved")
    assert not remote.change_many([RemoteChange(ref, fleet_run.spec, None) for ref in refs])
    assert {*fleet_run.refs(f"refs/ralph/fleet/{RUN}/index/")} == {*refs[2:]}


def test_a_removed_run_leaves_its_work(fleet_run: FleetRun) -> None:
    """The Job goes before the refs of the run; branches and claims stay."""
    fleet_run.begin(COMMIT)
    assert fleet_run.work().ended()[0] == 0
    agent_id = fleet_run.state()["id"]
    removed = fleet(fleet_run, "rm", RUN)
    assert removed.status == 0, removed.stderr
    [delete] = [call["arguments"] for call in fleet_run.calls() if "delete" in call["arguments"]]
    assert delete[1:3] == ["job", f"ralph-{RUN}"]
    assert {*fleet_run.refs("refs/ralph/")} == {f"refs/ralph/claims/{agent_id}"}
    assert f"refs/heads/ralph/{agent_id}" in fleet_run.refs()


@pytest.mark.parametrize(
    ("job", "state", "completed"),
    [
        (None, "gone", None),
        ({"spec": {"suspend": True}}, "suspended", set()),
        (
            {"status": {"conditions": [{"type": "Complete", "status": "True"}], "completedIndexes": "0,2-4"}},
            "complete",
            {0, 2, 3, 4},
        ),
        (
            {
                "status": {
                    "conditions": [{"type": "Failed", "status": "True"}],
                    "completedIndexes": "9-9999999",
                }
            },
            "failed",
            None,
        ),
        (
            {"status": {"conditions": [{"type": "Failed", "status": "False"}], "completedIndexes": "x,-1"}},
            "running",
            set(),
        ),
    ],
)
def test_the_state_of_a_job(job: dict[str, Any] | None, state: str, completed: set[int] | None) -> None:
    """Any content is read; a wide range stays small."""
    status = job_status(job)
    assert status.state == state
    if completed is not None:
        assert {*(status.completed or ())} == completed
    assert len(status.completed or ()) <= 100_001


@pytest.mark.parametrize("arguments", [("stop", "R/1"), ("rm", "../x"), ("ps", "r--")])
def test_a_name_that_is_no_run_is_refused(fleet_run: FleetRun, arguments: tuple[str, ...]) -> None:
    """It would be part of a ref and of a name in Kubernetes."""
    assert fleet(fleet_run, *arguments).status == 4
    assert fleet_run.calls() == []

"""A session whose report is long, or cannot be read: nobody takes it for one that has ended well or badly."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.interfaces.cli.resuming import first, id_of, newest, resume
from tests.support.orphans import orphan, sweep
from tests.support.sessions import Session, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

MANY = """import os, pathlib, time
for number in range(9000):
    open(f"a-rather-long-name-of-a-generated-file-{'x' * 80}-{number}", "w").close()
pathlib.Path(os.environ["RALPH_PROJECT"], "prompt-made").touch()
time.sleep(600)
"""


def test_a_session_with_very_many_new_files_goes_on(project: Repo) -> None:
    """Its report, its events and its record are read again, and ``ps`` and ``resume --all`` know it."""
    with Session(project.path, "-n", "2", "--", "python3", "-c", MANY) as session:
        eventually((project.path / "prompt-made").exists, "9,000 files")
        session.send(signal.SIGTERM)
        ended = session.finish()
    assert (ended.report["ended_by"], ended.report["cut"]) == ("signal", {"saved_paths": 9000})
    (saved,) = [event for event in ended.events if event["event"] == "work.saved"]
    assert (len(saved["paths"]), saved["cut"]) == (1000, {"paths": 9000})
    assert ended.directory is not None
    assert max(path.stat().st_size for path in ended.directory.glob("*.json")) < 1 << 20
    assert len((ended.directory / "saved_paths.jsonl").read_bytes().splitlines()) == 9000
    (entry,) = json.loads(command("ps", "--all", "--json", cwd=project.path).stdout)["data"]
    assert (entry["exit_status"], entry["saved"]) == (143, f"ralph/{id_of(ended)}-wip")
    resumed = resume(project, "--all", "--max-time", "1s")
    assert (resumed.status, resumed.stdout.decode().split()) == (0, [id_of(ended)])
    eventually(lambda: newest(project, id_of(ended)) != ended.report, "the end of the resumed session")


def _damage(report: Path) -> None:
    report.write_bytes(report.read_bytes()[:-20])


@pytest.mark.parametrize("problem", ["cannot be read", "it has left no report"])
def test_resume_all_names_a_session_whose_end_is_unknown(project: Repo, problem: str) -> None:
    """The others go on; the status tells that not all did, and the hint goes on with it."""
    other, damaged = first(project), first(project)
    assert damaged.directory is not None
    report = damaged.directory / "report.json"
    if problem == "cannot be read":
        _damage(report)
    else:
        report.unlink()
    resumed = resume(project, "--all")
    assert (resumed.status, resumed.stdout.decode().split()) == (1, [id_of(other)])
    agent_id = damaged.directory.name[-4:]
    (error,) = [event for event in resumed.warnings if event["event"] == "session.not_resumed"]
    assert problem in error["message"]
    assert error["hint"].splitlines()[-1] == f"to go on with it: ralph-wrap resume {agent_id}"
    assert resume(project, agent_id).status == 0


def test_resume_all_names_a_record_that_cannot_be_read(project: Repo) -> None:
    """It may be the record of an interrupted session."""
    damaged = first(project)
    assert damaged.directory is not None
    (damaged.directory / "record.json").write_text("{}")
    resumed = resume(project, "--all")
    assert resumed.status == 1
    (error,) = resumed.warnings
    assert error["message"] == (
        f"how session {damaged.directory.name[-4:]} ended is not known, so it does not go on:"
        " its record cannot be read: not a record of this version: 'version'"
    )


def test_ps_names_a_report_that_cannot_be_read(project: Repo) -> None:
    """Beside the title of its session."""
    damaged = first(project, "--name", "Login")
    assert damaged.directory is not None
    _damage(damaged.directory / "report.json")
    shown = command("ps", "--all", cwd=project.path).stdout.decode()
    assert "NOTE" in shown
    assert "its report" in shown
    (entry,) = json.loads(command("ps", "--all", "--json", cwd=project.path).stdout)["data"]
    assert (entry["title"], entry["ended_by"]) == ("Login", None)
    assert entry["note"].startswith("its report ")


def test_a_sweep_leaves_a_report_that_cannot_be_read(project: Repo) -> None:
    """The dead session has written it; only a person knows what it says. Its work is saved all the same."""
    left = orphan(project)
    report = left.directory / "report.json"
    report.write_bytes(b'{"version": 1, "ended_by": "prom')
    swept = sweep(project)
    assert swept.status == 0, swept.stderr
    assert report.read_bytes() == b'{"version": 1, "ended_by": "prom'
    assert project.show(f"{left.wip}:new")
    assert "report.unreadable" in [event["event"] for event in swept.warnings]


def test_resume_names_a_start_that_cannot_be_read(project: Repo) -> None:
    """Without it, the options that the user had typed would be left out without a word."""
    damaged = first(project, "--sparse", "sub")
    assert damaged.directory is not None
    (damaged.directory / "start.json").write_text("{")
    resumed = resume(project, id_of(damaged))
    assert resumed.status == 5
    assert f"{damaged.directory / 'start.json'} is damaged" in resumed.stderr
    assert newest(project, id_of(damaged)) == damaged.report


@pytest.mark.parametrize(("agent", "named"), [("codex", "codex"), ("sh -c /bin/claude", "NAME")])
def test_the_hint_of_such_a_start_names_only_an_agent(project: Repo, agent: str, named: str) -> None:
    """A session that was begun with a command of the user has none that ``--agent`` knows."""
    damaged = first(project)
    assert damaged.directory is not None
    (damaged.directory / "start.json").write_text("{")
    record = damaged.directory / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"agent": agent}))
    error = resume(project, id_of(damaged)).warnings[-1]
    assert error["hint"].endswith(f": ralph-wrap resume {id_of(damaged)} --agent {named}")

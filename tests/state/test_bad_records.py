"""Records that are damaged, or that a newer version wrote."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.directory_listing import listing
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")


GOOD: dict[str, Any] = {
    "version": 1,
    "id": "beef",
    "session": "20260102T030405Z-beef",
    "pid": 1,
    "start_time": 1.5,
    "boot_id": "elsewhere",
    "pid_namespace": "",
    "host": "elsewhere",
    "branch": "ralph/beef",
    "base": None,
    "workspace": "/nowhere",
    "agent": "true",
    "iteration": 3,
    "state": "running",
}


def _without(key: str) -> bytes:
    return json.dumps({name: value for name, value in GOOD.items() if name != key}).encode()


def _with(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


DAMAGED = {
    "empty": b"",
    "no JSON": b"not a record\n",
    "half": json.dumps(GOOD).encode()[:50],
    "NUL": bytes(4096),
    "not UTF-8": b'{"version": 1, "id": "\xff"}',
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "deep": b"[" * 100_000,
    "newer": _with(version=2),
    "no version": _without("version"),
    "no session": _without("session"),
    "no boot id": _without("boot_id"),
    "wrong type": _with(pid="1"),
    "wrong branch": _with(branch=["x"]),
    "wrong id": _with(id="../../etc"),
    "wrong session": _with(session="../x"),
    "impossible time": _with(session="20269999T999999Z-beef"),
    "another id": _with(id="abcd", session="20260102T030405Z-abcd"),
}


@pytest.fixture
def agents(repo: Repo) -> Path:
    """Return where records are, with nothing in it but a free lock."""
    directory = repo.path / ".ralph" / "run" / "agents"
    directory.mkdir(parents=True)
    (directory / "beef.lock").touch()
    return directory


def _listed(repo: Repo, *options: str) -> list[dict[str, Any]]:
    result = command("ps", "--json", *options, cwd=repo.path)
    assert (result.status, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert answer["success"]
    data: list[dict[str, Any]] = answer["data"]
    return data


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_record_is_unknown_and_left_alone(repo: Repo, agents: Path, content: bytes) -> None:
    """Neither ps nor a session beside it crashes, changes it, or takes its id."""
    (agents / "beef.json").write_bytes(content)
    before = listing(agents)
    (entry,) = _listed(repo)
    assert (entry["id"], entry["verdict"], entry["session"]) == ("beef", "unknown", None)
    assert entry["note"]
    result = run(repo.path, "-n", "1", "--", "true")
    assert (result.status, result.report["id"] != "beef") == (0, True), result.stderr
    assert listing(agents) == before


def test_an_unknown_session_is_a_row_that_says_why(repo: Repo, agents: Path) -> None:
    """Also where a person reads it."""
    (agents / "beef.json").write_bytes(DAMAGED["newer"])
    header, row = command("ps", cwd=repo.path).stdout.decode().splitlines()
    assert " ".join(header.split()) == "TITLE ID STATE AGENT ITERATION AGE BRANCH AHEAD WORKSPACE"
    assert row.split()[-8:] == ["beef", "unreadable", *"------"]
    assert row.startswith("not a record of this version: version 2  ")


def test_an_undamaged_record_of_another_machine_is_foreign(repo: Repo, agents: Path) -> None:
    """Negative control: the same record, whole; keys that this version does not know do not matter."""
    (agents / "beef.json").write_bytes(_with(invented_later={"x": 1}))
    (entry,) = _listed(repo)
    assert (entry["id"], entry["verdict"], entry["iteration"]) == ("beef", "foreign", 3)


@pytest.mark.parametrize("kind", ["directory", "fifo", "symlink", "dangling"])
def test_a_record_that_is_no_file_is_unknown(repo: Repo, agents: Path, tmp_path: Path, kind: str) -> None:
    """Nothing hangs, nothing is followed."""
    path = agents / "beef.json"
    good = tmp_path / "good"
    good.write_bytes(_with())
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(good if kind == "symlink" else tmp_path / "absent")
    (entry,) = _listed(repo)
    assert (entry["id"], entry["verdict"]) == ("beef", "unknown")
    assert run(repo.path, "-n", "1", "--", "true").status == 0
    assert os.path.lexists(path)


def test_a_damaged_record_of_a_finished_session_is_unknown(repo: Repo, agents: Path) -> None:
    """The others are listed all the same."""
    for _ in range(2):
        run(repo.path, "-n", "1", "--", "true")
    records = sorted((agents.parent / "sessions").glob("*/record.json"))
    records[0].write_bytes(b"{")
    verdicts = sorted(entry["verdict"] for entry in _listed(repo, "--all"))
    assert verdicts == ["finished", "unknown"]
    assert _listed(repo) == []

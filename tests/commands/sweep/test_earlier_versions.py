"""Sessions of earlier versions: their records, as these versions have written them, are read."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.orphans import Orphan, orphan, sweep
from tests.support.sessions import command

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.usefixtures("ended")

_OF_THE_SESSION = ("id", "session", "host", "branch", "base", "workspace", "agent")
_POLICY = {"keep_worktree": False, "on_dirty": "wip", "drop_empty": False, "background": False}
_SINCE_THE_22ND = {"marked": True, "file_mode": True, "symlinks": True}
_SINCE_THE_24TH = {"resumes": None, "restored": None, "worktree": None, "branch_created": True, "title": ""}


class Earlier(NamedTuple):
    """What a version of 2026 has written.

    Attributes:
        fields: of a record, besides those that describe the session.
        start_time: of its process, in the unit of the version.
        registration: the files in a registration that only our program writes.
        directory: the files in the directory of a session that has no report yet.

    """

    fields: dict[str, Any]
    start_time: float
    registration: frozenset[str]
    directory: frozenset[str]


# Each was read from the disk after a kill of the version: commits b0e14ab, ffb6e5d and 9420309.
VERSIONS = {
    "21 November": Earlier({}, 1795660302.73, frozenset(), frozenset({"events.jsonl", "output.log"})),
    "23 November": Earlier(
        {**_POLICY, **_SINCE_THE_22ND},
        39298.64,
        frozenset({"ralph-wrap-session"}),
        frozenset({"events.jsonl", "output.log", "agent.lock"}),
    ),
    "25 November": Earlier(
        {**_POLICY, **_SINCE_THE_22ND, **_SINCE_THE_24TH},
        39303.13,
        frozenset({"ralph-wrap-session", "ralph-wrap-anchor"}),
        frozenset({"events.jsonl", "output.log", "agent.lock", "start.json"}),
    ),
}


def _become(left: Orphan, version: Earlier) -> None:
    """Have an orphan be as an earlier version has left it, before the machine was started anew."""
    now = json.loads(left.record.read_text())
    record = {name: now[name] for name in _OF_THE_SESSION} | version.fields
    record |= {
        "version": 1,
        "pid": 31329,
        "start_time": version.start_time,
        "iteration": 1,
        "state": "running",
    }
    record |= {"boot_id": "e956817a-84e9-45b1-af05-3b4eee584aae", "pid_namespace": "pid:[4026531836]"}
    if "marked" in version.fields:
        record["lock_inode"] = now["lock_inode"]
    left.record.write_text(json.dumps(record, indent=1))
    for path in left.registration.glob("ralph-wrap-*"):
        if path.name not in version.registration:
            path.unlink()
    for path in left.directory.iterdir():
        if path.name not in version.directory:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert {path.name for path in left.registration.glob("ralph-wrap-*")} == version.registration


@pytest.mark.parametrize("name", VERSIONS)
def test_a_session_of_an_earlier_version_is_finished(repo: Repo, name: str) -> None:
    """Its work is saved, its worktree and its record are removed, and it has a report."""
    left = orphan(repo, work="echo one > one; git add one; git commit -qm one; echo new > new")
    _become(left, VERSIONS[name])
    swept = sweep(repo)
    assert swept.status == 0, swept.stderr
    assert (repo.show(f"{left.branch}:one"), repo.show(f"{left.wip}:new")) == (b"one\n", b"new\n")
    assert (repo.worktrees(), left.worktree.exists(), left.record.exists()) == ([], False, False)
    assert (left.report["ended_by"], left.report["saved"]) == ("killed", left.wip)
    assert command("logs", left.id, cwd=repo.path).status == 0


def test_a_record_that_lacks_a_field_of_the_first_version_is_left(repo: Repo) -> None:
    """The counterpart: what no version has written is read as no record."""
    left = orphan(repo)
    _become(left, VERSIONS["21 November"])
    record = json.loads(left.record.read_text())
    del record["boot_id"]
    left.record.write_text(json.dumps(record))
    assert "it lacks boot_id" in sweep(repo).stdout.decode()
    assert left.is_there()

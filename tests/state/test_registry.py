"""Agent records: one id each, kept as written, and damaged files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap.errors import NoIdLeftError
from ralph_wrap.state import ids
from ralph_wrap.state.claim import SessionClaim, claim_id
from ralph_wrap.state.record import read_record
from ralph_wrap.state.registry import Registry, SessionRecord, UnreadableRecord
from ralph_wrap.system.liveness import ProcessIdentity

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
YEAR = 365 * 24 * 3600
ME = ProcessIdentity(pid=12, start_time=1.5, boot_id="boot", pid_namespace="pid:[1]", host="box")
EVERY_ID = {f"{number:04x}" for number in range(1 << 16)}
SESSION = "20260102T030405Z-a3f2"

RECORD: dict[str, Any] = {
    "version": 1,
    "id": "a3f2",
    "session": SESSION,
    "pid": 12,
    "start_time": 1.5,
    "boot_id": "boot",
    "pid_namespace": "pid:[1]",
    "host": "box",
    "branch": "ralph/a3f2",
    "base": "1234abcd",
    "workspace": "/project/.ralph/worktrees/x",
    "agent": "claude",
    "iteration": 3,
    "state": "running",
    "keep_worktree": False,
    "on_dirty": "wip",
    "drop_empty": False,
    "background": False,
    "lock_inode": 0,
    "file_mode": True,
    "symlinks": True,
    "resumes": None,
    "restored": None,
    "worktree": None,
    "branch_created": True,
    "worktree_inode": 0,
    "worktree_born": 0,
    "task": "",
    "agents_unseen": False,
    "title": "Login page",
    "port": 0,
    "agent_now": "",
}

CLAIM = """
import os, sys, time
from pathlib import Path
from ralph_wrap.system.liveness import myself
from ralph_wrap.state.claim import claim_id
from ralph_wrap.state.registry import Registry
taken = {f"{number:04x}" for number in range(64, 1 << 16)}
for _ in range(32):
    if not os.fork():
        break
else:
    sys.exit(any(os.wait()[1] for _ in range(32)))
os.write(1, b"ready\\n")
sys.stdin.read()
registry = Registry(Path(sys.argv[1]))
claim = claim_id(registry, myself(), lambda _="": taken, time.time(), lambda record: record)
os.write(1, f"{claim.record.id}\\n".encode())
"""


@pytest.fixture
def home(tmp_path: Path) -> Registry:
    """Return a registry that is ready."""
    ready = Registry(tmp_path / "run")
    ready.prepare()
    return ready


def _claim(home: Registry, *free: str, **options: Any) -> SessionClaim:
    """Claim one of some ids."""
    taken = EVERY_ID - set(free)
    return claim_id(home, ME, lambda _="": taken, NOW, lambda new: new._replace(agent="claude"), **options)


def _all(home: Registry) -> list[str]:
    """Return the path of every file and directory of a registry."""
    return sorted(str(path.relative_to(home.directory)) for path in home.directory.rglob("*"))


EMPTY = [".gitignore", "agents", "containers", "sessions", "trash"]


# Ids


def test_32_processes_at_once_get_32_ids(home: Registry) -> None:
    """With 64 ids to choose from, so that they do meet."""
    argv = (sys.executable, "-c", CLAIM, home.directory)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        assert [crowd.stdout.readline() for _ in range(32)] == ["ready\n"] * 32
        crowd.stdin.close()
        ids = crowd.stdout.read().split()
    assert crowd.returncode == 0
    assert len(set(ids)) == 32
    assert set(ids) <= {f"{number:04x}" for number in range(64)}
    assert sorted(ids) == [record.id for record in home.unfinished()]


def test_the_last_ids_are_found(home: Registry) -> None:
    """With all but three taken by branches; then there is none, and the error says what to do."""
    found = {_claim(home, "0000", "a3f2", "ffff").record.id for _ in range(3)}
    assert found == {"0000", "a3f2", "ffff"}
    with pytest.raises(NoIdLeftError) as caught:
        _claim(home, "0000", "a3f2", "ffff")
    assert (caught.value.message, caught.value.hint) == (
        "no agent id is left: every one of 65,536 belongs to a live agent or a branch ralph/*",
        "delete branches that are merged: git branch --list 'ralph/*' --merged",
    )


@pytest.mark.parametrize("name", ["a3f2.json", "a3f2.lock"])
def test_an_id_with_a_file_is_taken(home: Registry, name: str) -> None:
    """Also of a session that died: its record is still needed, and stays as it is."""
    (home.agents / name).write_text("theirs")
    with pytest.raises(NoIdLeftError):
        _claim(home, "a3f2")
    assert _all(home) == sorted([*EMPTY, f"agents/{name}"])
    assert (home.agents / name).read_text() == "theirs"


def test_an_id_whose_lock_is_a_directory_is_taken(home: Registry) -> None:
    """The directory may have a purpose; there are other ids."""
    (home.agents / "a3f2.lock").mkdir()
    assert _claim(home, "a3f2", "09be").record.id == "09be"
    with pytest.raises(NoIdLeftError):
        _claim(home, "a3f2")
    assert _all(home)[:3] == [".gitignore", "agents", "agents/09be.json"]


def test_an_id_whose_session_is_there_already_is_not_given_twice(home: Registry) -> None:
    """Its log and report are kept; nothing is left of the try."""
    _claim(home, "a3f2").release()
    before = _all(home)
    with pytest.raises(NoIdLeftError):
        _claim(home, "a3f2")
    assert _all(home) == before


# Life of a record


def test_a_claim_is_on_disk_and_locked(home: Registry) -> None:
    """From the first moment, with a directory for what outlives it."""
    claim = _claim(home, "a3f2")
    assert home.unfinished() == [claim.record]
    assert home.is_locked("a3f2")
    assert claim.record == SessionRecord(
        id="a3f2",
        session=SESSION,
        pid=12,
        start_time=1.5,
        boot_id="boot",
        pid_namespace="pid:[1]",
        host="box",
        agent="claude",
        lock_inode=(home.agents / "a3f2.lock").stat().st_ino,
    )
    assert claim.directory == home.sessions / SESSION
    assert claim.directory.is_dir()


def test_a_change_is_written(home: Registry) -> None:
    """The other fields stay."""
    claim = _claim(home, "a3f2")
    before = claim.record
    claim.update(iteration=7, branch="topic")
    assert home.unfinished() == [claim.record] == [before._replace(iteration=7, branch="topic")]


def test_a_change_is_a_new_file(home: Registry) -> None:
    """Who reads meanwhile has the old record, whole."""
    claim = _claim(home, "a3f2")
    path = home.record_path("a3f2")
    before = path.read_bytes()
    with path.open("rb") as reader:
        claim.update(state="running", iteration=1)
        assert reader.read() == before
    assert home.unfinished() == [claim.record]


def test_a_released_record_is_the_sessions(home: Registry) -> None:
    """It moves there as finished; lock and id are free."""
    claim = _claim(home, "a3f2")
    claim.release()
    assert _all(home) == sorted([*EMPTY, f"sessions/{SESSION}", f"sessions/{SESSION}/record.json"])
    assert home.unfinished() == []
    assert home.finished() == [claim.record]
    assert claim.record.state == "finished"
    later = claim_id(home, ME, lambda _="": EVERY_ID - {"a3f2"}, NOW + YEAR, lambda new: new)
    assert later.record.session == "20270102T030405Z-a3f2"


def test_a_record_that_cannot_be_moved_frees_its_lock(home: Registry) -> None:
    """A later sweep sees that its owner is gone; the record stays for that."""
    claim = _claim(home, "a3f2")
    claim.directory.rmdir()
    with pytest.raises(FileNotFoundError):
        claim.release()
    assert not home.is_locked("a3f2")
    assert _all(home) == sorted([*EMPTY, "agents/a3f2.json", "agents/a3f2.lock"])


@pytest.mark.parametrize("kind", ["gone", "directory"])
def test_a_record_without_its_lock_proves_nothing(home: Registry, kind: str) -> None:
    """Another process has removed or replaced it, perhaps while its owner lives."""
    _claim(home, "a3f2")
    (home.agents / "a3f2.lock").unlink()
    if kind == "directory":
        (home.agents / "a3f2.lock").mkdir()
    with pytest.raises(FileNotFoundError):
        home.is_locked("a3f2")
    assert home.has("a3f2")


def test_a_registry_hides_itself_from_git(home: Registry) -> None:
    """Its own rule ignores everything in it, and a rule that is there is left alone."""
    assert (home.directory / ".gitignore").read_text() == "*\n"
    (home.directory / ".gitignore").write_text("theirs\n")
    home.prepare()
    assert (home.directory / ".gitignore").read_text() == "theirs\n"


def test_without_a_registry_there_are_no_records(tmp_path: Path) -> None:
    """Asking makes none."""
    nothing = Registry(tmp_path / "absent")
    assert (nothing.unfinished(), nothing.finished(), nothing.has("a3f2")) == ([], [], False)
    assert not nothing.directory.exists()


# Reading


def _read(home: Registry, content: dict[str, Any] | bytes) -> SessionRecord | UnreadableRecord:
    """Write a record and read it back; the file must stay as it is."""
    path = home.agents / "a3f2.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    found = read_record(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    return found


def test_a_record_is_read_as_it_was_written(home: Registry) -> None:
    """Keys that this version does not know are kept, and written again."""
    stored = {**RECORD, "leader": {"of": ["a", 1]}, "extra": "x"}
    found = _read(home, stored)
    assert isinstance(found, SessionRecord)
    assert found.extra == {"leader": {"of": ["a", 1]}, "extra": "x"}
    assert json.loads(found.to_json()) == stored
    assert ids.started(found.session).timestamp() == NOW


def test_a_record_without_a_title_is_read(home: Registry) -> None:
    """A field that has a default may be missing."""
    found = _read(home, {key: value for key, value in RECORD.items() if key != "title"})
    assert isinstance(found, SessionRecord)
    assert found.title == ""


def test_names_of_files_survive(home: Registry) -> None:
    """Also those that are no text."""
    found = _read(home, {**RECORD, "workspace": "/x/\udcff\n\u2028"})
    assert isinstance(found, SessionRecord)
    assert found.workspace == "/x/\udcff\n\u2028"


def _without(*keys: str, **changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**RECORD, **changes}.items() if key not in keys}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (_without(version=2), "version 2"),
        (_without(version="1"), "version 1"),
        (_without(version=None), "version None"),
        (_without("version"), "'version'"),
        (_without("pid"), "it lacks pid"),
        (b"", "Expecting value"),
        (b"garbage", "Expecting value"),
        (json.dumps(RECORD).encode().partition(b"f2")[0], "Unterminated string"),
        (b"\xff\xfe\x00", "codec can't decode"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"null", "no JSON object"),
        (b'"text"', "no JSON object"),
        (b"[1]", "no JSON object"),
        *[
            (_without(**{key: value}), f"{key}: Expected `")
            for key, value in [
                *[("pid", "12"), ("pid", 1.5), ("start_time", "1"), ("iteration", None), ("boot_id", None)],
                *[("host", 1), ("agent", []), ("state", {}), ("branch", 1), ("base", []), ("workspace", {})],
                *[("id", 1), ("session", None), ("pid_namespace", 0)],
            ]
        ],
        (_without(branch="x\0y"), "a field that no file or process could be named by"),
        (_without(workspace="\ud800"), "surrogates not allowed"),
        (_without(id="A3F2"), "an id of the wrong form"),
        (_without(id="../x"), "an id of the wrong form"),
        (_without(session="../../etc"), "an id of the wrong form"),
        (_without(session=f"{SESSION}/.."), "an id of the wrong form"),
        (_without(id="09be"), "an id that is not its own"),
        (_without(session="20260102T030405Z-09be"), "an id that is not its own"),
        (_without(session="20261302T030405Z-a3f2"), "month must be in 1..12"),
    ],
)
def test_a_file_that_is_no_record_is_unreadable(
    home: Registry, content: dict[str, Any] | bytes, reason: str
) -> None:
    """Garbage, half a file, a newer version, wrong types, and names that would lead somewhere else."""
    found = _read(home, content)
    assert isinstance(found, UnreadableRecord)
    assert found.id == "a3f2"
    assert found.reason.startswith("not a record of this version: ")
    assert reason in found.reason


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("symlink", "Too many levels of symbolic links"),
        ("directory", "not a regular file"),
        ("FIFO", "not a regular file"),
        ("gone", "No such file or directory"),
    ],
)
def test_a_record_that_is_no_file_is_unreadable(home: Registry, kind: str, reason: str) -> None:
    """Reading does not hang, follow or remove it."""
    path = home.agents / "a3f2.json"
    if kind == "symlink":
        (home.directory / "real").write_text(json.dumps(RECORD))
        path.symlink_to(home.directory / "real")
    elif kind == "directory":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    before = _all(home)
    assert read_record(path) == UnreadableRecord("a3f2", reason, is_gone=kind == "gone")
    assert _all(home) == before


def test_a_finished_record_is_known_by_its_directory(home: Registry) -> None:
    """Where the file itself is called the same everywhere."""
    (home.sessions / SESSION).mkdir()
    (home.sessions / SESSION / "record.json").write_text("garbage")
    assert [found.id for found in home.finished()] == ["a3f2"]


def test_one_bad_record_hides_no_other(home: Registry) -> None:
    """The list is in order of the ids."""
    claim = _claim(home, "a3f2")
    (home.agents / "09be.json").write_text("garbage")
    (home.agents / "ffff.json").mkdir()
    assert [found.id for found in home.unfinished()] == ["09be", "a3f2", "ffff"]
    assert home.unfinished()[1] == claim.record


def test_a_record_that_another_process_finishes_is_not_unreadable(tmp_path: Path) -> None:
    """It is listed, or it has gone; its directory was read before that."""
    home, hidden = Registry(tmp_path / "run"), tmp_path / "hidden"
    home.prepare()
    record = home.record_path("a3f2")
    record.write_text(json.dumps(RECORD))
    is_over = threading.Event()

    def finish_again_and_again() -> None:
        while not is_over.is_set():
            record.rename(hidden)
            hidden.rename(record)

    thread = threading.Thread(target=finish_again_and_again)
    thread.start()
    try:
        found = [each for _ in range(5000) for each in home.unfinished()]
    finally:
        is_over.set()
        thread.join()
    assert 0 < len(found) < 5000
    assert [each for each in found if isinstance(each, UnreadableRecord)] == []

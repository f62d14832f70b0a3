"""What sessions there are, and the verdict on each; ``ralph-wrap ps``."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.state import project
from ralph_wrap.state.inventory import Verdict, classify
from ralph_wrap.state.registry import Registry, SessionClaim, SessionRecord
from ralph_wrap.state.report import SessionReport
from ralph_wrap.system import liveness, process_table
from ralph_wrap.system.liveness import ProcessIdentity, myself
from tests.support.listing import listing
from tests.support.processes import end_all
from tests.support.sessions import PROGRAM, Session, command
from tests.support.shim import shim_git
from tests.support.terminal import Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.repo import Repo

AGES = {"2d": timedelta(days=2, hours=1), "3h": timedelta(hours=3, minutes=30), "5m": timedelta(seconds=330)}
ELSEWHERE = ProcessIdentity(7, 1.0, "another boot", "pid:[1]", "another host")
HEADER = "ID  VERDICT  AGENT  ITERATION  AGE  CPU  MEM  BRANCH  AHEAD  WORKSPACE\n"
HEADER_OF_ALL = HEADER.replace("WORKSPACE", "ENDED BY  STATUS  SAVED  WORKSPACE  KEPT")
NOT_JSON = "not a record of this version: Expecting value: line 1 column 1 (char 0)"


# Verdicts


def _verdict(state: str, *, locked: bool, same_boot: bool, same_host: bool) -> Verdict:
    """Say by itself what the contract says of dead, foreign and finished."""
    if locked:
        return Verdict.LIVE
    if state == "finished":
        return Verdict.FINISHED
    return Verdict.ORPHAN if same_boot or same_host else Verdict.FOREIGN


@pytest.mark.parametrize(
    ("state", "locked", "same_boot", "same_host"),
    list(product(("starting", "running", "ending", "finished"), *[(True, False)] * 3)),
)
def test_every_record_has_its_verdict(state: str, locked: bool, same_boot: bool, same_host: bool) -> None:
    """By its lock, then by whether it is finished, then by where its owner ran."""
    record = SessionRecord("a3f2", "s", 1, 1.0, "boot", "pid:[1]", "box", state=state)
    boot_id, host = "boot" if same_boot else "later", "box" if same_host else "bus"
    assert classify(record, locked=locked, running=False, boot_id=boot_id, host=host) is _verdict(
        state, locked=locked, same_boot=same_boot, same_host=same_host
    )


@pytest.fixture
def zombie() -> Iterator[ProcessIdentity]:
    """Yield a process that has ended, and that nobody has waited for."""
    with subprocess.Popen(("sleep", "60")) as process:
        started = process_table.start_time(process.pid)
        assert started is not None
        process.kill()
        eventually(lambda: process_table.start_time(process.pid) is None, "its end")
        yield myself()._replace(pid=process.pid, start_time=started)


OTHER_CONTAINER = {"pid_namespace": "pid:[1]", "host": "0f1e2d3c4b5a"}
OTHER_MACHINE = {**OTHER_CONTAINER, "boot_id": "that-kernel"}
CASES: dict[str, tuple[bool, dict[str, Any], Verdict]] = {
    "two containers on one project, the other one lives": (True, OTHER_CONTAINER, Verdict.LIVE),
    "two containers on one project, the other one is gone": (False, OTHER_CONTAINER, Verdict.ORPHAN),
    "the same pid in another container": (False, {**OTHER_CONTAINER, "pid": os.getpid()}, Verdict.ORPHAN),
    "a container's session, seen from the host": (True, OTHER_CONTAINER, Verdict.LIVE),
    "a pid that another process has by now": (False, {"start_time": 0.5}, Verdict.ORPHAN),
    "a process that lives, and whose lock was replaced": (False, {}, Verdict.LIVE),
    "a rebooted host": (False, {"boot_id": "that-kernel", "pid": 1}, Verdict.ORPHAN),
    "a container of a host that was rebooted": (False, OTHER_MACHINE, Verdict.FOREIGN),
    "a session on another machine whose lock is seen": (True, OTHER_MACHINE, Verdict.LIVE),
    "a session on another machine whose lock is not seen": (False, OTHER_MACHINE, Verdict.FOREIGN),
    "a record copied from another machine": (False, {**OTHER_MACHINE, "pid": os.getpid()}, Verdict.FOREIGN),
    "a process of unknown start, as a clock that jumped made it once": (
        False,
        {"start_time": time.time()},
        Verdict.ORPHAN,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_known_case_has_its_verdict(case: str) -> None:
    """Those that other programs get wrong, with this process and this kernel as what is here."""
    locked, differences, verdict = CASES[case]
    assert _seen_from_here(myself()._replace(**differences), locked=locked) is verdict


def test_a_zombie_is_dead(zombie: ProcessIdentity) -> None:
    """Although it answers kill(pid, 0)."""
    os.kill(zombie.pid, 0)
    assert _seen_from_here(zombie, locked=False) is Verdict.ORPHAN


def _seen_from_here(owner: ProcessIdentity, *, locked: bool) -> Verdict:
    record = SessionRecord("a3f2", "s", **owner._asdict(), state="running")
    running = liveness.is_running(owner)
    here = myself()
    return classify(record, locked=locked, running=running, boot_id=here.boot_id, host=here.host)


# The listing


DEAD = myself()._replace(start_time=0.5)
"""An owner whose pid is another process's by now."""


@dataclasses.dataclass
class Yard:
    """A registry with sessions of every kind."""

    home: Registry
    claims: list[SessionClaim] = dataclasses.field(default_factory=list)

    def _record(self, agent_id: str, age: str, owner: ProcessIdentity, **fields: Any) -> SessionRecord:
        began = datetime.now(UTC) - AGES[age]
        session = f"{began:%Y%m%dT%H%M%SZ}-{agent_id}"
        return SessionRecord(agent_id, session, **{**owner._asdict(), "agent": "claude", **fields})

    def left(self, agent_id: str, age: str, owner: ProcessIdentity, **fields: Any) -> None:
        """Leave a record whose lock nobody holds."""
        record = self._record(agent_id, age, owner, **fields)
        (self.home.agents / f"{agent_id}.json").write_bytes(record.to_json())
        (self.home.agents / f"{agent_id}.lock").touch()

    def finished(self, agent_id: str, age: str, **fields: Any) -> Path:
        """Leave a session that has ended well, and return where its report belongs."""
        record = self._record(agent_id, age, myself(), state="finished", **fields)
        directory = self.home.sessions / record.session
        directory.mkdir()
        (directory / "record.json").write_bytes(record.to_json())
        return directory / "report.json"

    def live(self, agent_id: str, age: str, **fields: Any) -> None:
        """Be the owner of a session."""
        others = {f"{number:04x}" for number in range(1 << 16)} - {agent_id}
        began = datetime.now(UTC) - AGES[age]
        claim = self.home.claim(
            myself(), lambda _="": others, began, lambda new: new._replace(agent="claude")
        )
        self.claims.append(claim)
        claim.update(**fields)

    def unreadable(self, agent_id: str) -> None:
        """Leave a file that is no record."""
        (self.home.agents / f"{agent_id}.json").write_text("garbage")


@pytest.fixture
def yard() -> Iterator[Callable[[Path], Yard]]:
    """Return a function that makes a project's registry; who lives in it is released in the end."""
    made: list[Yard] = []

    def make(root: Path) -> Yard:
        home = Registry(root / ".ralph" / "run")
        home.prepare()
        made.append(Yard(home))
        return made[-1]

    yield make
    for one in made:
        for claim in one.claims:
            claim.release()


@pytest.fixture
def full(repo: Repo, yard: Callable[[Path], Yard]) -> Repo:
    """Return a repository with one session for each verdict."""
    base = repo.head
    repo.git("switch", "-q", "-c", "ralph/a3f2")
    repo.commit("one")
    repo.commit("two")
    repo.git("switch", "-q", "main")
    sessions = yard(repo.path)
    work = {"branch": "ralph/a3f2", "base": base, "workspace": "/w/a3f2", "iteration": 12, "state": "running"}
    sessions.live("a3f2", "3h", **work)
    gone = {"branch": "ralph/0b0b", "base": base, "workspace": "/w/0b0b", "iteration": 1, "state": "ending"}
    sessions.left("0b0b", "2d", DEAD, **gone)
    sessions.left("f0f0", "5m", ELSEWHERE, agent="sh -c 'a\n\x1b[2J'")
    sessions.unreadable("dead")
    path = sessions.finished("e0e0", "2d", branch="main", base=base, workspace="/w/e0e0", iteration=3)
    path.write_bytes(_report(kept="a file cannot\nbe read").to_json())
    return repo


def _report(**differences: Any) -> SessionReport:
    """Return how a session has ended that a signal ended, and that left something."""
    return SessionReport(
        id="e0e0",
        session="e0e0",
        agent="claude",
        started="2026-01-02T03:04:05+00:00",
        ended="2026-01-02T03:05:05+00:00",
        ended_by="signal",
        exit_status=143,
        iterations=3,
        saved="ralph/e0e0-wip",
    )._replace(**differences)


SHOWN = f"""\
ID    VERDICT  AGENT           ITERATION  AGE  BRANCH      AHEAD  WORKSPACE
dead  unknown  -               -          -    -           -      {NOT_JSON}
0b0b  orphan   claude          1          2d   ralph/0b0b  -      /w/0b0b
a3f2  live     claude          12         3h   ralph/a3f2  2      /w/a3f2
f0f0  foreign  sh -c 'a??[2J'  0          5m   -           -      -
"""

UNFINISHED = "-         -       -             "

SHOWN_WITH_FINISHED = "".join(
    f"{known}  {ended}  {workspace:{len(NOT_JSON)}}  {kept}\n"
    for known, ended, workspace, kept in (
        (
            "ID    VERDICT   AGENT           ITERATION  AGE  BRANCH      AHEAD",
            "ENDED BY  STATUS  SAVED         ",
            "WORKSPACE",
            "KEPT",
        ),
        ("dead  unknown   -               -          -    -           -    ", UNFINISHED, NOT_JSON, "-"),
        ("0b0b  orphan    claude          1          2d   ralph/0b0b  -    ", UNFINISHED, "/w/0b0b", "-"),
        (
            "e0e0  finished  claude          3          2d   main        0    ",
            "signal    143     ralph/e0e0-wip",
            "/w/e0e0",
            "a file cannot?be read",
        ),
        ("a3f2  live      claude          12         3h   ralph/a3f2  2    ", UNFINISHED, "/w/a3f2", "-"),
        ("f0f0  foreign   sh -c 'a??[2J'  0          5m   -           -    ", UNFINISHED, "-", "-"),
    )
)


def _without_usage(table: bytes) -> str:
    """Return a table without CPU and MEM, which only the live session has."""
    lines = table.decode().splitlines()
    begin, end = lines[0].index("CPU"), lines[0].index("BRANCH")
    for line in lines[1:]:
        form = r"\d+%\s+\d+M\s+" if line.split()[1] == "live" else r"-\s+-\s+"
        assert re.fullmatch(form, line[begin:end]), line
    return "".join(f"{line[:begin]}{line[end:]}\n" for line in lines)


def test_ps_shows_what_is_not_finished(full: Repo) -> None:
    """One row each, oldest first; nothing that could move a terminal's cursor."""
    result = command("ps", cwd=full.path)
    assert (result.status, _without_usage(result.stdout), result.stderr) == (0, SHOWN, "")


def test_ps_all_shows_finished_sessions_too(full: Repo) -> None:
    """In their place by age."""
    result = command("ps", "--all", cwd=full.path)
    assert (result.status, _without_usage(result.stdout), result.stderr) == (0, SHOWN_WITH_FINISHED, "")


def test_ps_fits_into_a_terminal(full: Repo) -> None:
    """What is run gives way first, by what its letters take, then the end of a line."""
    with Terminal(PROGRAM, "ps", cwd=full.path, size=(24, 62)) as terminal:
        assert terminal.finish() == 0
        lines = terminal.words.splitlines()
    assert [line[: lines[0].index("CPU")].rstrip() for line in lines] == [
        "ID    VERDICT  AGENT         ITERATION  AGE",
        "dead  unknown  -             -          -",
        "0b0b  orphan   claude        1          2d",
        "a3f2  live     claude        12         3h",
        "f0f0  foreign  sh -c 'a??[…  0          5m",
    ]
    assert {(len(line), line[-1]) for line in lines} == {(62, "…")}


def test_ps_cuts_nothing_in_a_pipe(full: Repo) -> None:
    """Whatever the terminal of whoever started it is like."""
    result = command("ps", cwd=full.path, env={"COLUMNS": "20"})
    assert _without_usage(result.stdout) == SHOWN


def _envelope(stdout: bytes) -> dict[str, Any]:
    """Return what was printed, sessions by id; their ages and what they use are checked and taken out."""
    envelope: dict[str, Any] = json.loads(stdout)
    for row in envelope["data"]:
        age = row.pop("age")
        usage = [row.pop(name) for name in ("cpu_seconds", "cpu_percent", "memory_bytes", "processes")]
        assert all(usage) if row["verdict"] == "live" else usage == [None] * 4
        if row["session"] is not None:
            began = datetime.strptime(row["session"][:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            assert 0 <= (datetime.now(UTC) - began).total_seconds() - age < 60
            row["session"] = row["session"].partition("-")[2]
    return envelope


def _row(agent_id: str, verdict: str, **known: object) -> dict[str, object]:
    unknown = dict.fromkeys(
        (
            "agent",
            "iteration",
            "branch",
            "ahead",
            "workspace",
            "note",
            "ended_by",
            "exit_status",
            "saved",
            "kept",
        )
    )
    session = None if verdict == "unknown" else agent_id
    return {**unknown, "id": agent_id, "session": session, "verdict": verdict, **known}


def test_ps_json_is_the_envelope(full: Repo) -> None:
    """Numbers as numbers, names as they are, ``null`` for what is not known."""
    result = command("ps", "--json", cwd=full.path)
    data = [
        _row("dead", "unknown", note=NOT_JSON),
        _row("0b0b", "orphan", agent="claude", iteration=1, branch="ralph/0b0b", workspace="/w/0b0b"),
        _row("a3f2", "live", agent="claude", iteration=12, branch="ralph/a3f2", ahead=2, workspace="/w/a3f2"),
        _row("f0f0", "foreign", agent="sh -c 'a\n\x1b[2J'", iteration=0),
    ]
    expected = {"version": 1, "success": True, "tool": "ps", "data": data}
    assert (_envelope(result.stdout), result.status, result.stderr) == (expected, 0, "")


def _how_it_ended(repo: Repo) -> dict[str, Any]:
    """Return what ``ps --all --json`` tells of the end of the only finished session."""
    data = json.loads(command("ps", "--all", "--json", cwd=repo.path).stdout)["data"]
    (row,) = (row for row in data if row["verdict"] == "finished")
    return {name: row[name] for name in ("ended_by", "exit_status", "saved", "kept")}


UNTOLD = {"ended_by": None, "exit_status": None, "saved": None, "kept": None}


def test_ps_all_tells_how_a_session_ended(full: Repo) -> None:
    """As its report does."""
    assert _how_it_ended(full) == {
        "ended_by": "signal",
        "exit_status": 143,
        "saved": "ralph/e0e0-wip",
        "kept": "a file cannot\nbe read",
    }


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"garbage",
        b"[]",
        b'{"version": 1}',
        _report().to_json().replace(b'"version": 1', b'"version": 2'),
        _report(ended_by=7, exit_status="0", saved=["x"], kept={}).to_json(),
    ],
    ids=["none", "garbage", "no object", "half of one", "a newer one", "wrong kinds"],
)
def test_a_report_that_cannot_be_read_tells_nothing(
    repo: Repo, yard: Callable[[Path], Yard], content: bytes | None
) -> None:
    """The session is listed all the same."""
    path = yard(repo.path).finished("e0e0", "2d")
    if content is not None:
        path.write_bytes(content)
    assert _how_it_ended(repo) == UNTOLD


def test_the_ends_of_sessions_cost_no_git(full: Repo, tmp_path: Path) -> None:
    """As many calls as without them: one for the repository, one for each branch that is counted."""
    calls = tmp_path / "calls"
    path = shim_git(tmp_path / "bin", f"*) echo x >> {calls} ;;")
    command("ps", "--all", cwd=full.path, env={"PATH": path})
    told = len(calls.read_text())
    for report in full.path.glob(".ralph/run/sessions/*/report.json"):
        report.unlink()
    calls.unlink()
    command("ps", "--all", cwd=full.path, env={"PATH": path})
    assert len(calls.read_text()) == told


@pytest.mark.parametrize(
    ("arguments", "remark"),
    [
        (("ps",), "no sessions that are not finished: --all lists the others"),
        (("ps", "--all"), "no sessions"),
        (("ps", "--json"), None),
        (("sweep",), "no dead sessions"),
        (("sweep", "--json"), None),
    ],
)
def test_a_person_is_told_that_there_is_nothing(
    repo: Repo, tmp_path: Path, arguments: tuple[str, ...], remark: str | None
) -> None:
    """On a terminal, by stderr; what a program reads is as it was."""
    out = tmp_path / "out"
    with Terminal("sh", "-c", f'"$@" > {out}', "sh", PROGRAM, *arguments, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert terminal.words == (f"ralph-wrap: {remark}\n" if remark else "")
    silent = command(*arguments, cwd=repo.path)
    assert (silent.stdout, silent.stderr) == (out.read_bytes(), "")


def test_ps_does_not_guess_what_a_session_of_another_container_uses(
    repo: Repo, yard: Callable[[Path], Yard]
) -> None:
    """It lives, but its pid means another process here."""
    yard(repo.path).live("a3f2", "5m", **OTHER_CONTAINER)
    (row,) = json.loads(command("ps", "--json", cwd=repo.path).stdout)["data"]
    assert (row["verdict"], row["cpu_seconds"], row["memory_bytes"]) == ("live", None, None)


@pytest.mark.parametrize("lives", [False, True])
def test_psutil_is_loaded_for_live_sessions_only(
    repo: Repo, yard: Callable[[Path], Yard], lives: bool
) -> None:
    """Nothing else here needs it."""
    sessions = yard(repo.path)
    sessions.finished("e0e0", "2d")
    if lives:
        sessions.live("a3f2", "5m")
    code = (
        "import atexit, sys; from ralph_wrap.__main__ import main; sys.argv = ['ralph-wrap', 'ps', '--all']\n"
        "atexit.register(lambda: print('psutil' in sys.modules))\nmain()"
    )
    done = subprocess.run(
        (sys.executable, "-c", code), cwd=repo.path, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == str(lives)


def test_ps_changes_nothing(full: Repo) -> None:
    """Neither records and locks, nor the repository."""
    before = listing(full.path)
    command("ps", "--all", cwd=full.path)
    assert listing(full.path) == before


def test_ps_outside_of_a_repository(tmp_path: Path, yard: Callable[[Path], Yard]) -> None:
    """Sessions work there too, without a branch; where there are none, nothing is made."""
    plain, empty = tmp_path / "plain", tmp_path / "empty"
    plain.mkdir()
    empty.mkdir()
    yard(plain).live("a3f2", "2d", workspace="/w")
    result = command("ps", cwd=plain)
    table = (
        "ID    VERDICT  AGENT   ITERATION  AGE  BRANCH  AHEAD  WORKSPACE\n"
        "a3f2  live     claude  0          2d   -       -      /w\n"
    )
    assert (result.status, _without_usage(result.stdout), result.stderr) == (0, table, "")
    result = command("ps", "--all", cwd=empty)
    assert (result.status, result.stdout.decode(), result.stderr) == (0, HEADER_OF_ALL, "")
    assert list(empty.iterdir()) == []


def test_ps_knows_the_place_for_projects_that_cannot_be_written(repo: Repo) -> None:
    """Sessions that had to register in the user's own directory belong to the project all the same."""
    place = project.find_project(repo.path, os.environ)
    sessions = Yard([*project.registries(place)][1])
    sessions.home.prepare()
    sessions.left("a3f2", "2d", DEAD)
    result = command("ps", cwd=repo.path / ".git" / "..")
    assert result.stdout.decode().splitlines()[1].split() == [
        "a3f2",
        "orphan",
        "claude",
        "0",
        "2d",
        *"-----",
    ]


def test_a_record_that_was_only_not_moved_is_finished(repo: Repo, yard: Callable[[Path], Yard]) -> None:
    """Its owner was killed between the last two steps: nothing of it is left to be done for people."""
    yard(repo.path).left("a3f2", "2d", myself(), state="finished")
    assert command("ps", cwd=repo.path).stdout.decode() == HEADER
    shown = command("ps", "--all", cwd=repo.path).stdout.decode().splitlines()
    assert shown[1].split()[:2] == ["a3f2", "finished"]


def test_a_record_without_its_lock_is_unknown(repo: Repo, yard: Callable[[Path], Yard]) -> None:
    """Somebody has deleted the lock: the owner may well be alive."""
    sessions = yard(repo.path)
    sessions.live("a3f2", "2d")
    (sessions.home.agents / "a3f2.lock").unlink()
    shown = command("ps", cwd=repo.path).stdout.decode().splitlines()
    assert shown[1].split(maxsplit=9)[::9] == ["a3f2", "its lock cannot be read: no such file"]


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_an_agent_made_of_a_record_breaks_nothing(
    repo: Repo, yard: Callable[[Path], Yard], kind: str
) -> None:
    """The other sessions are shown."""
    sessions = yard(repo.path)
    sessions.live("a3f2", "2d")
    odd = sessions.home.agents / "0000.json"
    odd.mkdir() if kind == "directory" else odd.symlink_to("nowhere")
    shown = command("ps", cwd=repo.path).stdout.decode().splitlines()
    assert [row.split()[:2] for row in shown[1:]] == [["0000", "unknown"], ["a3f2", "live"]]


# Errors


def test_a_project_that_is_not_there_is_told(tmp_path: Path) -> None:
    """On stderr, which is no terminal here; stdout stays empty."""
    result = command("ps", "-C", tmp_path / "absent", cwd=tmp_path)
    told = json.loads(result.stderr)
    assert (result.status, result.stdout) == (2, b"")
    assert (told["level"], told["event"], told["message"], told["hint"]) == (
        "error",
        "error.raised",
        f"project {tmp_path / 'absent'}: No such file or directory",
        "name a directory that is there",
    )


def test_a_program_is_told_in_the_envelope(tmp_path: Path) -> None:
    """On stdout alone."""
    result = command("ps", "--json", "-C", tmp_path / "absent", cwd=tmp_path)
    error = {
        "code": "usage",
        "message": f"project {tmp_path / 'absent'}: No such file or directory",
        "hint": "name a directory that is there",
    }
    envelope = {"version": 1, "success": False, "tool": "ps", "error": error}
    assert (json.loads(result.stdout), result.status, result.stderr) == (envelope, 2, "")


# A real session


def test_a_session_is_live_until_it_is_killed(
    repo: Repo, tmp_path: Path, script: Callable[[str], str]
) -> None:
    """Then it is an orphan: its lock is free, and its worktree is there."""

    def row() -> list[str]:
        shown = command("ps", cwd=repo.path).stdout.decode().splitlines()
        assert len(shown) == 2
        return shown[1].split()

    try:
        with Session(repo.path, "--", script("exec sleep 600")) as session:
            session.wait_for("agent.started")
            agent_id = session.directory.name.rpartition("-")[2]
            live = row()
            session.send(signal.SIGKILL)
            session.process.wait()
            orphan = row()
            workspace = str(repo.path / ".ralph" / "worktrees" / session.directory.name)
    finally:
        end_all(tmp_path / "home")
    assert live[6].endswith("M")
    assert orphan[5:7] == ["-", "-"]
    assert [live[0], live[1], live[3], *live[7:]] == [
        *[agent_id, "live", "1", f"ralph/{agent_id}", "0", workspace]
    ]
    assert [orphan[0], orphan[1], *orphan[7:]] == [agent_id, "orphan", f"ralph/{agent_id}", "0", workspace]

"""``ralph-wrap ps``: what a person reads."""

from __future__ import annotations

import json
import re
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.processes import end_all
from tests.support.sessions import PROGRAM, Session, command, run
from tests.support.terminal import Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo
from tests.interfaces.cli.project import DEAD, Yard

NONE = "No session is running. To see finished ones: ralph-wrap ps --all\n"

NONE_AT_ALL = "This project has no sessions yet. To start one: ralph-wrap run\n"

NOT_JSON = "not a record of this version: Expecting value: line 1 column 1 (char 0)"

OTHER_CONTAINER = {"pid_namespace": "pid:[1]", "host": "0f1e2d3c4b5a"}


# The listing

SHOWN = f"""\
{"TITLE":{len(NOT_JSON)}}  ID    STATE       AGENT           ITERATION  AGE  BRANCH      AHEAD  WORKSPACE
{NOT_JSON}  dead  unreadable  -               -          -    -           -      -
-{" " * (len(NOT_JSON) - 1)}  0b0b  crashed     claude          1          2d   ralph/0b0b  -      -
{"Login?page":{len(NOT_JSON)}}  a3f2  running     claude          12         3h   ralph/a3f2  2      -
-{" " * (len(NOT_JSON) - 1)}  f0f0  elsewhere   sh -c 'a??[2J'  0          5m   -           -      -
"""


def _without_usage(table: bytes) -> str:
    """Return a table without CPU and MEM, which only the live session has."""
    lines = table.decode().splitlines()
    begin, end = lines[0].index("CPU"), lines[0].index("BRANCH")
    for line in lines[1:]:
        form = r"\d+%\s+\d+M\s+" if re.search("  (running|starting)  ", line) else r"-\s+-\s+"
        assert re.fullmatch(form, line[begin:end]), line
    return "".join(f"{line[:begin]}{line[end:]}\n" for line in lines)


def test_ps_shows_unfinished_sessions(full: Repo) -> None:
    """One row each, oldest first; nothing that could move a terminal's cursor."""
    result = command("ps", cwd=full.path)
    assert (result.status, _without_usage(result.stdout), result.stderr) == (0, SHOWN, "")


def test_ps_all_shows_finished_sessions_too(full: Repo) -> None:
    """In their place by age, with columns for their end."""
    result = command("ps", "--all", cwd=full.path)
    lines = _without_usage(result.stdout).splitlines()
    assert (result.status, result.stderr, len(lines)) == (0, "", 6)
    assert lines[0].split("  ")[-1] == "KEPT"
    [ended] = [line for line in lines if "e0e0" in line]
    assert re.split(" {2,}", ended) == [
        *("-", "e0e0", "stopped", "claude", "3", "2d", "main", "0", "143", "ralph/e0e0-wip", "-"),
        "a file cannot?be read",
    ]


@pytest.mark.parametrize("columns", [80, 62, 40])
def test_ps_fits_into_a_terminal(full: Repo, columns: int) -> None:
    """Titles and commands are cut, then columns are left out; the last line names them."""
    with Terminal(PROGRAM, "ps", "--all", cwd=full.path, size=(24, columns)) as terminal:
        assert terminal.finish() == 0
        lines = terminal.words.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(word in lines[0] for word in ("TITLE", "ID", "STATE"))
    note = " ".join(lines[6:])
    assert note.startswith("ralph-wrap ps --all | less -S also shows WORKSPACE, STATUS")


def test_ps_cuts_nothing_in_a_pipe(full: Repo) -> None:
    """Whatever terminal the caller has."""
    result = command("ps", cwd=full.path, env={"COLUMNS": "20"})
    assert _without_usage(result.stdout) == SHOWN


@pytest.mark.parametrize(
    ("arguments", "remark"),
    [
        (("ps", "--json"), None),
        (("sweep",), "no dead sessions"),
        (("sweep", "--json"), None),
    ],
)
def test_a_person_reads_that_there_is_nothing(
    repo: Repo, tmp_path: Path, arguments: tuple[str, ...], remark: str | None
) -> None:
    """By stderr, on a terminal or not; what a program reads is as it was."""
    out = tmp_path / "out"
    with Terminal("sh", "-c", f'"$@" > {out}', "sh", PROGRAM, *arguments, cwd=repo.path) as terminal:
        assert terminal.finish() == 0
    assert terminal.words == (f"ralph-wrap: {remark}\n" if remark else "")
    silent = command(*arguments, cwd=repo.path)
    assert (silent.stdout, bool(silent.stderr)) == (out.read_bytes(), remark is not None)
    assert (remark or "") in silent.stderr


def test_ps_says_that_a_dropped_branch_is_not_here(repo: Repo) -> None:
    """Else its name could be typed in vain; ``restore`` brings it back."""
    assert command("run", "-n", "1", "--", "true", cwd=repo.path).status == 0
    [row] = json.loads(command("ps", "--all", "--json", cwd=repo.path).stdout)["data"]
    assert command("drop", row["id"], cwd=repo.path).status == 0
    assert f"{row['branch']} (not here)" in command("ps", "--all", cwd=repo.path).stdout.decode()
    assert command("restore", row["id"], cwd=repo.path).status == 0
    assert "(not here)" not in command("ps", "--all", cwd=repo.path).stdout.decode()


def test_ps_does_not_guess_what_a_session_of_another_container_uses(
    repo: Repo, yard: Callable[[Path], Yard]
) -> None:
    """It lives, but its pid means another process here."""
    yard(repo.path).live("a3f2", "5m", **OTHER_CONTAINER)
    (row,) = json.loads(command("ps", "--json", cwd=repo.path).stdout)["data"]
    assert (row["verdict"], row["cpu_seconds"], row["memory_bytes"]) == ("live", None, None)


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
    yard(plain).live("a3f2", "2d", workspace=str(plain))
    result = command("ps", cwd=plain)
    table = (
        "TITLE  ID    STATE     AGENT   ITERATION  AGE  BRANCH  AHEAD  WORKSPACE\n"
        f"-      a3f2  starting  claude  0          2d   -       -      {plain}\n"
    )
    assert (result.status, _without_usage(result.stdout), result.stderr) == (0, table, "")
    result = command("ps", "--all", cwd=empty)
    assert (result.status, result.stdout.decode(), result.stderr) == (0, NONE_AT_ALL, "")
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(("arguments", "sentence"), [((), NONE), (("--all",), NONE_AT_ALL)])
def test_nothing_to_list_is_one_sentence(repo: Repo, arguments: tuple[str, ...], sentence: str) -> None:
    """It says how to go on; JSON is an empty list."""
    assert command("ps", *arguments, cwd=repo.path).stdout.decode() == sentence
    assert json.loads(command("ps", "--json", *arguments, cwd=repo.path).stdout)["data"] == []


def test_a_finished_session_that_keeps_its_worktree_is_shown(repo: Repo) -> None:
    """Until its worktree is removed: it still needs the user."""
    spawned = command("spawn", "-n", "1", "-p", "# Login page", "--", "true", cwd=repo.path)
    agent_id = spawned.stdout.decode().strip()
    eventually(lambda: "limit reached" in command("ps", cwd=repo.path).stdout.decode(), "its end")
    header, row = command("ps", cwd=repo.path).stdout.decode().splitlines()
    assert row.split("  ")[:2] == ["Login page", agent_id]
    assert (header.split()[-1], row.endswith(f"until ralph-wrap rm {agent_id}")) == ("KEPT", True)
    command("rm", agent_id, cwd=repo.path)
    assert command("ps", cwd=repo.path).stdout.decode() == NONE


def test_a_session_that_never_started_shows_no_iteration_and_no_branch(repo: Repo) -> None:
    """Its command was executable at first, and its branch is gone."""
    repo.write("agent", "#!/nonexistent\n", executable=True)
    repo.commit()
    assert run(repo.path, "--", "./agent").status in {126, 127}
    [row] = json.loads(command("ps", "--all", "--json", cwd=repo.path).stdout)["data"]
    assert (row["iteration"], row["branch"], row["ended_by"]) == (0, None, "not-started")
    assert "  not started  " in command("ps", "--all", cwd=repo.path).stdout.decode()


def test_a_session_that_waits_for_the_usage_limit_says_until_when(
    repo: Repo, yard: Callable[[Path], Yard]
) -> None:
    """In the time of this machine; its next event ends that, and so does the time."""
    sessions = yard(repo.path)
    sessions.live("a3f2", "5m", state="running")
    events = sessions.claims[0].directory / "events.jsonl"
    until = (datetime.now().astimezone() + timedelta(minutes=1)).replace(second=0, microsecond=0) + timedelta(
        minutes=1
    )

    def state(*lines: object) -> str:
        events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return re.split(" {2,}", command("ps", cwd=repo.path).stdout.decode().splitlines()[1])[2]

    waiting = {"event": "limit.waiting", "until": until.timestamp()}
    assert state(waiting).startswith("waiting for the usage limit until ")
    assert state(waiting).endswith(f"{until:%H:%M}")
    assert state(waiting, {"event": "iteration.started"}) == "running"
    assert state({**waiting, "until": 1.0}) == "running"
    assert state({**waiting, "until": "soon"}) == state({**waiting, "until": 1e300}) == "running"


@pytest.mark.parametrize(("phase", "word"), [("starting", "starting"), ("ending", "saving")])
def test_a_live_session_says_what_it_does(
    repo: Repo, yard: Callable[[Path], Yard], phase: str, word: str
) -> None:
    """Before its agent runs, and after that."""
    yard(repo.path).live("a3f2", "5m", state=phase)
    assert f"  {word}  " in command("ps", cwd=repo.path).stdout.decode()


def test_a_record_that_was_only_not_moved_is_finished(repo: Repo, yard: Callable[[Path], Yard]) -> None:
    """Its owner was killed between the last two steps: nothing of it is left to be done for people."""
    yard(repo.path).left("a3f2", "2d", DEAD, state="finished")
    assert command("ps", cwd=repo.path).stdout.decode() == NONE
    shown = command("ps", "--all", cwd=repo.path).stdout.decode().splitlines()
    assert shown[1].split()[:3] == ["-", "a3f2", "finished"]


def test_a_record_without_its_lock_is_unknown(repo: Repo, yard: Callable[[Path], Yard]) -> None:
    """Another process has deleted the lock: the owner may well be alive."""
    sessions = yard(repo.path)
    sessions.live("a3f2", "2d")
    (sessions.home.agents / "a3f2.lock").unlink()
    shown = command("ps", cwd=repo.path).stdout.decode().splitlines()
    assert shown[1].startswith("its lock cannot be read: no such file  a3f2  unreadable")


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
    assert [re.split(" {2,}", row)[1:3] for row in shown[1:]] == [
        ["0000", "unreadable"],
        ["a3f2", "starting"],
    ]


# Errors


def test_a_missing_project_is_named(tmp_path: Path) -> None:
    """On stderr, which is no terminal here; stdout stays empty."""
    result = command("ps", "-C", tmp_path / "absent", cwd=tmp_path)
    printed = json.loads(result.stderr)
    assert (result.status, result.stdout) == (2, b"")
    assert (printed["level"], printed["event"], printed["message"], printed["hint"]) == (
        "error",
        "error.raised",
        f"project {tmp_path / 'absent'}: No such file or directory",
        "name a directory that exists",
    )


def test_a_program_reads_it_in_the_envelope(tmp_path: Path) -> None:
    """On stdout alone."""
    result = command("ps", "--json", "-C", tmp_path / "absent", cwd=tmp_path)
    error = {
        "code": "usage",
        "message": f"project {tmp_path / 'absent'}: No such file or directory",
        "hint": "name a directory that exists",
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
    assert live[7].endswith("M")
    assert [*live[:3], live[4], *live[8:10], live[11]] == [
        *["-", agent_id, "running", "1", f"ralph/{agent_id}", "0", workspace]
    ]
    assert [*orphan[:3], *orphan[6:]] == ["-", agent_id, "crashed", f"ralph/{agent_id}", "0", workspace]


# What a container and its host call by other names, and count alike


def _rows(repo: Repo, *arguments: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(command("ps", "--json", *arguments, cwd=repo.path).stdout)[
        "data"
    ]
    return rows


def test_the_workspace_of_a_container_has_its_name_here(repo: Repo, yard: Callable[[Path], Yard]) -> None:
    """The record has the path in the container, which leads nowhere on the host."""
    sessions = yard(repo.path)
    sessions.live("a3f2", "5m", branch="ralph/a3f2", base=repo.head)
    (claim,) = sessions.claims
    name = claim.record.session
    claim.update(workspace=f"/workspace/project/.ralph/worktrees/{name}")
    assert [row["workspace"] for row in _rows(repo)] == [None]
    here = repo.path / ".ralph" / "worktrees" / name
    here.mkdir(parents=True)
    assert [row["workspace"] for row in _rows(repo)] == [str(here)]


def test_a_container_without_isolation_works_in_the_project(repo: Repo, yard: Callable[[Path], Yard]) -> None:
    """The plain project root has another name here, too."""
    yard(repo.path).live("a3f2", "5m", workspace="/workspace/project")
    assert [row["workspace"] for row in _rows(repo)] == [str(repo.path)]


def test_a_removed_worktree_is_no_workspace(repo: Repo) -> None:
    """There is nothing to look at."""
    run(repo.path, "-n", "1", "--", "true")
    assert [row["workspace"] for row in _rows(repo, "--all")] == [None]


def test_the_project_is_no_workspace_of_a_session_that_never_started(repo: Repo) -> None:
    """Its worktree is gone, and so is its branch."""
    assert run(repo.path, "--", "./none").status == 127
    assert [(row["branch"], row["workspace"]) for row in _rows(repo, "--all")] == [(None, None)]


def test_ps_shows_the_port_of_a_live_session(repo: Repo) -> None:
    """It is the RALPH_PORT that the agent has."""
    with Session(repo.path, "-n", "1", "--", "sh", "-c", "echo $RALPH_PORT > port; sleep 600") as session:
        session.wait_for("agent.started")
        (row,) = _rows(repo)
        path = Path(str(row["workspace"])) / "port"
        port = eventually(lambda: path.exists() and path.read_text().strip(), "the port")
        assert str(row["port"]) == port
        assert re.search(rf" {port} ", command("ps", cwd=repo.path).stdout.decode())
        session.send(signal.SIGTERM)
        session.finish()
    assert [row["port"] for row in _rows(repo, "--all")] == [None]


def test_ps_review_and_report_count_alike_after_a_resume(repo: Repo) -> None:
    """Ahead is what the main branch lacks, whichever session has made it."""
    first = run(repo.path, "-n", "1", "--", "sh", "-c", "echo 1 > new; git add new; git commit -qm one")
    name = first.report["id"]
    assert (first.report["commits"], first.report["ahead"]) == (1, 1)
    command("resume", name, "-n", "1", cwd=repo.path)
    found = [json.loads(path.read_bytes()) for path in repo.path.glob(".ralph/run/sessions/*/report.json")]
    (report,) = (report for report in found if report["resumes"] == first.report["session"])
    assert (report["commits"], report["ahead"]) == (0, 1)
    reviewed = json.loads(command("review", "--json", cwd=repo.path).stdout)["data"]
    assert [row["ahead"] for row in reviewed] == [1]
    assert {(row["ahead"], row["commits"]) for row in _rows(repo, "--all")} == {(1, 1), (1, 0)}
    command("merge", name, cwd=repo.path)
    assert [row["ahead"] for row in _rows(repo, "--all")] == [0, 0]

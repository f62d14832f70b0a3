"""Sessions in the background: ``spawn`` and ``rm``."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.git_shim import shim_git
from tests.support.processes import left
from tests.support.sessions import PROGRAM, Result, Session, command
from tests.support.terminal import Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo


pytestmark = pytest.mark.usefixtures("ended")


def _spawn(repo: Repo, *arguments: str) -> str:
    """Start a session in the background and return its id."""
    result = command("spawn", *arguments, cwd=repo.path)
    assert result.status == 0, result.stderr
    return result.stdout.decode().strip()


def _directory(repo: Repo, agent_id: str) -> Path:
    (found,) = repo.path.glob(f".ralph/run/sessions/*-{agent_id}")
    return found


def _report(repo: Repo, agent_id: str) -> dict[str, Any]:
    """Return the report of a session, once it has ended."""
    path = _directory(repo, agent_id)
    eventually((path / "record.json").exists, "the end of the session")
    loaded: dict[str, Any] = json.loads((path / "report.json").read_text())
    return loaded


def _worktree(repo: Repo, agent_id: str) -> Path:
    return repo.path / ".ralph" / "worktrees" / _directory(repo, agent_id).name


def _rm(repo: Repo, *names: str) -> Result:
    return command("rm", *names, cwd=repo.path)


def test_an_id_is_printed_and_the_session_goes_on(repo: Repo, home: Path, tmp_path: Path) -> None:
    """While the agent still works; the caller has its terminal back."""
    go = tmp_path / "go"
    agent_id = _spawn(
        repo, "-n", "1", "--", "sh", "-c", f"echo ready; until [ -e {go} ]; do sleep 0.02; done"
    )
    eventually(lambda: b"ready" in (_directory(repo, agent_id) / "output.log").read_bytes(), "the agent")
    assert [row["id"] for row in json.loads(command("ps", "--json", cwd=repo.path).stdout)["data"]] == [
        agent_id
    ]
    go.touch()
    assert _report(repo, agent_id)["ended_by"] == "max-iterations"
    eventually(lambda: left(home) == {}, "everything to be gone")


def test_work_is_saved_and_the_worktree_stays(repo: Repo, script: Callable[[str], str]) -> None:
    """Until the user removes it."""
    agent_id = _spawn(repo, "-n", "1", "--", script("echo x > new"))
    report = _report(repo, agent_id)
    assert report["saved"] == f"ralph/{agent_id}-wip"
    assert report["kept"] == f"until ralph-wrap rm {agent_id}"
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"x\n"
    assert (_worktree(repo, agent_id) / "new").read_text() == "x\n"


def test_a_sweep_leaves_finished_ones_alone(repo: Repo, script: Callable[[str], str]) -> None:
    """Their worktrees are for rm."""
    agent_id = _spawn(repo, "-n", "1", "--", script("echo x > new"))
    _report(repo, agent_id)
    assert command("sweep", cwd=repo.path).status == 0
    assert (_worktree(repo, agent_id) / "new").exists()


def test_rm_removes_the_worktree_and_keeps_the_branches(repo: Repo, script: Callable[[str], str]) -> None:
    """What was saved at the end is not saved twice."""
    agent_id = _spawn(repo, "-n", "1", "--", script("echo x > new"))
    _report(repo, agent_id)
    saved = repo.git("rev-parse", f"ralph/{agent_id}-wip")
    result = _rm(repo, agent_id)
    assert result.status == 0, result.stderr
    assert not _worktree(repo, agent_id).exists()
    assert repo.worktrees() == []
    assert repo.git("rev-parse", f"ralph/{agent_id}-wip") == saved
    assert repo.git("for-each-ref", "refs/ralph") == ""
    assert _report(repo, agent_id)["kept"] is None


def test_rm_saves_what_was_edited_since(repo: Repo, script: Callable[[str], str]) -> None:
    """And what had been saved before stays to be found."""
    agent_id = _spawn(repo, "-n", "1", "--", script("echo x > new"))
    _report(repo, agent_id)
    first = repo.git("rev-parse", f"ralph/{agent_id}-wip")
    (_worktree(repo, agent_id) / "new").write_text("edited\n")
    assert _rm(repo, agent_id).status == 0
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"edited\n"
    assert repo.git("rev-parse", f"refs/ralph/snapshots/{agent_id}/commit-1") == first


def test_rm_ends_a_session_that_runs(repo: Repo, home: Path) -> None:
    """Its work is saved as at any end."""
    agent_id = _spawn(repo, "--", "sh", "-c", "echo x > new; echo ready; sleep 1000")
    eventually(lambda: b"ready" in (_directory(repo, agent_id) / "output.log").read_bytes(), "the agent")
    result = _rm(repo, agent_id)
    assert result.status == 0, result.stderr
    assert (_report(repo, agent_id)["ended_by"], repo.worktrees()) == ("stop", [])
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"x\n"
    eventually(lambda: left(home) == {}, "everything to be gone")


def test_rm_finishes_a_session_that_was_killed(repo: Repo) -> None:
    """Its work is saved, and its worktree is not wanted any more."""
    agent_id = _spawn(repo, "--", "sh", "-c", "echo x > new; echo ready; sleep 1000")
    eventually(lambda: b"ready" in (_directory(repo, agent_id) / "output.log").read_bytes(), "the agent")
    record = json.loads((repo.path / f".ralph/run/agents/{agent_id}.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    assert _rm(repo, agent_id).status == 0
    assert (_report(repo, agent_id)["ended_by"], repo.worktrees()) == ("killed", [])
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"x\n"


def test_what_cannot_be_saved_is_refused(repo: Repo, script: Callable[[str], str]) -> None:
    """With status 5; others that were named go all the same."""
    nested = _spawn(repo, "-n", "1", "--", script("git init -q nested; echo x > nested/file"))
    plain = _spawn(repo, "-n", "1", "--", script("echo x > new"))
    for agent_id in (nested, plain):
        _report(repo, agent_id)
    result = _rm(repo, nested, plain)
    assert result.status == 5
    assert "nested repository nested cannot be saved" in result.stderr
    assert (_worktree(repo, nested) / "nested" / "file").exists()
    assert not _worktree(repo, plain).exists()


def test_rm_all_names_what_goes_and_asks(repo: Repo, script: Callable[[str], str]) -> None:
    """Only a yes on the terminal removes it; without a terminal it says which command asks nothing."""
    agent_id = _spawn(repo, "-n", "1", "--name", "Login", "--", script("echo x > new"))
    _report(repo, agent_id)
    for answer in (None, "n", "y"):
        assert _worktree(repo, agent_id).exists()
        if answer is None:
            refused = _rm(repo, "--all")
            assert (refused.status, refused.stdout) == (2, b"")
            shown = refused.stderr
            assert "ralph-wrap rm --all --yes" in shown
        else:
            with Terminal(PROGRAM, "rm", "--all", cwd=repo.path) as terminal:
                terminal.wait_for("remove 1? [y/N]")
                terminal.type(answer.encode() + b"\n")
                assert terminal.finish() == (0 if answer == "y" else 5)
                shown = terminal.words
        assert f"{agent_id}  limit reached  .ralph/worktrees/{_worktree(repo, agent_id).name}  Login" in shown
    assert not _worktree(repo, agent_id).exists()
    assert repo.show(f"ralph/{agent_id}-wip:new") == b"x\n"


def test_rm_counts_the_ignored_files_that_go(repo: Repo, script: Callable[[str], str]) -> None:
    """They are not saved, so the question and the answer say how many there are."""
    repo.write(".gitignore", ".env\nbuild/\n.ralph/\n")
    repo.commit("ignore")
    agent_id = _spawn(
        repo, "-n", "1", "--", script("echo x > .env; mkdir build; touch build/a build/b; echo x > new")
    )
    _report(repo, agent_id)
    asked = _rm(repo, "--all")
    assert "ignored files are deleted" in asked.stderr
    [row] = [line for line in asked.stderr.splitlines() if f"{agent_id}  limit reached" in line]
    assert row.endswith("  3 ignored files")
    removed = command("rm", agent_id, "--json", cwd=repo.path)
    assert [session["ignored"] for session in json.loads(removed.stdout)["data"]] == [3]


def test_rm_says_how_many_ignored_files_went(repo: Repo, script: Callable[[str], str]) -> None:
    """Beside the branch with what was saved."""
    repo.write(".gitignore", ".env\n.ralph/\n")
    repo.commit("ignore")
    agent_id = _spawn(repo, "-n", "1", "--", script("echo x > .env"))
    _report(repo, agent_id)
    assert _rm(repo, agent_id).stdout.decode().endswith("  removed  1 ignored file went with it\n")


def test_rm_all_ends_what_runs_in_the_background(repo: Repo, script: Callable[[str], str]) -> None:
    """Its work is saved; a session that runs in a terminal stays, and the message names it."""
    ended = _spawn(repo, "-n", "1", "--", script("echo x > new"))
    _report(repo, ended)
    background = _spawn(repo, "--", "sh", "-c", "echo x > new; echo ready; sleep 1000")
    eventually(lambda: b"ready" in (_directory(repo, background) / "output.log").read_bytes(), "the agent")
    with Session(repo.path, "-n", "1", "--", "sleep", "1000") as session:
        session.wait_for("agent.started")
        assert "Those that run are stopped first: 1." in _rm(repo, "--all").stderr
        removed = _rm(repo, "--all", "--yes")
        assert removed.status == 0, removed.stderr
        assert f"session {session.directory.name} is running, and stays" in removed.stderr
        assert [Path(path).name for path in repo.worktrees()] == [session.directory.name]
        session.send(signal.SIGTERM)
        session.finish()
    for agent_id in (ended, background):
        assert repo.show(f"ralph/{agent_id}-wip:new") == b"x\n"


@pytest.mark.parametrize(
    "words", [("spawn",), ("spawn", "-a", "hal", "-p", "x"), ("spawn", "-a", "claude", "--", "true")]
)
def test_a_hint_names_the_command_that_was_typed(repo: Repo, words: tuple[str, ...]) -> None:
    """Not ``run``, which would work in the foreground."""
    hints = command(*words, cwd=repo.path).stderr
    assert ("ralph-wrap spawn" in hints, "ralph-wrap run" in hints) == (True, False), hints


def test_rm_takes_ids_or_all(repo: Repo) -> None:
    """Neither and both are mistakes; with nothing to remove, --all asks nothing."""
    assert [_rm(repo, *words).status for words in ((), ("abcd", "--all"), ("--all",))] == [2, 2, 0]


def test_an_unknown_id_is_said(repo: Repo) -> None:
    """With status 4."""
    assert _rm(repo, "abcd").status == 4


def test_mistakes_are_printed_before_anything_is_made(repo: Repo) -> None:
    """On stderr, with the status that run would have; stdout stays empty."""
    for arguments, status in ((("--bogus", "--", "true"), 2), (("--", "/not/there"), 127), ((), 2)):
        result = command("spawn", *arguments, cwd=repo.path)
        assert (result.status, result.stdout) == (status, b"")
        assert result.stderr != ""
    assert not (repo.path / ".ralph").exists()


@pytest.mark.parametrize(
    ("agent", "isolation", "status", "message"),
    [
        ("./nosuch.sh", "require", 127, "agent command ./nosuch.sh was not found in "),
        ("./nosuch.sh", "off", 127, "agent command ./nosuch.sh was not found in "),
        ("./plain.sh", "require", 126, "agent command ./plain.sh cannot be run: Permission denied"),
    ],
)
def test_an_agent_that_cannot_be_started_is_an_error_as_in_run(
    repo: Repo, home: Path, agent: str, isolation: str, status: int, message: str
) -> None:
    """Nothing but the report is left, and no id is printed: there is nothing to follow."""
    repo.write("plain.sh", "#!/bin/sh\n")
    repo.commit("an agent")
    result = command("spawn", "--isolation", isolation, "--", agent, cwd=repo.path)
    assert (result.status, result.stdout) == (status, b"")
    (printed,) = result.warnings
    assert printed["message"].startswith(message)
    assert repo.branches() == ["main"]
    assert repo.worktrees() == []
    eventually(lambda: left(home) == {}, "everything to be gone")


def test_an_iteration_that_fails_before_its_agent_is_a_beginning(repo: Repo, tmp_path: Path) -> None:
    """The loop goes on, and the caller has its terminal back."""
    (tmp_path / "prompt").write_text("x")
    path = shim_git(tmp_path / "bin", f'*" read-tree --reset "*) rm -f {tmp_path}/prompt ;;')
    result = command("spawn", "-f", tmp_path / "prompt", "--", "cat", cwd=repo.path, env={"PATH": path})
    agent_id = result.stdout.decode().strip()
    assert (result.status, [printed["event"] for printed in result.warnings]) == (0, ["prompt.failed"])
    assert _rm(repo, agent_id).status == 0


def test_a_closed_terminal_does_not_reach_it(repo: Repo, tmp_path: Path) -> None:
    """It outlives the shell that started it."""
    go = tmp_path / "go"
    agent = ("sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done; echo x > new")
    shell = ("sh", "-c", '"$@"; echo status $?; cat', "sh")
    with Terminal(*shell, PROGRAM, "spawn", "-n1", "--", *agent, cwd=repo.path) as terminal:
        terminal.wait_for("status 0")
        terminal.hang_up()
    go.touch()
    (directory,) = repo.path.glob(".ralph/run/sessions/*")
    assert _report(repo, directory.name[-4:])["ended_by"] == "max-iterations"

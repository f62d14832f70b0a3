"""The exit status of ``run``, and what an agent that cannot be run leaves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.listing import listing
from tests.support.sessions import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

SH = ("--", "sh", "-c")


@pytest.mark.parametrize(
    ("agent", "status"),
    [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 42", 42),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("ulimit -c 0; kill -SEGV $$", 139),
        ("exit 124", 124),
        ("exit 127", 127),
    ],
)
def test_the_last_iterations_status_is_handed_on(repo: Repo, agent: str, status: int) -> None:
    """A signal that killed the agent is 128+n, as in a shell."""
    result = run(repo.path, "-n", "1", *SH, agent)
    assert result.status == status
    assert (result.report["exit_status"], result.report["ended_by"]) == (status, "max-iterations")


@pytest.mark.parametrize(
    ("command", "status", "error", "hint"),
    [
        ("no-such-agent", 127, "was not found", "install it, or name its path"),
        ("{tmp}/no-such-agent", 127, "was not found", "install it, or name its path"),
        ("{tmp}/no-such-directory/agent", 127, "was not found", "install it, or name its path"),
        ("{tmp}/plain", 126, "cannot be run: not an executable file", "chmod +x {tmp}/plain"),
        ("{tmp}/directory", 126, "cannot be run: not an executable file", "chmod +x {tmp}/directory"),
        ("plain", 126, "cannot be run: not an executable file", "chmod +x plain"),
    ],
)
def test_an_agent_that_is_seen_not_to_run_leaves_no_trace(
    repo: Repo, tmp_path: Path, command: str, status: int, error: str, hint: str
) -> None:
    """Bare names and absolute paths are looked up before anything is made."""
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "directory").mkdir()
    before = listing(repo.path)
    command = command.format(tmp=tmp_path)
    path = f"{os.environ['PATH']}:{tmp_path}"
    result = run(repo.path, "--", command, env={"PATH": path} if command == "plain" else {})
    (told,) = result.narration
    assert (told["level"], told["message"]) == ("error", f"agent command {command} {error}")
    assert told["hint"] == hint.format(tmp=tmp_path)
    assert result.status == status
    assert listing(repo.path) == before
    assert not (tmp_path / "home" / "state").exists()


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("./absent.sh", 127, "agent command ./absent.sh was not found in "),
        ("./plain.sh", 126, "agent command ./plain.sh cannot be run: Permission denied"),
        ("./no-interpreter", 126, "agent command ./no-interpreter cannot be run: Exec format error"),
        ("{tmp}/no-interpreter", 126, "agent command {tmp}/no-interpreter cannot be run: Exec format error"),
        ("./lost-interpreter", 127, "agent command ./lost-interpreter was not found in "),
    ],
)
def test_an_agent_that_only_turns_out_not_to_run_leaves_its_report_alone(
    repo: Repo, tmp_path: Path, command: str, status: int, message: str
) -> None:
    """A relative path is looked up in the workspace; there is no branch and no worktree afterwards."""
    repo.write("plain.sh", "#!/bin/sh\n")
    repo.write("no-interpreter", "exit 0\n", executable=True)
    repo.write("lost-interpreter", "#!/no/such/interpreter\n", executable=True)
    repo.commit("agents")
    (tmp_path / "no-interpreter").write_text("exit 0\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    before = repo.fingerprint()
    result = run(repo.path, "--", command.format(tmp=tmp_path))
    assert result.status == status
    errors = [told["message"] for told in result.warnings]
    assert len(errors) == 1
    assert errors[0].startswith(message.format(tmp=tmp_path))
    report = result.report
    assert (report["ended_by"], report["exit_status"], report["branch"]) == ("not-started", status, None)
    assert repo.branches() == ["main"]
    assert repo.worktrees() == []
    assert list((repo.path / ".ralph" / "worktrees").iterdir()) == []
    assert repo.fingerprint() == before


def test_an_agent_that_is_gone_after_its_first_iteration_keeps_its_branch(repo: Repo) -> None:
    """What it did before is work like any other."""
    repo.write("agent.sh", '#!/bin/sh\nrm agent.sh\ngit commit -qam "removed myself"\n', executable=True)
    repo.commit("agent")
    result = run(repo.path, "-n", "2", "--", "./agent.sh")
    assert result.status == 127
    report = result.report
    assert (report["ended_by"], report["iterations"], report["commits"]) == ("error", 2, 1)
    assert report["branch"] in repo.branches()


def test_isolation_that_is_required_and_cannot_be_had_is_125(tmp_path: Path) -> None:
    """The agent does not run, and nothing but the session's records is left."""
    plain = tmp_path / "plain"
    plain.mkdir()
    result = run(plain, "--isolation", "require", "--", "touch", "ran")
    assert result.status == 125
    messages = [told["message"] for told in result.warnings]
    assert messages == [f"isolation is required: {plain} is not in a git repository"]
    assert result.report["exit_status"] == 125
    assert result.report["ended_by"] == "not-started"
    assert [*plain.glob("*"), *plain.glob(".ralph/*")] == [plain / ".ralph", plain / ".ralph" / "run"]

"""A relative command of an agent: the commit that the worktree starts from must have it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_script import TRUSTED
from tests.support.directory_listing import listing
from tests.support.sessions import PROGRAM, run

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = pytest.mark.usefixtures("trusted")

AGENT = "#!/bin/sh\n"


def _refused(repo: Repo, *arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """Run what is refused before anything is made; return status, message and hint."""
    before = listing(repo.path)
    result = run(repo.path, *arguments, cwd=cwd)
    assert listing(repo.path) == before
    (printed,) = result.narration
    return result.status, printed["message"], printed["hint"]


def _typed(hint: str, cwd: Path) -> None:
    """Type a hint as it stands."""
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(("sh", "-ec", hint), check=True, cwd=cwd, env={**os.environ, "PATH": path})


@pytest.mark.parametrize("name", ["agent.sh", "a b.sh", "bin/agent.sh"])
def test_a_script_that_is_not_committed(repo: Repo, name: str) -> None:
    """It leaves no trace, and works after the command of the hint."""
    repo.write(name, AGENT, executable=True)
    status, message, hint = _refused(repo, "-n", "1", "--", f"./{name}")
    assert status == 127
    assert message == (
        f"agent command ./{name} was not found: the worktree has only committed files,"
        f" and {repo.head[:12]} has no {name}"
    )
    repo.write("staged", "by the user\n")
    repo.git("add", "staged")
    _typed(hint, repo.path)
    assert repo.git("show", "--format=", "--name-only", "HEAD") == name
    assert run(repo.path, "-n", "1", "--", f"./{name}").status == 0


def test_a_script_that_git_ignores(repo: Repo) -> None:
    """The command of the hint adds it all the same."""
    repo.write(".gitignore", "*.sh\n")
    repo.commit("rules")
    repo.write("agent.sh", AGENT, executable=True)
    _, _, hint = _refused(repo, "--", "./agent.sh")
    _typed(hint, repo.path)
    assert run(repo.path, "-n", "1", "--", "./agent.sh").status == 0


def test_a_script_that_does_not_exist(repo: Repo) -> None:
    """The hint lists what is committed."""
    status, _, hint = _refused(repo, "--", "./absent.sh")
    assert (status, hint) == (
        127,
        f"to list its files: git -C {repo.path} ls-tree -r --name-only {repo.head[:12]}",
    )
    _typed(hint.removeprefix("to list its files: "), repo.path)


@pytest.mark.parametrize(
    ("command", "reason"),
    [("./plain.sh", "it is not committed as an executable file"), ("./directory", "it is a directory")],
)
def test_a_committed_file_that_cannot_be_run(repo: Repo, command: str, reason: str) -> None:
    """Status 126, as for a shell."""
    repo.write("plain.sh", AGENT)
    repo.write("directory/file")
    repo.commit("agents")
    assert _refused(repo, "--", command)[:2] == (126, f"agent command {command} cannot be run: {reason}")


def test_another_base_has_the_script_or_not(repo: Repo) -> None:
    """That of --base counts, and that of an existing branch before it."""
    first = repo.head
    repo.write("agent.sh", AGENT, executable=True)
    repo.commit("agent")
    repo.git("branch", "old", first)
    repo.git("branch", "new", "HEAD")
    assert _refused(repo, "--base", first, "--", "./agent.sh")[0] == 127
    assert _refused(repo, "--branch", "old", "--", "./agent.sh")[0] == 127
    assert run(repo.path, "-n", "1", "--base", first, "--branch", "new", "--", "./agent.sh").status == 0


@pytest.mark.parametrize(
    ("configuration", "options"),
    [
        ("setup = \"printf '#!/bin/sh\\n' > agent.sh; chmod +x agent.sh\"", ()),
        ('copy = ["agent.sh"]', ()),
        ("", ("--isolation", "off")),
        ("", ("--link", "tools")),
    ],
    ids=["setup", "copy", "plain", "link"],
)
def test_what_the_settings_may_bring_is_not_refused(
    repo: Repo, configuration: str, options: tuple[str, ...]
) -> None:
    """The worktree has it when the agent starts."""
    repo.write(".gitignore", "agent.sh\ntools/\n")
    repo.commit("rules")
    repo.write("agent.sh", AGENT, executable=True)
    repo.write("tools/agent.sh", AGENT, executable=True)
    repo.write(".ralph/config.toml", configuration + "\n")
    program = "./tools/agent.sh" if options[:1] == ("--link",) else "./agent.sh"
    assert run(repo.path, "-n", "1", *options, "--", program, env=TRUSTED).status == 0


def test_a_copy_that_does_not_match_is_refused_later(repo: Repo) -> None:
    """Git alone knows what a pattern matches; the session then says what it has looked for."""
    repo.write(".gitignore", "agent.sh\n")
    repo.commit("rules")
    repo.write("agent.sh", AGENT, executable=True)
    repo.write(".ralph/config.toml", 'copy = [".env"]\n')
    result = run(repo.path, "-n", "1", "--", "./agent.sh")
    assert (result.status, repo.branches()) == (127, ["main"])


def test_a_copy_brings_only_ignored_files(repo: Repo) -> None:
    """So this one is refused at once."""
    repo.write("agent.sh", AGENT, executable=True)
    repo.write(".ralph/config.toml", 'copy = ["agent.sh"]\n')
    assert _refused(repo, "--", "./agent.sh")[0] == 127


def test_a_script_behind_a_symlink_is_left_to_the_start(repo: Repo) -> None:
    """The commit does not say where that leads."""
    (repo.path / "link").symlink_to("real")
    repo.write("real/agent.sh", AGENT, executable=True)
    repo.commit("agent")
    assert run(repo.path, "-n", "1", "--", "./link/agent.sh").status == 0


# A directory that is not committed


@pytest.fixture
def deep(repo: Repo) -> Path:
    """Return a directory that exists on disk alone; a script is committed at the top."""
    repo.write("agent.sh", "#!/bin/sh\npwd\n", executable=True)
    repo.commit("agent")
    directory = repo.path / "new" / "deep"
    directory.mkdir(parents=True)
    return directory


def test_a_start_that_moves_up_is_the_reason(repo: Repo, deep: Path) -> None:
    """The script is committed: git add would not help, and the command of the hint does."""
    status, message, hint = _refused(repo, "-n", "1", "--", "../../agent.sh", cwd=deep)
    assert status == 127
    assert message == (
        "agent command ../../agent.sh was not found:"
        " new/deep is not committed, so the agent starts at the top of its worktree"
    )
    assert hint == f"ralph-wrap run -C {repo.path} --max-iterations 1 -- ./agent.sh"
    _typed(hint, deep)


def test_a_script_that_is_not_committed_either(repo: Repo, deep: Path) -> None:
    """The hint commits it, and starts the agent where it will be found."""
    repo.write("other.sh", AGENT, executable=True)
    _, message, hint = _refused(repo, "-n", "1", "--", "../../other.sh", cwd=deep)
    assert "new/deep is not committed" in message
    _typed(hint, deep)


def test_a_script_in_the_directory_itself(repo: Repo, deep: Path) -> None:
    """Its commit brings the directory, too."""
    repo.write("new/deep/agent.sh", AGENT, executable=True)
    _, message, hint = _refused(repo, "-n", "1", "--", "./other.sh", cwd=deep)
    assert "new/deep is not committed" in message
    assert hint == "name a file that exists, by its path from there"
    repo.git("rm", "-q", "--cached", "agent.sh")
    repo.git("commit", "-qm", "no agent at the top")
    _, message, hint = _refused(repo, "-n", "1", "--", "./agent.sh", cwd=deep)
    assert "new/deep is not committed" in message
    _typed(hint, deep)
    assert run(repo.path, "-n", "1", "--", "./agent.sh", cwd=deep).status == 0


def test_a_path_out_of_the_project(repo: Repo) -> None:
    """In a worktree it leads elsewhere; the hint names the whole path."""
    script = repo.path.parent / "agent.sh"
    script.write_text(AGENT)
    script.chmod(0o755)
    status, message, hint = _refused(repo, "-n", "1", "--", "../agent.sh")
    assert (status, message) == (
        127,
        "agent command ../agent.sh was not found: it leads out of the agent's worktree",
    )
    assert hint == f"ralph-wrap run -C {repo.path} --max-iterations 1 -- {script}"
    _typed(hint, repo.path)


def _git_processes(repo: Repo, trace: Path, *command: str) -> int:
    """Return how many git processes a session starts, without status: a very young file costs one more."""
    result: Result = run(repo.path, "-n", "1", "--", *command, env={"GIT_TRACE2_EVENT": str(trace)})
    assert result.status == 0
    starts = [line for line in trace.read_text().splitlines() if '"event":"start"' in line]
    return sum('"status"' not in line for line in starts)


def test_only_a_relative_command_costs_a_git_process(repo: Repo, tmp_path: Path) -> None:
    """One more; a bare name and an absolute path cost none."""
    repo.write(".gitignore", ".ralph/\n")
    repo.write("agent.sh", AGENT, executable=True)
    repo.commit("agent")
    bare = _git_processes(repo, tmp_path / "bare", "true")
    assert _git_processes(repo, tmp_path / "absolute", "/bin/true") == bare
    assert _git_processes(repo, tmp_path / "relative", "./agent.sh") == bare + 1

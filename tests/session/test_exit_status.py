"""The exit status of ``run``, and what an agent that cannot be run leaves."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.git_shim import path_without_git
from tests.support.sessions import Result, run

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
        (
            "no-such-agent",
            127,
            "was not found",
            "install it, or type its path in place of no-such-agent: /path/to/no-such-agent",
        ),
        ("{tmp}/no-such-agent", 127, "was not found", "name a file that exists"),
        ("{tmp}/no-such-directory/agent", 127, "was not found", "name a file that exists"),
        ("{tmp}/plain", 126, "cannot be run: not an executable file", "chmod +x {tmp}/plain"),
        ("{tmp}/directory", 126, "cannot be run: not an executable file", "name a file"),
        ("plain", 126, "cannot be run: not an executable file", "chmod +x {tmp}/plain"),
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
    (printed,) = result.narration
    assert (printed["level"], printed["message"]) == ("error", f"agent command {command} {error}")
    assert printed["hint"] == hint.format(tmp=tmp_path)
    assert result.status == status
    assert listing(repo.path) == before
    assert not (tmp_path / "home" / "state").exists()


def test_the_error_of_a_missing_agent_says_what_installs_it(repo: Repo, tmp_path: Path) -> None:
    """Or with how it is run from elsewhere."""
    path = path_without_git(tmp_path / "bin")
    result = run(repo.path, "-a", "claude", "-p", "x", env={"PATH": path})
    (printed,) = result.warnings
    assert (result.status, printed["message"]) == (127, "agent command claude was not found")
    assert printed["hint"] == (
        "to install it: npm install -g @anthropic-ai/claude-code\n"
        "if it is installed: add its directory to PATH"
    )


@pytest.mark.parametrize("style", ["stdin", "file"])
def test_a_prompt_too_long_for_an_argument_has_a_way_out(repo: Repo, style: str) -> None:
    """The system takes no argument of 128 KiB; the hint names the settings that hand the prompt over else."""
    repo.write("BIG.md", "a" * 200_000 + "\n")
    repo.commit("a long prompt")
    agent = {"argument": '"sh", "-c", "true", "{prompt}"', "stdin": '"cat"', "file": '"cat", "{prompt_file}"'}

    def start(style: str) -> Result:
        table = f'[agents.mine]\ncommand = [{agent[style]}]\nprompt = "{style}"\n'
        repo.write(".ralph/config.toml", table)
        return run(repo.path, "-n", "1", "-a", "mine", "-f", "BIG.md", env={"RALPH_TRUST": "1"})

    refused = start("argument")
    (printed,) = refused.warnings
    assert (refused.status, printed["message"]) == (
        126,
        "agent command sh cannot be run: Argument list too long",
    )
    assert "shorter than 128 KiB" in printed["hint"]
    assert f'"{style}"' in printed["hint"]
    assert start(style).status == 0


NEEDS_AN_INTERPRETER = "its first line must name an interpreter: #!/bin/sh"


@pytest.mark.parametrize(
    ("command", "status", "message", "hint"),
    [
        ("./no-interpreter", 126, "cannot be run: Exec format error", NEEDS_AN_INTERPRETER),
        ("{tmp}/no-interpreter", 126, "cannot be run: Exec format error", NEEDS_AN_INTERPRETER),
        (
            "./lost-interpreter",
            127,
            "was not found in ",
            "the file exists, but the interpreter in its first line does not",
        ),
    ],
)
def test_an_agent_that_only_turns_out_not_to_run_leaves_its_report_alone(
    repo: Repo, tmp_path: Path, command: str, status: int, message: str, hint: str | None
) -> None:
    """A relative path is looked up in the workspace; there is no branch and no worktree afterwards."""
    repo.write("no-interpreter", "exit 0\n", executable=True)
    repo.write("lost-interpreter", "#!/no/such/interpreter\n", executable=True)
    repo.commit("agents")
    (tmp_path / "no-interpreter").write_text("exit 0\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    before = repo.fingerprint()
    result = run(repo.path, "--", command.format(tmp=tmp_path))
    assert result.status == status
    (printed,) = result.warnings
    assert printed["message"].startswith(f"agent command {command.format(tmp=tmp_path)} {message}")
    assert printed.get("hint") == hint
    report = result.report
    assert (report["ended_by"], report["exit_status"], report["branch"]) == ("not-started", status, None)
    assert repo.branches() == ["main"]
    assert repo.worktrees() == []
    assert list((repo.path / ".ralph" / "worktrees").iterdir()) == []
    assert repo.fingerprint() == before


@pytest.mark.parametrize("isolation", ["require", "off"])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_hint_for_an_agent_that_may_not_run_works_as_typed(
    repo: Repo, tmp_path: Path, isolation: str, *, elsewhere: bool
) -> None:
    """Where the mistake was made; a commit is only needed where a commit is worked on."""
    repo.write("sub dir/my agent.sh", "#!/bin/sh\n")
    repo.commit("an agent")
    here = tmp_path if elsewhere else repo.path / "sub dir"
    project = ("-C", repo.path / "sub dir") if elsewhere else ()
    asked = (*project, "-n", "1", "--isolation", isolation, "--", "./my agent.sh")
    refused = run(repo.path, *asked, cwd=here)
    assert refused.status == 126
    (printed,) = refused.warnings
    assert ("git commit" in printed["hint"]) == (isolation == "require")
    subprocess.run(("sh", "-c", printed["hint"]), check=True, cwd=here)  # GIT_EDITOR is false
    assert run(repo.path, *asked, cwd=here).status == 0


def test_an_agent_that_is_missing_in_the_plain_root_is_not_to_be_committed(repo: Repo) -> None:
    """There the session works on no commit."""
    (printed,) = run(repo.path, "--isolation", "off", "--", "./absent.sh").warnings
    assert printed["message"] == f"agent command ./absent.sh was not found in {repo.path}"
    assert printed["hint"] == f"to see what is there: ls {repo.path}"


@pytest.mark.parametrize(("name", "ignored"), [("agent.sh", ""), ("a b.sh", ""), ("bin/agent.sh", "bin/")])
def test_the_hint_for_an_agent_that_is_not_committed_works_as_typed(
    repo: Repo, name: str, ignored: str
) -> None:
    """It commits the script alone, also one that git ignores; before that nothing of the session is left."""
    repo.write(".gitignore", f"{ignored}\n")
    repo.commit("rules")
    repo.write(name, "#!/bin/sh\n", executable=True)
    refused = run(repo.path, "-n", "1", "--", f"./{name}")
    (printed,) = refused.warnings
    assert (refused.status, repo.branches(), repo.worktrees()) == (127, ["main"], [])
    repo.write("staged", "by the user\n")
    repo.git("add", "staged")
    subprocess.run(("sh", "-ec", printed["hint"].rpartition("files: ")[2]), check=True, cwd=repo.path)
    assert repo.git("show", "--format=", "--name-only", "HEAD") == name
    assert run(repo.path, "-n", "1", "--", f"./{name}").status == 0


def test_an_agent_that_only_head_has_is_told_so(repo: Repo) -> None:
    """A commit changes nothing: the session starts from another one."""
    first = repo.head
    repo.write("agent.sh", "#!/bin/sh\n", executable=True)
    repo.commit("agent")
    refused = run(repo.path, "-n", "1", "--base", first, "--", "./agent.sh")
    (printed,) = refused.warnings
    assert (refused.status, "see --base and --branch" in printed["hint"]) == (127, True)


def test_an_agent_outside_of_the_project_needs_its_whole_path(repo: Repo) -> None:
    """In a worktree, a relative path leads elsewhere."""
    script = repo.path.parent / "my agent.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    refused = run(repo.path, "-n", "1", "--", "../my agent.sh")
    (printed,) = refused.warnings
    assert (refused.status, printed["hint"]) == (
        127,
        f"the worktree is elsewhere: name the whole path, '{script}'",
    )
    assert run(repo.path, "-n", "1", "--", script).status == 0


@pytest.mark.parametrize("brought", ['setup = "cp {} agent.sh"', 'copy = ["agent.sh"]'])
def test_an_agent_that_the_settings_bring_is_started(repo: Repo, brought: str) -> None:
    """The worktree has it when the agent starts, although no commit does."""
    repo.write(".gitignore", "agent.sh\n")
    repo.commit("rules")
    script = repo.write("agent.sh", "#!/bin/sh\n", executable=True)
    repo.write(".ralph/config.toml", f"{brought.format(script)}\n")
    assert run(repo.path, "-n", "1", "--", "./agent.sh", env={"RALPH_TRUST": "1"}).status == 0


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
    messages = [printed["message"] for printed in result.warnings]
    assert messages == [f"isolation is required: {plain} is not in a git repository"]
    assert result.report["exit_status"] == 125
    assert result.report["ended_by"] == "not-started"
    assert [*plain.glob("*"), *plain.glob(".ralph/*")] == [plain / ".ralph", plain / ".ralph" / "run"]

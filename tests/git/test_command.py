"""Git's command line from our side: what it inherits, and its version."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ralph_wrap import git
from ralph_wrap.errors import GitError, GitTooOldError
from ralph_wrap.git import Git, command, git_environment, run_git
from ralph_wrap.git.status import start_status
from tests.git.repositories import git_in, refusal
from tests.support.git_shim import old_git, shim_git
from tests.support.needs import git_since, needs
from tests.support.repo import Repo

KEPT = [
    *["GIT_SSH_VARIANT", "GIT_SSL_CERT", "GIT_HTTP_USER_AGENT", "GIT_PROXY_SSL_CERT", "GIT_ALLOW_PROTOCOL"],
    *["GIT_USERNAME", "GIT_PASSWORD", "GIT_TOKEN", "GIT_MY_CREDENTIALS", "GIT_BOT_LOGIN"],
    *["GIT_ASKPASS", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_EXEC_PATH"],
    *["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_KEY_12"],
    *["GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_TEMPLATE_DIR"],
    *["GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_TERMINAL_PROMPT", "GIT_TRACE", "GIT_TRACE2_EVENT"],
    *["GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_NO_VERIFY", "GIT_LFS_SKIP_SMUDGE"],
    *["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"],
    *["GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE"],
    *["HOME", "PATH", "GITHUB_TOKEN", "LEGIT_DIR"],
]


# Environment


@pytest.mark.parametrize("name", KEPT)
def test_the_users_choice_is_kept(name: str) -> None:
    """Identity, credentials, configuration, debugging, and all that is not git's."""
    assert git.git_environment({name: "value"}) == {name: "value"}
    assert git.environment_without_repository({name: "value"}) == {name: "value"}


def test_what_points_at_a_repository_is_dropped() -> None:
    """Everything in git's own list of such variables but the count of configuration pairs."""
    answer = subprocess.run(
        ("git", "rev-parse", "--local-env-vars"), capture_output=True, check=True, text=True
    )
    names = answer.stdout.split()
    assert len(names) > 10
    for kept in (git.git_environment, git.environment_without_repository):
        assert kept(dict.fromkeys(names, "value")).keys() <= {"GIT_CONFIG_COUNT"}


@pytest.mark.parametrize("name", ["GIT_NAMESPACE", "GIT_CONFIG", "GIT_LITERAL_PATHSPECS", "GIT_OF_TOMORROW"])
def test_unknown_variables_are_dropped(name: str) -> None:
    """New variables come with new versions of git, and could mean another answer to our git."""
    assert git.git_environment({name: "value"}) == {}


@pytest.mark.parametrize("name", ["GIT_NAMESPACE", "GIT_LITERAL_PATHSPECS", "GIT_OF_TOMORROW", "GIT_PAGER"])
def test_the_agent_keeps_all_that_names_no_repository(name: str) -> None:
    """It is the user's program, and knows what its own variables mean."""
    assert git.environment_without_repository({name: "value"}) == {name: "value"}


@needs(git_since(2, 31))
def test_configuration_is_added_behind_the_users() -> None:
    """Pairs that were passed in stay, and every git below sees all of them."""
    first = git.environment_with_config(os.environ, "safe.directory", "/x")
    second = git.environment_with_config(first, "user.nickname", "two words")
    asked = ("git", "config", "--get-regexp", "^(safe|user)")
    answer = subprocess.run(asked, env=second, capture_output=True, check=True, text=True)
    assert answer.stdout == "safe.directory /x\nuser.nickname two words\n"
    assert second["GIT_CONFIG_COUNT"] == "2"


@pytest.mark.parametrize(
    ("variable", "program", "command"),
    [
        ("core.hooksPath", "hooks/reference-transaction", ("branch", "other")),
        ("core.fsmonitor", "monitor", ("status",)),
    ],
)
def test_our_own_calls_run_nothing_of_the_repository(
    repo: Repo, variable: str, program: str, command: tuple[str, ...]
) -> None:
    """Neither hooks nor a file system monitor, which an agent could have put there; other calls do."""
    marker = repo.path.parent / "has-run"
    repo.write(program, f"#!/bin/sh\ntouch {marker}\n", executable=True)
    repo.git("config", variable, repo.path / program.removesuffix("/reference-transaction"))
    git.create_ref(git_in(repo.path), "refs/heads/new", repo.head, "a test")
    with start_status(git_in(repo.path)) as status:
        git.finish_git(status, "status")
    assert not marker.exists()
    repo.git(*command)
    assert marker.exists()


# Versions


@pytest.mark.parametrize(
    ("output", "version"),
    [
        (b"git version 2.39.5\n", (2, 39, 5)),
        (b"git version 2.39.5 (Apple Git-154)\n", (2, 39, 5)),
        (b"git version 2.47.1.windows.2\n", (2, 47, 1)),
        (b"git version 2.15.0-rc1\n", (2, 15, 0)),
        (b"git version 2.50.GIT\n", (2, 50)),
        (b"git version 3.0\n", (3, 0)),
        (b"git version 1.8.3.1\n", (1, 8, 3)),
        (b"git version two\n", git.OLDEST),
        (b"", git.OLDEST),
    ],
)
def test_a_version_is_read(output: bytes, version: tuple[int, ...]) -> None:
    """In every form that gits have; one that cannot be read is no reason to refuse it."""
    assert git.parse_version(output) == version


@pytest.mark.parametrize("version", ["2.14.6", "1.9.1"])
def test_git_before_2_15_is_too_old(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The error says so, instead of the first git command that fails."""
    monkeypatch.setenv("PATH", old_git(tmp_path / "bin", version))
    assert refusal(repo.path) == (
        GitTooOldError,
        f"git {version} is older than 2.15",
        "install git 2.30 or newer",
    )


def test_git_2_15_is_not_too_old(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest that does."""
    monkeypatch.setenv("PATH", old_git(tmp_path / "bin", "2.15.0"))
    assert git.locate_repository(git_in(repo.path)).git_version == (2, 15, 0)


def test_without_git_there_is_no_such_file(repo: Repo, tmp_path: Path) -> None:
    """The caller knows what to say about that."""
    with pytest.raises(FileNotFoundError):
        git.locate_repository(Git(repo.path, {"PATH": str(tmp_path)}))


WORKS = 'for n in 1 2 3 4; do timeout 1 sh -c "while :; do :; done"; done'


@pytest.mark.parametrize(("does", "ends"), [(WORKS, True), ("exec sleep 30", False)], ids=["work", "nothing"])
def test_a_command_that_works_has_more_time(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, ends: bool
) -> None:
    """A filter of a save may take long; one that hangs does nothing."""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "shim", f'*" var "*) {does}; exit 0 ;;'))
    monkeypatch.setattr(command, "_QUICK_PATIENCE", 2.0)
    try:
        run_git(Git(repo.path, git_environment(os.environ)), "var", "GIT_EDITOR")
        has_ended = True
    except GitError as error:
        has_ended = "no end after" not in str(error)
    assert has_ended == ends

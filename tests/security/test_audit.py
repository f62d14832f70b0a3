"""Tampering is seen without a baseline (rows 7 and 8): each kind of it, and nothing where there is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.git.config_file import parse
from ralph_wrap.state.audit import look
from ralph_wrap.state.audit.scan import scan
from ralph_wrap.state.project import find_project_without_git
from tests.security.tamperings import TAMPERINGS, Tampering, submodule
from tests.support.needs import needs, program
from tests.support.sessions import command

if TYPE_CHECKING:
    from ralph_wrap.state.audit.finding import Finding
    from tests.support.repo import Repo


def _scanned(repo: Repo) -> list[Finding]:
    return [*scan(repo.path, os.environ).findings]


def _audited(repo: Repo) -> list[str]:
    project = find_project_without_git(repo.path, os.environ)
    assert project is not None
    return [finding.title for finding in look.audit(project).findings]


@pytest.mark.parametrize("tampering", TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampering_is_found(repo: Repo, tampering: Tampering) -> None:
    """By its name, at the first look, and before it nothing was found; no value is shown."""
    assert _scanned(repo) == []
    tampering.make(repo)
    found = _scanned(repo)
    assert any(tampering.title in finding.title for finding in found), found
    assert all(
        "evil" not in finding.line.replace("evil.example/.insteadof", "").replace(".evil.", "")
        for finding in found
    )


def test_an_ordinary_repository_is_silent(repo: Repo) -> None:
    """It has worktrees, submodules, remotes, an upstream, packed refs and settings of its user."""
    repo.git("remote", "add", "origin", "https://example.invalid/project.git")
    repo.git("config", "branch.main.remote", "origin")
    repo.git("config", "branch.main.merge", "refs/heads/main")
    repo.git("config", "user.signingKey", "ABC")
    repo.git("config", "core.fsmonitor", "true")
    repo.git("config", "pull.rebase", "true")
    repo.git("worktree", "add", "-q", "../linked", "-b", "linked")
    submodule(repo)
    repo.write(".git/info/attributes", "# only a comment\n")
    repo.write(".git/hooks/pre-commit", "not executable, so git does not run it\n")
    assert command("worktree", "create", "quick", "--hooks", "off", cwd=repo.path).status == 0
    repo.git("pack-refs", "--all")
    repo.git("gc", "-q")
    assert _scanned(repo) == []


@needs(program("git-lfs", "git-lfs"))
def test_lfs_is_silent(repo: Repo) -> None:
    """Its keys and hooks name the git-lfs of the user's own PATH."""
    repo.git("lfs", "install", "--local")
    assert (repo.path / ".git/hooks/pre-push").exists()
    assert _scanned(repo) == []


def test_what_was_there_before_the_first_session_is_accepted(repo: Repo) -> None:
    """The hooks of pre-commit and husky are the user's own; a change of one is another finding."""
    repo.write(".git/hooks/pre-commit", "#!/bin/sh\nexec pre-commit\n", executable=True)
    repo.git("config", "core.hooksPath", ".husky/_")
    repo.write(".husky/_/pre-push", "#!/bin/sh\n", executable=True)
    assert _audited(repo) == []
    repo.write(".husky/_/pre-push", "#!/bin/sh\nevil\n", executable=True)
    assert _audited(repo) == [".husky/_/pre-push"]


def test_after_a_session_nothing_is_accepted_by_itself(repo: Repo) -> None:
    """A machine that sees the project for the first time then does not know whose hook this is."""
    repo.write(".ralph/run/sessions/20260102T030405Z-abcd/record.json", "{}")
    repo.write(".git/hooks/pre-commit", "#!/bin/sh\n", executable=True)
    assert _audited(repo) == [".git/hooks/pre-commit"]
    assert _audited(repo) == [".git/hooks/pre-commit"], "a finding stays until the user decides"


def test_another_address_of_a_remote_is_found(repo: Repo) -> None:
    """It is harmless by itself, so only a look before can show it."""
    repo.git("remote", "add", "origin", "https://example.invalid/project.git")
    assert _audited(repo) == []
    repo.git("remote", "set-url", "origin", "https://evil.example/project.git")
    assert _audited(repo) == [".git/config: remote.origin.url"]


CHANGES = {
    "another identity": ("git config user.email other@example.invalid", ["user.email"]),
    "an identity of the author": ("git config author.name Other", ["author.name"]),
    "another key": ("git config user.signingKey ABC", ["user.signingkey"]),
    "no identity": ("git config --unset user.email", ["user.email"]),
    "a new remote": ("git remote add evil https://x.invalid", ["remote.evil.fetch", "remote.evil.url"]),
    "no remote": ("git remote remove origin", ["remote.origin.fetch", "remote.origin.url"]),
    "refs to push": ("git config remote.origin.push +refs/heads/*", ["remote.origin.push"]),
    "a remote for pushes": ("git config remote.pushDefault origin", ["remote.pushdefault"]),
    "in a file of the worktree": (
        "git config extensions.worktreeConfig true; git config --worktree user.name Other",
        ["user.name"],
    ),
}


@pytest.mark.parametrize(("made", "keys"), CHANGES.values(), ids=CHANGES)
def test_a_changed_key_is_found_and_undone(repo: Repo, made: str, keys: list[str]) -> None:
    """Keys of the identity and of remotes are harmless until they change; an undo gives them their values."""
    repo.git("remote", "add", "origin", "https://example.invalid/project.git")
    repo.git("config", "user.email", "user@example.invalid")
    assert _audited(repo) == []
    before = repo.git("config", "--local", "--list")
    assert os.system(f"cd {repo.path} && {{ {made}; }}") == 0  # noqa: S605 -- what an agent types
    where = ".git/config.worktree" if "--worktree" in made else ".git/config"
    assert _audited(repo) == [f"{where}: {key}" for key in keys]
    assert command("audit", "--undo", cwd=repo.path).status == 0
    assert _audited(repo) == []
    after = repo.git("config", "--local", "--list").splitlines()
    assert sorted(line for line in after if "worktreeconfig" not in line) == sorted(before.splitlines())
    assert "Other" not in repo.git("config", "--list")


def test_a_note_of_gh_is_no_change(repo: Repo) -> None:
    """It writes into the configuration which remote has the pull requests."""
    repo.git("remote", "add", "origin", "https://example.invalid/project.git")
    assert _audited(repo) == []
    repo.git("config", "remote.origin.gh-resolved", "base")
    assert _audited(repo) == []


CONFIGURATIONS = [
    b"[a]\nb=c\n",
    b'[a "B c"]\n\tD = " e ; f" ; g\n',
    b'[a "b\\"\\\\c"] d\n',
    b"\xef\xbb\xbf[a.B]\r\n c = d \\\r\n e\r\n",
    b"[a]\nb = c\\\n",
    b"[a]b=c\\td\\n\n#e\n;f\n[g]h",
    b"k = v\n",
    b'[ "s"]\nk\n',
    b"[]\nk=v\n",
    b'[a]\nb = "c\n',
    b"[a]\nb = \\q\n",
    b"[a]\nb c\n",
    b"[a]\n1 = c\n",
    b"[a b]\nc = d\n",
]


@pytest.mark.parametrize("content", CONFIGURATIONS)
def test_a_configuration_is_read_as_git_reads_it(repo: Repo, content: bytes) -> None:
    """A key that only git sees would be a way around the audit."""
    path = repo.path / "some-config"
    path.write_bytes(content)
    listed = repo.git("config", "--file", path, "--list", "-z", check=False)
    refused = repo.git("config", "--file", path, "--list", check=False) == ""
    try:
        ours: list[tuple[str, str | None]] | None = parse(content)
    except ValueError:
        ours = None
    entries = [entry.partition("\n") for entry in listed.split("\0")[:-1]]
    theirs = [(key, value if newline else None) for key, newline, value in entries]
    assert ours == (None if refused else theirs)

"""Which changes change what other programs run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.branches.touches import ChangedFile, touches_of
from ralph_wrap.git import git_environment
from ralph_wrap.git.command import Git

if TYPE_CHECKING:
    from tests.support.repo import Repo

PLAIN, EXECUTABLE, LINK, NONE = "100644", "100755", "120000", "000000"


def _kind(repo: Repo, path: str, before: str, after: str, oid: str = "", *, tests: bool = False) -> str:
    git = Git(repo.path, git_environment(os.environ))
    changed = {"x": [ChangedFile(path, before, after, oid)]}
    touches = touches_of(git, changed, {"x": "HEAD"}, tests=tests)["x"]
    return touches[0].kind if touches else ""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (".gitattributes", "git"),
        ("deep/down/.gitattributes", "git"),
        (".gitmodules", "git"),
        (".husky/pre-commit", "hooks"),
        (".pre-commit-config.yaml", "hooks"),
        ("lefthook.yml", "hooks"),
        (".github/workflows/test.yml", "ci"),
        (".github/ISSUE_TEMPLATE.md", ""),
        (".gitlab-ci.yml", "ci"),
        (".vscode/tasks.json", "editor"),
        ("a.code-workspace", "editor"),
        (".envrc", "editor"),
        (".claude/settings.json", "agent"),
        ("package.json", "build"),
        ("packages/a/package.json", "build"),
        ("Makefile", "build"),
        ("my-package.json", ""),
        ("package.json.md", ""),
        ("src/main.py", ""),
        ("xhusky/pre-commit", ""),
    ],
)
def test_names(repo: Repo, path: str, kind: str) -> None:
    """A name counts in any directory, and as a whole."""
    assert _kind(repo, path, PLAIN, PLAIN) == kind
    assert _kind(repo, path, PLAIN, NONE) == kind, "a removal counts as well"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/test_login.py", "tests"),
        ("src/login.test.ts", "tests"),
        ("pkg/login_test.go", "tests"),
        ("spec/models/user_spec.rb", "tests"),
        ("src/test/java/LoginTest.java", "tests"),
        ("conftest.py", "tests"),
        ("src/contest.py", ""),
        ("src/latest.py", ""),
        ("docs/testing.md", ""),
        # The kind without a gate comes first: it says more.
        ("tests/.github/workflows/x.yml", "ci"),
        ("tests/package.json", "build"),
    ],
)
def test_names_of_tests(repo: Repo, path: str, kind: str) -> None:
    """They count only if a gate runs them."""
    assert _kind(repo, path, PLAIN, PLAIN, tests=True) == kind
    assert _kind(repo, path, PLAIN, PLAIN) == kind.replace("tests", "")


def test_a_test_that_becomes_executable(repo: Repo) -> None:
    """Is named without a gate, too."""
    assert _kind(repo, "tests/run.sh", PLAIN, EXECUTABLE) == "executable"


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (NONE, EXECUTABLE, "executable"),
        (PLAIN, EXECUTABLE, "executable"),
        (EXECUTABLE, EXECUTABLE, ""),
        (EXECUTABLE, PLAIN, ""),
        (NONE, PLAIN, ""),
    ],
)
def test_executable_bits(repo: Repo, before: str, after: str, kind: str) -> None:
    """A file that becomes executable is named; its further changes are ordinary ones."""
    assert _kind(repo, "tool", before, after) == kind


@pytest.mark.parametrize(
    ("path", "target", "kind"),
    [
        ("a/link", "../b", ""),
        ("a/link", "../../b", "symlink"),
        ("link", "/etc/passwd", "symlink"),
        ("link", ".git/hooks", "symlink"),
        ("a/link", "../.git", "symlink"),
        ("link", "x/../../y", "symlink"),
        ("link", ".github", ""),
        ("link", "x" * 5000, "symlink"),
    ],
)
def test_symlinks(repo: Repo, path: str, target: str, kind: str) -> None:
    """One that leads out of the repository, or into git's own directory."""
    blob = repo.write("blob", target)
    oid = repo.git("hash-object", "-w", blob)
    assert _kind(repo, path, NONE, LINK, oid) == kind


def test_a_missing_symlink_leads_anywhere(repo: Repo) -> None:
    """What cannot be read is not called harmless."""
    assert _kind(repo, "link", NONE, LINK, "0" * 39 + "1") == "symlink"


def test_a_repository_that_gitmodules_does_not_name(repo: Repo) -> None:
    """Only a new one counts: a submodule that moves on is named by its own files."""
    link = "160000"
    assert _kind(repo, "sub", NONE, link) == "gitlink"
    assert _kind(repo, "sub", PLAIN, link) == "gitlink"
    assert _kind(repo, "sub", link, link) == ""
    repo.write(".gitmodules", '[submodule "x"]\n\tpath = sub\n\turl = ../x\n')
    repo.commit("modules")
    assert _kind(repo, "sub", NONE, link) == ""
    assert _kind(repo, "other", NONE, link) == "gitlink"
    repo.write(".gitmodules", "no configuration [")
    repo.commit("broken")
    assert _kind(repo, "sub", NONE, link) == "gitlink"

"""Git's command line from our side: what it inherits, what it answers, what it refuses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap import git
from ralph_wrap.errors import GitError, GitTooOldError, IsolationError, NotARepositoryError, RalphError
from ralph_wrap.git import Git, Repository, Status
from tests.support.repo import Repo, make_repo
from tests.support.shim import shim_git

KEPT = [
    *["GIT_ASKPASS", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_EXEC_PATH"],
    *["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_KEY_12"],
    *["GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_TEMPLATE_DIR"],
    *["GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_TERMINAL_PROMPT", "GIT_TRACE", "GIT_TRACE2_EVENT"],
    *["GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_NO_VERIFY", "GIT_LFS_SKIP_SMUDGE"],
    *["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"],
    *["GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE"],
    *["HOME", "PATH", "GITHUB_TOKEN", "LEGIT_DIR"],
]

NAMES = [
    *[b"plain", b"with space", b"new\nline", b"end\n", b"\n", b"\xff\xfe", b"-x", b"'\"$(x)"],
    "\u00fc\u2028".encode(),
]
"""Names of directories that a file system allows."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")


def _git(directory: Path) -> Git:
    return Git(directory, git.git_environment(os.environ))


def _repository(repo: Repo, **differences: object) -> Repository:
    """Return what is to be found in a scratch repository, but for the version of git."""
    expected: dict[str, Any] = {
        "root": repo.path,
        "common_dir": repo.path / ".git",
        "prefix": Path(),
        "head": repo.head,
    }
    version = git.parse_version(repo.git("version").encode())
    return Repository(
        **{**expected, **differences},
        git_version=version,
        file_mode=True,
        symlinks=True,
        names_committer=False,
    )


def _refusal(directory: Path) -> tuple[type[RalphError], str, str]:
    """Return what is said of a directory in which no repository can be found."""
    with pytest.raises(RalphError) as caught:
        git.locate_repository(_git(directory))
    return type(caught.value), caught.value.message, caught.value.hint


# Environment


@pytest.mark.parametrize("name", KEPT)
def test_what_is_the_users_choice_is_kept(name: str) -> None:
    """Identity, credentials, configuration, debugging, and all that is not git's."""
    assert git.git_environment({name: "value"}) == {name: "value"}


def test_what_points_at_a_repository_is_dropped() -> None:
    """Everything in git's own list of such variables but the count of configuration pairs."""
    answer = subprocess.run(
        ("git", "rev-parse", "--local-env-vars"), capture_output=True, check=True, text=True
    )
    names = answer.stdout.split()
    assert len(names) > 10
    assert list(git.git_environment(dict.fromkeys(names, "value"))) == ["GIT_CONFIG_COUNT"]


@pytest.mark.parametrize("name", ["GIT_NAMESPACE", "GIT_CONFIG", "GIT_LITERAL_PATHSPECS", "GIT_OF_TOMORROW"])
def test_what_is_not_known_is_dropped(name: str) -> None:
    """New variables come with new versions of git."""
    assert git.git_environment({name: "value"}) == {}


def test_configuration_is_added_behind_what_is_there() -> None:
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
    git.create_ref(_git(repo.path), "refs/heads/new", repo.head, "a test")
    with git.start_status(_git(repo.path)) as status:
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


def _shimmed(version: str, directory: Path) -> str:
    return shim_git(directory, f'*" version "*) echo git version {version}; exit ;;')


@pytest.mark.parametrize("version", ["2.14.6", "1.9.1"])
def test_git_before_2_15_is_too_old(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Told as such, not by whatever fails first."""
    monkeypatch.setenv("PATH", _shimmed(version, tmp_path / "bin"))
    assert _refusal(repo.path) == (
        GitTooOldError,
        f"git {version} is older than 2.15",
        "install git 2.15 or newer",
    )


def test_git_2_15_is_not_too_old(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest that does."""
    monkeypatch.setenv("PATH", _shimmed("2.15.0", tmp_path / "bin"))
    assert git.locate_repository(_git(repo.path)).git_version == (2, 15, 0)


def test_without_git_there_is_no_such_file(repo: Repo, tmp_path: Path) -> None:
    """The caller knows what to say about that."""
    with pytest.raises(FileNotFoundError):
        git.locate_repository(Git(repo.path, {"PATH": str(tmp_path)}))


# Places


@pytest.mark.parametrize("name", NAMES)
def test_a_repository_is_found_under_any_name(tmp_path: Path, name: bytes) -> None:
    """From its top and from a directory of the same name below."""
    repo = make_repo(tmp_path / os.fsdecode(name))
    below = repo.path / os.fsdecode(name)
    below.mkdir()
    found = [git.locate_repository(_git(repo.path)), git.locate_repository(_git(below))]
    assert found == [_repository(repo), _repository(repo, prefix=Path(os.fsdecode(name)))]


def test_a_linked_worktree_is_a_checkout_of_its_own(repo: Repo) -> None:
    """With the repository's common directory."""
    linked = repo.path.parent / "linked"
    repo.git("worktree", "add", "-q", linked)
    assert git.locate_repository(_git(linked)) == _repository(repo, root=linked)


def test_before_the_first_commit_there_is_no_head(tmp_path: Path) -> None:
    """It is a repository all the same."""
    repo = make_repo(tmp_path / "empty", empty=True)
    assert git.locate_repository(_git(repo.path)).head is None


def test_a_bare_repository_has_nothing_to_work_in(repo: Repo) -> None:
    """The hint says what has."""
    bare = repo.path.parent / "bare"
    repo.git("clone", "-q", "--bare", repo.path, bare)
    assert _refusal(bare) == (
        IsolationError,
        f"{bare} is a bare repository: it has no checkout to work in",
        "name a checkout of it with --project",
    )


def test_inside_a_git_directory_is_no_checkout(repo: Repo) -> None:
    """Although git answers there."""
    inside = repo.path / ".git" / "refs"
    assert _refusal(inside) == (
        IsolationError,
        f"{inside} is inside a .git directory",
        "name the checkout with --project",
    )


def test_an_ordinary_directory_is_no_repository(tmp_path: Path) -> None:
    """The hint makes it one, with a commit to start from, as it is typed."""
    place = tmp_path / "empty"
    place.mkdir()
    hint = 'git init && git commit --allow-empty -m "First commit"'
    assert _refusal(place) == (NotARepositoryError, f"{place} is not in a git repository", hint)
    subprocess.run(("sh", "-c", hint), cwd=place, check=True, capture_output=True)
    assert git.locate_repository(Git(place, git.git_environment(os.environ))).head is not None


@needs_root
def test_somebody_elses_repository_is_refused_with_the_cure(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git's own words, and the setting that helps, which is one that passes through."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    expected = _repository(repo)
    subprocess.run(("chown", "-R", "54321:54321", repo.path), check=True)
    kind, message, hint = _refusal(repo.path)
    assert kind is IsolationError
    assert message.startswith("git rev-parse failed (128): fatal: ")
    assert str(repo.path) in message
    assert hint == f"if it belongs to another user: git config --global --add safe.directory {repo.path}"
    trusting = git.environment_with_config(git.git_environment(os.environ), "safe.directory", str(repo.path))
    assert git.locate_repository(Git(repo.path, trusting)) == expected


# Refs and commits


def test_a_ref_is_created_once(repo: Repo) -> None:
    """Whoever comes second gets an error, and the ref stays."""
    first = repo.head
    second = repo.commit("second")
    git.create_ref(_git(repo.path), "refs/heads/new", first, "a test")
    with pytest.raises(GitError):
        git.create_ref(_git(repo.path), "refs/heads/new", second, "a test")
    assert repo.git("rev-parse", "refs/heads/new") == first


def test_a_ref_in_the_way_is_an_error(repo: Repo) -> None:
    """A branch ``ralph`` leaves no room for ``ralph/a3f2``."""
    repo.git("branch", "ralph")
    with pytest.raises(GitError):
        git.create_ref(_git(repo.path), "refs/heads/ralph/a3f2", repo.head, "a test")
    assert repo.branches() == ["main", "ralph"]


def test_a_ref_is_deleted_only_as_it_was_seen(repo: Repo) -> None:
    """If it has moved on in the meantime it stays."""
    seen = repo.head
    repo.commit("second")
    repo.git("branch", "new")
    with pytest.raises(GitError):
        git.delete_ref(_git(repo.path), "refs/heads/new", seen)
    assert repo.branches() == ["main", "new"]
    git.delete_ref(_git(repo.path), "refs/heads/new", repo.head)
    assert repo.branches() == ["main"]


def test_refs_keep_their_names(repo: Repo) -> None:
    """Letters that Python takes for line ends, and bytes that are no text, included."""
    names = ["refs/heads/a\u2028b", "refs/heads/a\u0085b", "refs/heads/\udcff"]
    for name in names:
        git.create_ref(_git(repo.path), name, repo.head, "a test")
    assert git.list_refs(_git(repo.path)) == dict.fromkeys([*names, "refs/heads/main"], repo.head)
    assert git.list_refs(_git(repo.path), "refs/tags/") == {}


def test_commits_are_counted(repo: Repo) -> None:
    """Since a commit; nothing is said where a name means nothing."""
    base = repo.head
    repo.commit("second")
    repo.commit("third")
    here = _git(repo.path)
    asked = [
        (base, "refs/heads/main"),
        (repo.head, "refs/heads/main"),
        (base, "refs/heads/gone"),
        ("gone", "HEAD"),
    ]
    assert [git.count_commits(here, *names) for names in asked] == [2, 0, None, None]


def test_a_base_from_a_file_is_no_option(repo: Repo) -> None:
    """An agent can write the records: ``--output=FILE`` as a base would empty any file of ours."""
    victim = repo.write("out..refs/heads/main", "precious\n")
    assert git.count_commits(_git(repo.path), "--output=out", "refs/heads/main") is None
    assert victim.read_text() == "precious\n"


@pytest.mark.parametrize("name", ["HEAD", "main", "v1", "HEAD~0", "@"])
def test_a_revision_is_resolved_to_its_commit(repo: Repo, name: str) -> None:
    """An annotated tag too."""
    repo.git("tag", "-a", "-m", "a tag", "v1")
    assert git.resolve_commit(_git(repo.path), name) == repo.head


@pytest.mark.parametrize(
    "name",
    ["", "gone", "HEAD~5", "HEAD:file.txt", "HEAD^{tree}", "main..main", "^HEAD", "--all", "-h", "a b"],
)
def test_what_is_no_commit_is_not_resolved(repo: Repo, name: str) -> None:
    """Nor is an option, or the opposite of a commit."""
    assert git.resolve_commit(_git(repo.path), name) is None


def test_names_of_branches_are_checked(repo: Repo) -> None:
    """By git, which knows its rules."""
    good = ["topic", "a/b", "ralph/a3f2", "\u00fc"]
    bad = ["", "-x", "a..b", "a b", "a.lock", "/a", "a/", "a\nb", "a~1", "a:b", "@{-1}"]
    assert [name for name in good + bad if git.is_branch_name(_git(repo.path), name)] == good


def test_existing_commits_are_picked_out(repo: Repo) -> None:
    """Not blobs, not what is not there."""
    blob = repo.git("rev-parse", "HEAD:file.txt")
    assert git.existing_commits(_git(repo.path), [blob, repo.head, "f" * 40]) == [repo.head]


def test_missing_objects_are_counted(repo: Repo) -> None:
    """What is there by name only counts as missing; objects of a known commit are taken for granted."""
    blob = repo.git("rev-parse", "HEAD:file.txt")
    here = _git(repo.path)
    assert git.missing_objects(here, "HEAD", None) == 0
    place = repo.path / ".git" / "objects" / blob[:2] / blob[2:]
    place.unlink()
    place.touch()
    assert git.missing_objects(here, "HEAD", None) == 1
    assert git.missing_objects(here, "HEAD", repo.head) == 0


# Status

UNMERGED = ["DD", "AU", "UD", "UA", "DU", "AA", "UU"]
KINDS = [*UNMERGED, *(x + y for x in " MTAD" for y in " MTAD" if x + y not in {"  ", "AA", "DD"}), "??", "!!"]
"""What ``git status`` can say without renames (git-status(1), *Short Format*)."""


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.lists(st.integers(1, 255), min_size=1).map(bytes))))
def test_status_is_read_back(entries: list[tuple[str, bytes]]) -> None:
    """Whatever bytes the paths hold, each is in the lists that it belongs to, in order."""
    found = git.parse_status(b"".join(kind.encode() + b" " + path + b"\0" for kind, path in entries))
    expected = Status(
        changed=tuple(os.fsdecode(path) for kind, path in entries if kind not in {"??", "!!"}),
        unstaged=tuple(os.fsdecode(path) for kind, path in entries if kind[1] in "MTADU"),
        unmerged=tuple(os.fsdecode(path) for kind, path in entries if kind in UNMERGED),
        untracked=tuple(os.fsdecode(path) for kind, path in entries if kind == "??"),
        ignored=tuple(os.fsdecode(path) for kind, path in entries if kind == "!!"),
    )
    assert found == expected
    assert found.clean == all(kind == "!!" for kind, _ in entries)


def test_status_of_real_files(repo: Repo) -> None:
    """Each state once, under names with spaces, newlines and bytes that are no text."""
    names = {kind: f"{kind} \n\udcff" for kind in ("changed", "removed", "added", "new")}
    for kind in ("changed", "removed"):
        repo.write(names[kind], "x")
    repo.write(".gitignore", "*.o\nbuild/\n")
    repo.commit()
    repo.write(names["changed"], "y")
    repo.write(names["added"], "x")
    repo.git("add", "--", names["added"])
    (repo.path / names["removed"]).unlink()
    for name in (names["new"], "below/a b", "one.o", "build/two", "build/three"):
        repo.write(name)
    make_repo(repo.path / "nested")
    with git.start_status(_git(repo.path)) as running:
        status = git.parse_status(git.finish_git(running, "status").stdout)
    assert status == Status(
        changed=(names["added"], names["changed"], names["removed"]),
        unstaged=(names["changed"], names["removed"]),
        unmerged=(),
        untracked=("below/a b", "nested/", names["new"]),
        ignored=("build/", "one.o"),
    )
    assert (status.nested, status.clean) == (("nested",), False)

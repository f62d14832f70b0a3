"""Where a repository is, and its refs and commits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ralph_wrap import git
from ralph_wrap.errors import GitError, NoCheckoutError, NotARepositoryError, UntrustedError
from ralph_wrap.git import Git, Repository, command, merge
from ralph_wrap.git.compare import facts_of
from ralph_wrap.git.objects import commits_without
from tests.git.repositories import git_in, refusal
from tests.support.needs import git_since, needs_other_users
from tests.support.repo import Repo, make_repo

NAMES = [
    *[b"plain", b"with space", b"new\nline", b"end\n", b"\n", b"\xff\xfe", b"-x", b"'\"$(x)"],
    "\u00fc\u2028".encode(),
]
"""Names of directories that a file system allows."""


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


# Places


@pytest.mark.parametrize("name", NAMES)
def test_a_repository_is_found_under_any_name(tmp_path: Path, name: bytes) -> None:
    """From its top and from a directory of the same name below."""
    repo = make_repo(tmp_path / os.fsdecode(name))
    below = repo.path / os.fsdecode(name)
    below.mkdir()
    found = [git.locate_repository(git_in(repo.path)), git.locate_repository(git_in(below))]
    assert found == [_repository(repo), _repository(repo, prefix=Path(os.fsdecode(name)))]


def test_a_linked_worktree_is_a_checkout_of_its_own(repo: Repo) -> None:
    """With the repository's common directory."""
    linked = repo.path.parent / "linked"
    repo.git("worktree", "add", "-q", linked)
    assert git.locate_repository(git_in(linked)) == _repository(repo, root=linked)


def test_before_the_first_commit_there_is_no_head(tmp_path: Path) -> None:
    """It is a repository all the same."""
    repo = make_repo(tmp_path / "empty", empty=True)
    assert git.locate_repository(git_in(repo.path)).head is None


def test_a_bare_repository_has_nothing_to_work_in(repo: Repo) -> None:
    """The hint names the checkouts that it has, or how to make one."""
    bare = repo.path.parent / "bare"
    repo.git("clone", "-q", "--bare", repo.path, bare)
    message = f"{bare} is in a bare repository, not in a checkout of it"
    place = bare.with_name(bare.name.removesuffix(".git"))
    place = bare.with_name(f"{bare.name}.checkout") if place.exists() else place
    line = f"git -C {bare} worktree add {place} main"
    assert refusal(bare) == (NoCheckoutError, message, f"make a checkout first: {line}")
    assert os.system(f"{line} 2> {os.devnull}") == 0  # noqa: S605 -- what a user types
    assert refusal(bare) == (NoCheckoutError, message, f"cd {place}")
    repo.git("worktree", "remove", place, cwd=bare)
    repo.git("worktree", "add", "-q", "../my checkout", "main", cwd=bare)
    assert refusal(bare) == (NoCheckoutError, message, f"cd '{repo.path.parent}/my checkout'")


def test_a_git_that_does_not_answer_is_an_error(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The user's own configuration is a FIFO, and git waits for a writer for ever."""
    monkeypatch.setattr(command, "_QUICK_PATIENCE", 0.5)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")  # new in git 2.32
    monkeypatch.setenv("HOME", str(tmp_path))
    os.mkfifo(tmp_path / ".gitconfig")
    kind, message, _ = refusal(repo.path)
    assert (kind, "failed (-9): error: no end after" in message) == (GitError, True)


def test_a_partial_clone_is_named(repo: Repo, tmp_path: Path) -> None:
    """It lacks an object that we do not fetch; the command of the hint gets it."""
    repo.git("config", "uploadpack.allowFilter", "true")
    blob = repo.git("rev-parse", "HEAD:file.txt")
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", "-n", "--filter=blob:none", f"file://{repo.path}", clone.path)
    with pytest.raises(GitError) as caught:
        git.run_git(git_in(clone.path), "diff-tree", "-p", "--root", "HEAD")
    assert caught.value.hint.endswith("with git 2.36 or newer: git fetch --refetch --no-filter")
    git_since(2, 36).check()
    clone.git("fetch", "-q", "--refetch", "--no-filter")
    assert merge.content(git_in(clone.path), blob) == b"one\n"


def test_inside_a_git_directory_is_no_checkout(repo: Repo) -> None:
    """Although git answers there."""
    inside = repo.path / ".git" / "refs"
    assert refusal(inside) == (
        NoCheckoutError,
        f"{inside} is inside a git directory",
        f"cd {repo.path}",
    )


def test_an_ordinary_directory_is_no_repository(tmp_path: Path) -> None:
    """The hint makes it one, with a commit to start from, as it is typed."""
    directory = tmp_path / "empty"
    directory.mkdir()
    hint = "git init && git add -A && git commit --allow-empty -m start"
    assert refusal(directory) == (NotARepositoryError, f"{directory} is not in a git repository", hint)
    subprocess.run(("sh", "-c", hint), cwd=directory, check=True, capture_output=True)
    assert git.locate_repository(Git(directory, git.git_environment(os.environ))).head is not None


@needs_other_users
def test_a_repository_of_another_user_is_refused_with_the_cure(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git's own words, and the command that helps."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    expected = _repository(repo)
    subprocess.run(("chown", "-R", "54321:54321", repo.path), check=True)
    kind, message, hint = refusal(repo.path)
    assert kind is UntrustedError
    assert message.startswith(f"{repo.path} is a repository of user id 54321: git rev-parse failed (128): ")
    assert hint == f"if you trust that user: git config --global --add safe.directory {repo.path}"
    subprocess.run(("sh", "-c", hint.partition(": ")[2]), check=True)
    assert git.locate_repository(git_in(repo.path)) == expected


# Refs and commits


def test_a_ref_is_created_once(repo: Repo) -> None:
    """The second process gets an error, and the ref stays."""
    first = repo.head
    second = repo.commit("second")
    git.create_ref(git_in(repo.path), "refs/heads/new", first, "a test")
    with pytest.raises(GitError):
        git.create_ref(git_in(repo.path), "refs/heads/new", second, "a test")
    assert repo.git("rev-parse", "refs/heads/new") == first


def test_a_ref_in_the_way_is_an_error(repo: Repo) -> None:
    """A branch ``ralph`` leaves no room for ``ralph/a3f2``."""
    repo.git("branch", "ralph")
    with pytest.raises(GitError):
        git.create_ref(git_in(repo.path), "refs/heads/ralph/a3f2", repo.head, "a test")
    assert repo.branches() == ["main", "ralph"]


def test_a_ref_is_deleted_only_as_it_was_seen(repo: Repo) -> None:
    """If it has moved on in the meantime it stays."""
    seen = repo.head
    repo.commit("second")
    repo.git("branch", "new")
    with pytest.raises(GitError):
        git.delete_ref(git_in(repo.path), "refs/heads/new", seen)
    assert repo.branches() == ["main", "new"]
    git.delete_ref(git_in(repo.path), "refs/heads/new", repo.head)
    assert repo.branches() == ["main"]


def test_refs_keep_their_names(repo: Repo) -> None:
    """Letters that Python takes for line ends, and bytes that are no text, included."""
    names = ["refs/heads/a\u2028b", "refs/heads/a\u0085b", "refs/heads/\udcff"]
    for name in names:
        git.create_ref(git_in(repo.path), name, repo.head, "a test")
    assert git.list_refs(git_in(repo.path)) == dict.fromkeys([*names, "refs/heads/main"], repo.head)
    assert git.list_refs(git_in(repo.path), "refs/tags/") == {}


def test_commits_are_counted(repo: Repo) -> None:
    """Since a commit; nothing is said where a name means nothing."""
    base = repo.head
    repo.commit("second")
    repo.commit("third")
    here = git_in(repo.path)
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
    assert git.count_commits(git_in(repo.path), "--output=out", "refs/heads/main") is None
    assert victim.read_text() == "precious\n"


@pytest.mark.parametrize("name", ["HEAD", "main", "v1", "HEAD~0", "@"])
def test_a_revision_is_resolved_to_its_commit(repo: Repo, name: str) -> None:
    """An annotated tag too."""
    repo.git("tag", "-a", "-m", "a tag", "v1")
    assert git.resolve_commit(git_in(repo.path), name) == repo.head


@pytest.mark.parametrize(
    "name",
    ["", "gone", "HEAD~5", "HEAD:file.txt", "HEAD^{tree}", "main..main", "^HEAD", "--all", "-h", "a b"],
)
def test_a_name_of_no_commit_is_not_resolved(repo: Repo, name: str) -> None:
    """Nor is an option, or the opposite of a commit."""
    assert git.resolve_commit(git_in(repo.path), name) is None


def test_names_of_branches_are_checked(repo: Repo) -> None:
    """By git, which knows its rules."""
    good = ["topic", "a/b", "ralph/a3f2", "\u00fc"]
    bad = ["", "-x", "a..b", "a b", "a.lock", "/a", "a/", "a\nb", "a~1", "a:b", "@{-1}"]
    assert [name for name in good + bad if git.is_branch_name(git_in(repo.path), name)] == good


def test_existing_commits_are_picked_out(repo: Repo) -> None:
    """Not blobs, not what is not there."""
    blob = repo.git("rev-parse", "HEAD:file.txt")
    assert git.existing_commits(git_in(repo.path), [blob, repo.head, "f" * 40]) == [repo.head]


@pytest.mark.parametrize("encoding", ["UTF-16", "ISO-8859-1"])
def test_the_encoding_of_a_repository_changes_no_answer(repo: Repo, encoding: str) -> None:
    """Git writes its lists of commits in it, unless we name ours."""
    before, commit = repo.head, repo.commit("größer")
    repo.git("config", "i18n.logOutputEncoding", encoding)
    repo.git("config", "i18n.commitEncoding", encoding)
    found = commits_without(git_in(repo.path), [commit], before)
    assert [(summary.id, summary.subject) for summary in found] == [(commit, "größer")]
    assert facts_of(git_in(repo.path), [commit])[commit].subject == "größer"
    where = git_in(repo.path)
    made = git.commit_tree(where, git.tree_of(where, commit), [commit], "weiß\n")
    assert repo.git("-c", "i18n.logOutputEncoding=UTF-8", "log", "-1", "--format=%s", made) == "weiß"

"""``worktree cleanup``: only what is ours, and nothing that would be missed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.git_shim import shim_git
from tests.support.repo import Repo, make_repo
from tests.support.sessions import command, run
from tests.support.trees import on_disk
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.sessions import Result

BRANCH = "quick-build-fix-auth"
DELETE = "--keep-branch=false"


def _envelope(result: Result) -> dict[str, Any]:
    [line] = result.stdout.decode().splitlines()
    envelope: dict[str, Any] = json.loads(line)
    assert (envelope["version"], envelope["tool"]) == (1, "worktree")
    return envelope


def _data(result: Result) -> Any:
    envelope = _envelope(result)
    assert (result.status, envelope["success"]) == (0, True), (envelope, result.stderr)
    return envelope["data"]


def _make(repo: Repo, *words: str | os.PathLike[str]) -> Repo:
    return Repo(Path(_data(command("worktree", "create", "fix auth", *words, cwd=repo.path))["path"]))


def _clean(repo: Repo, *words: str | os.PathLike[str], cwd: Path | None = None) -> Any:
    return _data(command("worktree", "cleanup", *words, cwd=cwd or repo.path))


def _refused(repo: Repo, *words: str | os.PathLike[str], cwd: Path | None = None) -> tuple[int, str, str]:
    """Return status, code and message of a call that changes nothing."""
    before = _state(repo)
    result = command("worktree", "cleanup", *words, cwd=cwd or repo.path)
    assert _state(repo) == before
    error = _envelope(result)["error"]
    return result.status, error["code"], error["message"]


def _state(repo: Repo) -> Any:
    trees = {path: on_disk(Path(path)) for path in repo.worktrees()}
    return repo.git("for-each-ref"), trees, repo.fingerprint(), on_disk(repo.path)


def test_the_documented_answer(repo: Repo) -> None:
    """The branch stays, nothing else."""
    tree = _make(repo)
    answered = _clean(repo, tree.path)
    assert answered == {"removed": True, "branchDeleted": False, "path": os.fspath(tree.path)}
    assert (repo.branches(), repo.worktrees(), tree.path.exists()) == (["main", BRANCH], [], False)
    eventually(lambda: not list((repo.path / ".ralph/run/trash").iterdir()), "an empty trash")


@pytest.mark.parametrize(
    ("words", "deleted"),
    [
        ([], False),
        (["--keep-branch"], False),
        (["--keep-branch=true"], False),
        (["--keep-branch=false"], True),
        (["--no-keep-branch"], True),
        (["--keep-branch", "--no-keep-branch"], True),
        (["--no-keep-branch", "--keep-branch=true"], False),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_keep_branch(repo: Repo, words: list[str], *, deleted: bool, before: bool) -> None:
    """Every spelling, before the path and behind it; the last one counts."""
    tree = _make(repo)
    typed: list[str | Path] = [*words, tree.path] if before else [tree.path, *words]
    assert _clean(repo, *typed)["branchDeleted"] is deleted
    assert (BRANCH in repo.branches()) is not deleted


@pytest.mark.parametrize("word", ["--keep-branch=maybe", "--no-keep-branch=false"])
def test_another_value_is_a_mistake(repo: Repo, word: str) -> None:
    """Nothing is guessed."""
    tree = _make(repo)
    assert _refused(repo, tree.path, word)[:2] == (2, "usage")


def test_behind_two_hyphens_it_is_a_path(repo: Repo) -> None:
    """As everywhere."""
    assert _refused(repo, "--", DELETE)[:2] == (4, "not_found")


def test_uncommitted_work_is_listed_and_stays(repo: Repo) -> None:
    """Changed, new, and how many ignored files there are."""
    tree = _make(repo)
    tree.write(".git-ignored/x")
    tree.write("file.txt", "changed\n")
    tree.write("new", "n\n")
    (repo.path / ".git/info/exclude").write_text(".git-ignored/\n")
    status, code, message = _refused(repo, tree.path)
    assert (status, code) == (5, "refused")
    assert message.split("this would be lost: ")[1] == (
        "uncommitted: file.txt; uncommitted: new; ignored files: 1"
    )


def test_force_removes_it_all_the_same(repo: Repo) -> None:
    """That is what it is for."""
    tree = _make(repo)
    tree.write("new", "n\n")
    assert _clean(repo, tree.path, "--force")["removed"] is True
    assert not tree.path.exists()


def test_ignored_files_go_and_are_named(repo: Repo) -> None:
    """They are no reason to stay."""
    (repo.path / ".git/info/exclude").write_text("*.o\n")
    tree = _make(repo)
    tree.write("a.o")
    result = command("worktree", "cleanup", tree.path, cwd=repo.path)
    assert _data(result)["removed"] is True
    assert [printed["message"] for printed in result.narration] == [
        f"ignored files deleted with {tree.path}: 1"
    ]


def test_commits_on_no_branch_keep_the_worktree(repo: Repo) -> None:
    """They would go with its reflog."""
    tree = _make(repo)
    tree.git("switch", "-q", "--detach")
    commit = tree.commit("detached")
    status, _, message = _refused(repo, tree.path)
    assert (status, f"commit on no branch: {commit}" in message) == (5, True)


def test_a_worktree_with_commits_goes_if_its_branch_stays(repo: Repo) -> None:
    """The branch holds them."""
    tree = _make(repo)
    commit = tree.commit("work")
    assert _clean(repo, tree.path)["removed"] is True
    assert repo.git("rev-parse", BRANCH) == commit


def test_commits_only_on_the_branch_keep_both(repo: Repo) -> None:
    """They are listed."""
    tree = _make(repo)
    commits = [tree.commit("one"), tree.commit("two")]
    status, code, message = _refused(repo, tree.path, DELETE)
    assert (status, code) == (5, "refused")
    assert message.split("this would be lost: ")[1] == (
        f"commit only on {BRANCH}: {commits[1][:12]} two; commit only on {BRANCH}: {commits[0][:12]} one"
    )


@pytest.mark.parametrize("holder", ["heads/other", "tags/kept", "remotes/origin/x"])
def test_commits_that_something_else_holds_are_not_lost(repo: Repo, holder: str) -> None:
    """Another branch, a tag, a remote branch."""
    tree = _make(repo)
    repo.git("update-ref", f"refs/{holder}", tree.commit("work"))
    assert _clean(repo, tree.path, DELETE)["branchDeleted"] is True


def test_the_ref_of_a_clone_holds_no_commits(repo: Repo) -> None:
    """The next bundle of the clone moves it, and the commits would have no ref."""
    tree = _make(repo)
    repo.git("update-ref", "refs/ralph/clones/3f9a", tree.commit("work"))
    assert _refused(repo, tree.path, DELETE)[0] == 5


def test_force_deletes_the_branch_with_its_commits(repo: Repo) -> None:
    """Both were asked for."""
    tree = _make(repo)
    tree.commit("work")
    assert _clean(repo, tree.path, DELETE, "--force")["branchDeleted"] is True
    assert repo.branches() == ["main"]


def test_a_branch_that_was_checked_out_elsewhere_stays(repo: Repo, tmp_path: Path) -> None:
    """A user works on it now."""
    tree = _make(repo)
    tree.git("switch", "-q", "--detach")
    repo.git("worktree", "add", "-q", tmp_path / "other", BRANCH)
    result = command("worktree", "cleanup", tree.path, DELETE, cwd=repo.path)
    assert _data(result) == {"removed": True, "branchDeleted": False, "path": os.fspath(tree.path)}
    assert [printed["message"] for printed in result.warnings] == [
        f"branch {BRANCH} stays: it existed before the worktree, or is no longer checked out in it"
    ]
    assert BRANCH in repo.branches()


def test_a_branch_that_moves_meanwhile_stays(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is deleted only where it was looked at."""
    tree = _make(repo)
    new = repo.git("commit-tree", "-m", "more", "HEAD^{tree}", "-p", "HEAD")
    move = f'if mkdir "{tmp_path}/once"; then "$REAL" update-ref refs/heads/{BRANCH} {new}; fi'
    monkeypatch.setenv(
        "PATH", shim_git(tmp_path / "shim", f'*" update-ref -d "*) {move}; exec "$REAL" "$@" ;;')
    )
    assert _clean(repo, tree.path, DELETE)["branchDeleted"] is False
    assert repo.git("rev-parse", BRANCH) == new


def test_a_branch_that_we_did_not_make_stays(repo: Repo) -> None:
    """The mark says so."""
    tree = _make(repo)
    [mark] = (repo.path / ".git/worktrees").glob("*/ralph-wrap.json")
    mark.write_text(mark.read_text().replace('"branch_created": true', '"branch_created": false'))
    result = command("worktree", "cleanup", tree.path, DELETE, cwd=repo.path)
    assert (_data(result)["branchDeleted"], len(result.warnings)) == (False, 1)
    assert BRANCH in repo.branches()


def test_a_mark_cannot_name_an_option(repo: Repo) -> None:
    """An agent in the worktree could write the mark."""
    tree = _make(repo)
    [mark] = (repo.path / ".git/worktrees").glob("*/ralph-wrap.json")
    mark.write_text(mark.read_text().replace(f'"branch": "{BRANCH}"', '"branch": "../../HEAD"'))
    assert _clean(repo, tree.path, DELETE)["branchDeleted"] is False
    assert repo.branches() == ["main", BRANCH]


def _typed_relative(tree: Path) -> str:
    return os.path.relpath(tree, tree.parent.parent.parent)


def _typed_with_a_slash(tree: Path) -> str:
    return f"{tree}/"


def _typed_through_a_symlink(tree: Path) -> str:
    link = tree.parent.parent.parent.parent / "link"
    link.symlink_to(tree)
    return os.fspath(link)


@pytest.mark.parametrize(
    "typed",
    [_typed_relative, _typed_with_a_slash, _typed_through_a_symlink],
    ids=lambda typed: typed.__name__.strip("_"),
)
def test_a_path_can_be_typed_otherwise(repo: Repo, typed: Callable[[Path], str]) -> None:
    """The answer names the worktree itself."""
    tree = _make(repo)
    assert _clean(repo, typed(tree.path))["path"] == os.fspath(tree.path)
    assert not tree.path.exists()


def test_a_worktree_at_a_path_of_its_own(repo: Repo, tmp_path: Path) -> None:
    """Goes as well."""
    tree = _make(repo, "--path", tmp_path / "own")
    assert _clean(repo, tree.path, DELETE)["branchDeleted"] is True
    assert not tree.path.exists()


def test_called_in_the_worktree_it_stays(repo: Repo) -> None:
    """A shell would be left in a directory that is no more."""
    tree = _make(repo)
    (tree.path / "sub").mkdir()
    for cwd in (tree.path, tree.path / "sub"):
        status, code, message = _refused(repo, tree.path, "--force", cwd=cwd)
        assert (status, code, "the working directory is in it" in message) == (5, "refused", True)


def test_the_worktree_can_be_the_project_that_is_named(repo: Repo, tmp_path: Path) -> None:
    """It belongs to the same repository."""
    tree = _make(repo)
    assert _clean(repo, tree.path, DELETE, "-C", tree.path, cwd=tmp_path)["branchDeleted"] is True
    assert not tree.path.exists()


def test_a_process_inside_keeps_it(repo: Repo) -> None:
    """Even with force: what it writes next would be lost."""
    tree = _make(repo)
    with subprocess.Popen(("cat",), cwd=tree.path, stdin=subprocess.PIPE) as process:
        try:
            status, code, message = _refused(repo, tree.path, "--force")
        finally:
            process.kill()
    assert (status, code, f"cat ({process.pid})" in message) == (5, "refused", True)


def test_a_path_that_is_no_worktree(repo: Repo) -> None:
    """Absent, a directory, a file, or below a worktree."""
    tree = _make(repo)
    tree.write("sub/x")
    for path in ("absent", ".ralph", "file.txt", tree.path / "sub", "file.txt/x", ""):
        if path != "":
            assert _refused(repo, path, "--force")[:2] == (4, "not_found"), path


def test_the_main_checkout(repo: Repo) -> None:
    """Never."""
    assert _refused(repo, repo.path, "--force")[:2] == (7, "not_ours")
    assert _refused(repo, ".", "--force")[:2] == (7, "not_ours")


def test_a_main_checkout_whose_repository_is_elsewhere(tmp_path: Path) -> None:
    """Has a ``.git`` file, too."""
    repo = Repo(tmp_path / "project")
    repo.path.mkdir()
    repo.git("init", "-q", "-b", "main", f"--separate-git-dir={tmp_path}/elsewhere")
    repo.commit("first")
    result = command("worktree", "cleanup", repo.path, "--force", cwd=repo.path)
    assert (result.status, "main checkout" in _envelope(result)["error"]["message"]) == (7, True)


def test_a_worktree_of_the_user(repo: Repo, tmp_path: Path) -> None:
    """Even in our place, and with a lock like ours."""
    for path in (tmp_path / "theirs", repo.path / ".ralph/worktrees/theirs"):
        repo.git("worktree", "add", "-q", "--detach", path)
        assert _refused(repo, path, "--force")[:2] == (7, "not_ours")
    repo.git("worktree", "lock", "--reason", "ralph-wrap worktree theirs", tmp_path / "theirs")
    assert _refused(repo, tmp_path / "theirs", "--force")[:2] == (7, "not_ours")


def test_a_sessions_worktree(repo: Repo) -> None:
    """Has its own command, which saves."""
    report = run(repo.path, "-n", "1", "--keep-worktree", "--", "true").report
    assert _refused(repo, report["workspace"], "--force")[:2] == (7, "not_ours")


def test_a_worktree_of_another_repository(repo: Repo, tmp_path: Path) -> None:
    """Even one that is ours there."""
    other = make_repo(tmp_path / "other")
    theirs = _make(other)
    assert _refused(repo, theirs.path, "--force")[:2] == (7, "not_ours")
    assert theirs.git("status", "--porcelain") == ""


def test_a_worktree_that_the_user_has_locked(repo: Repo) -> None:
    """The message has the reason."""
    tree = _make(repo)
    repo.git("worktree", "unlock", tree.path)
    repo.git("worktree", "lock", "--reason", "on a stick", tree.path)
    status, code, message = _refused(repo, tree.path, "--force")
    assert (status, code, "on a stick" in message) == (6, "conflict", True)


def test_a_worktree_that_was_unlocked_is_still_ours(repo: Repo) -> None:
    """The lock is no mark."""
    tree = _make(repo)
    repo.git("worktree", "unlock", tree.path)
    assert _clean(repo, tree.path)["removed"] is True


def test_a_worktree_that_was_moved(repo: Repo) -> None:
    """By git: it names itself there."""
    tree = _make(repo)
    repo.git("worktree", "unlock", tree.path)
    repo.git("worktree", "move", tree.path, tree.path.with_name("moved"))
    assert _clean(repo, tree.path.with_name("moved"))["removed"] is True


def test_a_failed_removal_leaves_it_as_it_was(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its branch."""
    tree = _make(repo)
    with monkeypatch.context() as broken:
        broken.setenv("PATH", shim_git(tmp_path / "shim", '*" worktree remove "*) exit 1 ;;'))
        result = command("worktree", "cleanup", tree.path, DELETE, cwd=repo.path)
    assert (result.status, _envelope(result)["success"]) == (125, False)
    assert (tree.git("status", "--porcelain"), repo.branches()) == ("", ["main", BRANCH])

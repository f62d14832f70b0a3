"""Clones in ignored directories: whether they go with the worktree."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import git
from ralph_wrap.worktree.save import checkpoint, inspect
from ralph_wrap.worktree.save.result import SavedWork
from ralph_wrap.worktree.save.whole import losses
from tests.support.repo import Repo, make_repo
from tests.support.sessions import run
from tests.support.trees import ID, SESSION, Tree
from tests.worktree.save.clones.dependencies import DEPENDENCY, KEPT, clone

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_clone_without_own_work_goes(tree: Tree, upstream: Repo) -> None:
    """Whoever needs it clones it again."""
    clone(tree, upstream)
    outcome = tree.finish()
    assert outcome.kept is None
    assert not tree.path.exists()


def _ignored_in_it(dependency: Repo, _: Repo) -> None:
    dependency.write("built/result", "b\n")


def _pushed(dependency: Repo, _: Repo) -> None:
    dependency.commit("pushed")
    dependency.git("push", "-q", "origin", "HEAD:refs/heads/new")


def _updated(dependency: Repo, upstream: Repo) -> None:
    upstream.commit("later")
    dependency.git("pull", "-q")


def _another_branch(dependency: Repo, _: Repo) -> None:
    dependency.git("checkout", "-q", "other")


def _packed(dependency: Repo, _: Repo) -> None:
    dependency.git("-c", "gc.reflogExpire=never", "gc", "-q")


def _remote_has_gone_on(_: Repo, upstream: Repo) -> None:
    upstream.commit("later")
    upstream.git("tag", "a-file", "HEAD:file.txt")


def _bare_remote(dependency: Repo, upstream: Repo) -> None:
    bare = upstream.path.with_name("bare.git")
    upstream.git("clone", "-q", "--bare", ".", str(bare))
    dependency.git("remote", "set-url", "origin", f"file://{bare.with_suffix('')}")


def _linked_worktree_as_remote(dependency: Repo, upstream: Repo) -> None:
    upstream.git("worktree", "add", "-q", "../checkout")
    dependency.git("remote", "set-url", "origin", str(upstream.path.with_name("checkout")))


def _with_a_clone_in_it(dependency: Repo, upstream: Repo) -> None:
    dependency.git("clone", "-q", str(upstream.path), "built/dep")


@pytest.mark.parametrize(
    "change",
    [
        _ignored_in_it,
        _pushed,
        _updated,
        _another_branch,
        _packed,
        _remote_has_gone_on,
        _bare_remote,
        _linked_worktree_as_remote,
        _with_a_clone_in_it,
    ],
)
def test_what_its_remote_has_is_no_own_work(
    tree: Tree, upstream: Repo, change: Callable[[Repo, Repo], None]
) -> None:
    """A clone may be used: only what is nowhere else keeps the worktree."""
    change(clone(tree, upstream), upstream)
    assert tree.finish().kept is None


def _commit(dependency: Repo, _: Repo) -> str:
    dependency.commit("own")
    return "1 commit in it is on no branch of a remote"


def _commit_reset_away(dependency: Repo, _: Repo) -> str:
    dependency.commit("own")
    dependency.commit("own, too")
    dependency.git("reset", "-q", "--hard", "origin/HEAD")
    return "2 commits in it are on no branch of a remote"


def _stash(dependency: Repo, _: Repo) -> str:
    dependency.write("file.txt", "changed\n")
    dependency.git("stash", "push", "-q")
    return "2 commits in it are on no branch of a remote"


def _changed(dependency: Repo, _: Repo) -> str:
    dependency.write("file.txt", "changed\n")
    return "1 path in it is not committed"


def _changed_and_hidden(dependency: Repo, _: Repo) -> str:
    dependency.git("update-index", "--assume-unchanged", "file.txt")
    dependency.write("file.txt", "changed\n")
    return "1 path in it is not committed"


def _untracked(dependency: Repo, _: Repo) -> str:
    dependency.git("config", "status.showUntrackedFiles", "no")
    dependency.write("new", "n\n")
    dependency.write("newer", "n\n")
    return "2 paths in it are not committed"


def _staged(dependency: Repo, _: Repo) -> str:
    dependency.write("new", "n\n")
    dependency.git("add", "new")
    (dependency.path / "new").unlink()
    return "1 path in it is not committed"


def _own_tag(dependency: Repo, _: Repo) -> str:
    dependency.git("tag", "-a", "-m", "why", "mine")
    return "refs/tags/mine in it may be on no remote"


def _note(dependency: Repo, _: Repo) -> str:
    dependency.git("notes", "add", "-m", "n")
    return "1 commit in it is on no branch of a remote"


def _tagged_file(dependency: Repo, _: Repo) -> str:
    dependency.git("tag", "file", "HEAD:file.txt")
    return "refs/tags/file in it names no commit"


def _without_a_remote(dependency: Repo, _: Repo) -> str:
    dependency.git("config", "--remove-section", "remote.origin")  # unlike `remote remove`, the refs stay
    return "2 commits in it are on no branch of a remote"


def _remote_is_gone(_: Repo, upstream: Repo) -> str:
    shutil.rmtree(upstream.path)
    return "2 commits in it are on no branch of a remote"


def _remote_is_empty(_: Repo, upstream: Repo) -> str:
    shutil.rmtree(upstream.path / ".git")
    upstream.git("init", "-q")
    return "2 commits in it are on no branch of a remote"


def _remote_is_another_repository(_: Repo, upstream: Repo) -> str:
    shutil.rmtree(upstream.path)
    make_repo(upstream.path).commit("other")
    return "2 commits in it are on no branch of a remote"


def _remote_is_no_repository(_: Repo, upstream: Repo) -> str:
    shutil.rmtree(upstream.path / ".git")
    return "2 commits in it are on no branch of a remote"


def _remote_has_deleted_the_branch(dependency: Repo, upstream: Repo) -> str:
    upstream.git("checkout", "-q", "-b", "gone")
    upstream.commit("only here")
    dependency.git("fetch", "-q")
    upstream.git("checkout", "-q", "other")
    upstream.git("branch", "-q", "-D", "gone")
    return "1 commit in it is on no branch of a remote"


def _remote_borrows_from_the_clone(dependency: Repo, upstream: Repo) -> str:
    place = upstream.path.with_name("borrower")
    dependency.git("clone", "-q", "--bare", "--shared", ".", str(place))
    dependency.git("remote", "set-url", "origin", str(place))
    return "2 commits in it are on no branch of a remote"


def _remote_is_shallow(dependency: Repo, upstream: Repo) -> str:
    place = upstream.path.with_name("shallow")
    upstream.git("clone", "-q", "--depth=1", f"file://{upstream.path}", str(place))
    dependency.git("remote", "set-url", "origin", str(place))
    return "2 commits in it are on no branch of a remote"


def _branch_of_a_remote_with_a_longer_name(dependency: Repo, upstream: Repo) -> str:
    gone = make_repo(upstream.path.with_name("gone"))
    gone.git("checkout", "-q", "-b", "x")
    gone.commit("only there")
    dependency.git("remote", "add", "origin/b", str(gone.path))
    dependency.git("fetch", "-q", "origin/b", "x")
    dependency.git("update-ref", "refs/remotes/origin/b/x", "FETCH_HEAD")
    dependency.git("checkout", "-q", "--detach", "FETCH_HEAD")
    shutil.rmtree(gone.path)
    return "1 commit in it is on no branch of a remote"


def _own_tag_and_an_expired_reflog(dependency: Repo, upstream: Repo) -> str:
    dependency.git("tag", "-a", "-m", "why", "mine")
    upstream.commit("later")
    dependency.git("-c", "user.name=u", "pull", "-q")
    log = dependency.path / ".git" / "logs" / "HEAD"
    last = log.read_text().splitlines()[-1]
    log.write_text(re.sub(r"> \d+ ", "> 4102444800 ", last) + "\n")  # later than the tag
    return "refs/tags/mine in it may be on no remote"


def _own_tag_before_the_first_checkout(dependency: Repo, _: Repo) -> str:
    dependency.git("tag", "-a", "-m", "why", "mine")
    log = dependency.path / ".git" / "logs" / "HEAD"
    line = re.sub(r"> \d+ ", "> 4102444800 ", log.read_text().splitlines()[0])
    log.write_text(line.partition("\t")[0] + "\tcheckout: moving from main to main\n")
    return "refs/tags/mine in it may be on no remote"


def _remote_in_the_worktree(dependency: Repo, upstream: Repo) -> str:
    dependency.git("remote", "set-url", "--push", "origin", "../../.git")
    del upstream
    return "2 commits in it are on no branch of a remote"


def _forged_remote_branch(dependency: Repo, _: Repo) -> str:
    dependency.commit("own")
    dependency.git("symbolic-ref", "refs/remotes/origin/own", dependency.git("symbolic-ref", "HEAD"))
    return "1 commit in it is on no branch of a remote"


def _merge_in_progress(dependency: Repo, _: Repo) -> str:
    (dependency.path / ".git" / "MERGE_HEAD").write_text(dependency.git("rev-parse", "HEAD") + "\n")
    return ".git/MERGE_HEAD is in its repository"


def _linked_worktree(dependency: Repo, _: Repo) -> str:
    dependency.git("worktree", "add", "-q", "../linked")
    return ".git/worktrees is in its repository"


def _repository_elsewhere(dependency: Repo, upstream: Repo) -> str:
    (dependency.path / ".git").rename(upstream.path.with_name("elsewhere"))
    (dependency.path / ".git").write_text(f"gitdir: {upstream.path.with_name('elsewhere')}\n")
    return "its repository is elsewhere"


def _refs_elsewhere(dependency: Repo, upstream: Repo) -> str:
    (dependency.path / ".git" / "refs").rename(upstream.path.with_name("refs"))
    (dependency.path / ".git" / "refs").symlink_to(upstream.path.with_name("refs"))
    return "its repository has a symlink"


@pytest.mark.parametrize(
    "change",
    [
        _commit,
        _commit_reset_away,
        _stash,
        _changed,
        _changed_and_hidden,
        _untracked,
        _staged,
        _own_tag,
        _note,
        _tagged_file,
        _without_a_remote,
        _remote_is_gone,
        _remote_is_empty,
        _remote_is_another_repository,
        _remote_is_no_repository,
        _remote_has_deleted_the_branch,
        _remote_borrows_from_the_clone,
        _remote_is_shallow,
        _branch_of_a_remote_with_a_longer_name,
        _own_tag_and_an_expired_reflog,
        _own_tag_before_the_first_checkout,
        _remote_in_the_worktree,
        _forged_remote_branch,
        _merge_in_progress,
        _linked_worktree,
        _repository_elsewhere,
        _refs_elsewhere,
    ],
)
def test_own_work_in_a_clone_keeps_the_worktree(
    tree: Tree, upstream: Repo, change: Callable[[Repo, Repo], str]
) -> None:
    """The reason names the clone, and what it has."""
    reason = change(clone(tree, upstream), upstream)
    outcome = tree.finish()
    assert outcome.kept is not None
    assert KEPT + reason in outcome.kept.split("; ")
    assert (tree.path / DEPENDENCY).is_dir()


def test_only_the_clone_with_own_work_is_named(tree: Tree, upstream: Repo) -> None:
    """The user looks there, and nowhere else."""
    clone(tree, upstream, "node_modules/other")
    clone(tree, upstream).commit("own")
    assert tree.finish().kept == f"{KEPT}1 commit in it is on no branch of a remote"


def _bare(tree: Tree, upstream: Repo, *options: str) -> Repo:
    """Clone it as a bare repository."""
    clone(tree, upstream, DEPENDENCY, *options)
    return Repo(tree.path / DEPENDENCY)


@pytest.mark.parametrize("option", ["--bare", "--mirror"])
def test_a_bare_clone_of_what_its_remote_has_goes(tree: Tree, upstream: Repo, option: str) -> None:
    """Branches, tags with and without a message: the remote on this machine says that it has them."""
    upstream.git("tag", "light")
    _bare(tree, upstream, option)
    assert tree.finish().kept is None
    assert not tree.path.exists()


def test_an_empty_bare_repository_goes(tree: Tree) -> None:
    """An agent has made it, and has put nothing there."""
    tree.inside.git("init", "-q", "--bare", DEPENDENCY)
    assert tree.finish().kept is None


def _pushed_into(bare: Repo, _: Repo) -> str:
    own = bare.git("commit-tree", "-m", "own", "HEAD^{tree}")
    bare.git("update-ref", "refs/heads/own", own)
    return "1 commit in it is on no branch of a remote"


def _deleted_branch(bare: Repo, upstream: Repo) -> str:
    reason = _pushed_into(bare, upstream)
    bare.git("update-ref", "-d", "refs/heads/own")
    return reason


def _bare_with_own_tag(bare: Repo, _: Repo) -> str:
    bare.git("tag", "-a", "-m", "why", "mine")
    return "refs/tags/mine in it may be on no remote"


def _bare_of_another_machine(bare: Repo, _: Repo) -> str:
    bare.git("config", "remote.origin.url", "https://example.invalid/upstream.git")
    return "2 commits in it are on no branch of a remote"


def _bare_with_staged_files(bare: Repo, upstream: Repo) -> str:
    upstream.write("file.txt", "staged\n")
    bare.git("--git-dir=.", f"--work-tree={upstream.path}", "add", "file.txt")
    return "what is staged in it is not committed"


def _bare_with_a_file(bare: Repo, _: Repo) -> str:
    (bare.path / "notes.txt").write_text("n\n")
    return "notes.txt is in its repository"


@pytest.mark.parametrize(
    "change",
    [
        _pushed_into,
        _deleted_branch,
        _bare_with_own_tag,
        _bare_of_another_machine,
        _bare_with_staged_files,
        _bare_with_a_file,
    ],
)
def test_own_work_in_a_bare_repository_keeps_the_worktree(
    tree: Tree, upstream: Repo, change: Callable[[Repo, Repo], str]
) -> None:
    """The reason names it, as that of a clone. In doubt nothing is deleted."""
    reason = change(_bare(tree, upstream, "--bare"), upstream)
    assert tree.finish().kept == KEPT + reason


@pytest.fixture
def with_submodule(tree: Tree, upstream: Repo, tmp_path: Path) -> Repo:
    """Return a clone with a submodule that was checked out."""
    inner = make_repo(tmp_path / "inner")
    inner.write("inner.txt", "i\n")
    inner.commit("inner")
    upstream.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "sub/inner")
    upstream.commit("submodule")
    dependency = clone(tree, upstream)
    dependency.git("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    return dependency


def test_a_clone_with_a_submodule_goes(tree: Tree, with_submodule: Repo) -> None:
    """Its repository is in that of the clone, and its remote has all of it."""
    assert (with_submodule.path / "sub/inner/inner.txt").exists()
    assert tree.finish().kept is None
    assert not tree.path.exists()


def _changed_submodule(inner: Repo) -> str:
    inner.write("inner.txt", "changed\n")
    return "submodule sub/inner: 1 path in it is not committed"


def _commit_in_submodule(inner: Repo) -> str:
    inner.commit("own")
    inner.git("reset", "-q", "--hard", "HEAD~")
    return "submodule sub/inner: 1 commit in it is on no branch of a remote"


def _stash_in_submodule(inner: Repo) -> str:
    inner.write("inner.txt", "changed\n")
    inner.git("stash", "push", "-q")
    return "submodule sub/inner: 2 commits in it are on no branch of a remote"


@pytest.mark.parametrize("change", [_changed_submodule, _commit_in_submodule, _stash_in_submodule])
def test_own_work_in_a_submodule_of_a_clone_keeps_the_worktree(
    tree: Tree, with_submodule: Repo, change: Callable[[Repo], str]
) -> None:
    """The clone is named once, with the submodule."""
    reason = change(Repo(with_submodule.path / "sub/inner"))
    assert tree.finish().kept == KEPT + reason


@pytest.mark.parametrize("how", ["never made", "deleted"])
def test_files_of_a_submodule_without_a_repository_keep_the_worktree(
    tree: Tree, with_submodule: Repo, how: str
) -> None:
    """Git says that the clone is clean, because it does not look at them."""
    if how == "deleted":
        (with_submodule.path / "sub/inner/.git").unlink()
    else:
        with_submodule.git("submodule", "deinit", "-q", "--force", "sub/inner")
    with_submodule.write("sub/inner/new", "own\n")
    assert tree.finish().kept == f"{KEPT}git does not look at the files below the submodule's path sub/inner"


@pytest.fixture
def large(tree: Tree, upstream: Repo) -> Repo:
    """Return a clone in which git-lfs has an object, as after its checkout."""
    dependency = clone(tree, upstream)
    objects = dependency.path / ".git/lfs/objects/ab/cd"
    objects.mkdir(parents=True)
    (objects / "abcd").write_bytes(b"large\n")
    return dependency


def test_a_clone_with_files_of_git_lfs_goes(tree: Tree, large: Repo) -> None:
    """Nobody has committed in it, so its objects came from a server."""
    large.git("checkout", "-q", "other")
    assert tree.finish().kept is None


def test_an_object_of_git_lfs_that_was_perhaps_made_here_keeps_the_worktree(tree: Tree, large: Repo) -> None:
    """A push without the hook of git-lfs sends the commit alone."""
    large.commit("own")
    large.git("push", "-q", "origin", "HEAD:refs/heads/new")
    assert tree.finish().kept == f"{KEPT}objects of git-lfs in it may be on no server"


def test_a_clone_with_a_missing_object_keeps_the_worktree(tree: Tree, upstream: Repo) -> None:
    """What git cannot read may be work."""
    dependency = clone(tree, upstream)
    commit = dependency.commit("own")
    (dependency.path / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
    outcome = tree.finish()
    assert outcome.kept is not None
    assert outcome.kept.startswith(KEPT)


def test_a_clone_that_git_does_not_ignore_keeps_the_worktree(tree: Tree, upstream: Repo) -> None:
    """Git lists it as a change of the worktree, and a save cannot hold it."""
    clone(tree, upstream, "vendor")
    assert tree.finish().kept == "nested repository vendor cannot be saved"


def test_a_commit_while_the_worktree_is_removed_is_seen(tree: Tree, upstream: Repo) -> None:
    """The last check looks into each clone again, where the directory is then."""
    dependency = clone(tree, upstream)
    where = git.Git(tree.repo.path, git.git_environment(os.environ))
    index = tree.linked.registration / "scratch"
    found = losses(tree.linked, where, index)
    assert found.none
    assert found.clones == (DEPENDENCY,)
    saved = SavedWork(None, (), (), found.ignored, found.ignored_files, (), clones=found.clones)
    moved = tree.path.rename(tree.path.with_name("moved"))
    assert inspect.tree_holds(tree.linked, where, index, moved, saved)
    Repo(moved / dependency.path.relative_to(tree.path)).commit("late")
    assert not inspect.tree_holds(tree.linked, where, index, moved, saved)


def test_a_snapshot_names_only_clones_with_own_work(tree: Tree, upstream: Repo) -> None:
    """The event log of a long loop does not repeat what nobody misses."""
    where = git.Git(tree.repo.path, git.git_environment(os.environ))

    def problems() -> tuple[str, ...]:
        return checkpoint.snapshot(tree.linked, where, agent_id=ID, session=SESSION, number=1).problems

    dependency = clone(tree, upstream)
    assert problems() == ()
    dependency.commit("own")
    assert problems() == (f"nested repository {DEPENDENCY}",)


def test_a_filter_in_a_clone_does_not_run(repo: Repo, upstream: Repo, tmp_path: Path) -> None:
    """Our git looks into it without obeying its configuration."""
    repo.write(".gitignore", ".ralph/worktrees/\nnode_modules/\n")
    repo.commit("ignore")
    script = f"""
        git clone -q {upstream.path} {DEPENDENCY} && cd {DEPENDENCY}
        git config filter.x.clean 'touch {tmp_path}/ran; cat'
        echo '* filter=x' > .git/info/attributes
        touch file.txt"""
    done = run(repo.path, "-n", "1", "--", "sh", "-c", script)
    assert done.status == 0
    assert not (tmp_path / "ran").exists()
    assert not [*(repo.path / ".ralph" / "worktrees").iterdir()]

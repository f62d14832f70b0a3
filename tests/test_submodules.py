"""What is in a submodule goes with the worktree's registration, so it is saved, or the worktree stays."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import git
from ralph_wrap.errors import RefusedError
from ralph_wrap.worktree.remove import finish
from ralph_wrap.worktree.remove import remove as remove_worktree
from ralph_wrap.worktree.save import whole
from tests.support.repo import Repo, make_repo
from tests.support.shim import shim_git
from tests.support.submodules import ALLOWED, NESTED, SUB, Project, held, inside, make_project
from tests.support.trees import ID, SESSION, WIP, Tree, on_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ralph_wrap.worktree.remove import WorktreeOutcome
    from ralph_wrap.worktree.save.result import Losses


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose main checkout has its submodules."""
    return make_project(tmp_path / "world")


@pytest.fixture
def tree(project: Project) -> Tree:
    """Return a worktree of it in which they are initialised."""
    return project.tree()


def _refs(repo: Repo) -> str:
    return repo.git("for-each-ref")


# What is nothing of the agent's


def test_an_unchanged_submodule_goes(project: Project, tree: Tree) -> None:
    """The main checkout has all of it; nothing new is anywhere."""
    before = _refs(project.store), _refs(project.repo)
    assert tree.finish().kept is None
    assert not tree.path.exists()
    assert not (project.repo.path / ".git" / "worktrees").exists()
    assert (_refs(project.store), _refs(project.repo)) == before


def test_one_that_only_its_origin_has_is_kept_in_the_project(tmp_path: Path) -> None:
    """Of an agent's own clone nobody knows what of it is elsewhere; a remote may be gone tomorrow."""
    project = make_project(tmp_path / "world", checked_out=False)
    tree = project.tree()
    head = inside(tree).head
    assert tree.finish().kept is None
    assert project.repo.git("merge-base", "--is-ancestor", head, "refs/ralph/snapshots/00aa/commit-1") == ""


def test_a_submodule_that_is_not_initialised_is_nothing(project: Project) -> None:
    """As before there were any."""
    tree = project.tree(initialised=False)
    outcome = tree.finish()
    assert (outcome.kept, outcome.saved and outcome.saved.inner) == (None, ())


# What an agent may leave: each state with what must be found again


def _dirty(sub: Repo) -> dict[str, bytes]:
    sub.write("file.txt", "changed\n")
    return {"file.txt": b"changed\n"}


def _untracked(sub: Repo) -> dict[str, bytes]:
    sub.write("a/new file\n", b"\0\xff")
    return {"a/new file\n": b"\0\xff"}


def _staged_and_gone(sub: Repo) -> dict[str, bytes]:
    sub.write("only-staged", "precious\n")
    sub.git("add", "only-staged")
    (sub.path / "only-staged").unlink()
    return {"only-staged": b"precious\n"}


def _flagged(sub: Repo) -> dict[str, bytes]:
    sub.git("update-index", "--assume-unchanged", "file.txt")
    sub.write("file.txt", "hidden\n")
    return {"file.txt": b"hidden\n"}


def _skipped(sub: Repo) -> dict[str, bytes]:
    sub.git("update-index", "--skip-worktree", "file.txt")
    sub.write("file.txt", "hidden\n")
    return {"file.txt": b"hidden\n"}


def _unseen(sub: Repo) -> dict[str, bytes]:
    sub.git("config", "status.showUntrackedFiles", "no")
    sub.git("config", "core.checkStat", "minimal")
    sub.write("unseen", "unseen\n")
    return {"unseen": b"unseen\n"}


def _detached(sub: Repo) -> dict[str, bytes]:
    sub.write("work", "detached\n")
    sub.commit("detached")
    return {"work": b"detached\n"}


def _on_a_branch(sub: Repo) -> dict[str, bytes]:
    sub.git("checkout", "-q", "-b", "feature")
    sub.write("work", "on a branch\n")
    sub.commit("feature")
    sub.git("checkout", "-q", "--detach", "origin/main")
    return {"work": b"on a branch\n"}


def _tagged(sub: Repo) -> dict[str, bytes]:
    sub.write("work", "tagged\n")
    sub.commit("tagged")
    sub.git("tag", "-a", "-m", "words of a tag", "v1")
    sub.git("checkout", "-q", "--detach", "origin/main")
    return {"work": b"tagged\n"}


def _stashed(sub: Repo) -> dict[str, bytes]:
    for number in (1, 2):
        sub.write(f"stashed-{number}", f"stash {number}\n")
        sub.git("stash", "push", "-q", "-u")
    return {"stashed-1": b"stash 1\n", "stashed-2": b"stash 2\n"}


def _reset_away(sub: Repo) -> dict[str, bytes]:
    sub.write("work", "reset away\n")
    sub.commit("reset away")
    sub.git("reset", "-q", "--hard", "HEAD~1")
    return {"work": b"reset away\n"}


def _fetched_away(sub: Repo) -> dict[str, bytes]:
    """Have a remote-tracking branch name a commit that no remote has."""
    sub.write("work", "not pushed\n")
    sub.commit("not pushed")
    sub.git("update-ref", "refs/remotes/origin/feature", "HEAD")
    sub.git("checkout", "-q", "--detach", "origin/main")
    return {"work": b"not pushed\n"}


def _merging(sub: Repo) -> dict[str, bytes]:
    for name in ("one", "two"):
        sub.git("checkout", "-q", "-b", name, "origin/main")
        sub.write("file.txt", f"branch {name}\n")
        sub.commit(name)
    sub.git("merge", "one", check=False)
    sub.write("resolved", "half way\n")
    sub.git("add", "resolved")
    assert b"<<<<<<<" in (sub.path / "file.txt").read_bytes()
    return {"file.txt": (sub.path / "file.txt").read_bytes(), "resolved": b"half way\n"}


def _noted(sub: Repo) -> dict[str, bytes]:
    sub.git("notes", "add", "-m", "a note", "HEAD")
    return {sub.head: b"a note\n"}


def _unborn(sub: Repo) -> dict[str, bytes]:
    sub.git("checkout", "-q", "--orphan", "fresh")
    sub.write("file.txt", "no parent\n")
    return {"file.txt": b"no parent\n"}


STATES = [
    _dirty,
    _untracked,
    _staged_and_gone,
    _flagged,
    _skipped,
    _unseen,
    _detached,
    _on_a_branch,
    _tagged,
    _stashed,
    _reset_away,
    _fetched_away,
    _merging,
    _noted,
    _unborn,
]


def found(repo: Repo, path: str) -> set[bytes]:
    """Return every content that a path has in any commit that a ref of a repository leads to."""
    contents = set()
    for commit in repo.git("rev-list", "--all").splitlines():
        listing = repo.git("ls-tree", "-r", "-z", commit)
        names = {row.partition("\t")[2]: row.split()[2] for row in listing.split("\0") if row}
        contents |= {repo.show(oid) for name, oid in names.items() if name == path}
    return contents


@pytest.mark.parametrize(
    ("where", "checked_out"),
    [(SUB, True), (SUB, False), (NESTED, True)],
    ids=["cloned", "bare", "deep"],
)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__.strip("_"))
def test_whatever_is_left_in_a_submodule_is_found_again(
    tmp_path: Path, state: Callable[[Repo], dict[str, bytes]], where: str, *, checked_out: bool
) -> None:
    """Reachable by a ref, for good, from a repository that stays; and no part of it is missing there."""
    project = make_project(tmp_path / "world", checked_out=checked_out)
    tree = project.tree()
    left = state(inside(tree, where))
    outcome = tree.finish()
    assert outcome.kept is None
    assert not tree.path.exists()
    store = project.repo
    if checked_out:
        store = project.store if where == SUB else Repo(project.store.path / "modules" / "deep")
    store.git("reflog", "expire", "--expire=all", "--all")
    store.git("-c", "gc.pruneExpire=now", "gc", "-q", "--prune=now")
    assert {path: content in found(store, path) for path, content in left.items()} == dict.fromkeys(
        left, True
    )
    assert store.git("fsck", "--connectivity-only", "--no-dangling") == ""


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__.strip("_"))
def test_what_is_left_is_nowhere_without_being_saved(
    tmp_path: Path, state: Callable[[Repo], dict[str, bytes]]
) -> None:
    """The control for the test above: before the end, no repository that stays has any of it."""
    project = make_project(tmp_path / "world")
    left = state(inside(project.tree()))
    for store in (project.repo, project.store):
        assert [path for path, content in left.items() if content in found(store, path)] == []


def test_the_message_of_a_tag_is_saved(project: Project, tree: Tree) -> None:
    """It is an object of its own."""
    _tagged(inside(tree))
    tree.finish()
    assert any(b"words of a tag" in project.store.show(oid) for oid in held(project.store).values())


def test_the_files_and_the_index_are_one_commit(project: Project, tree: Tree) -> None:
    """As those of the worktree itself are."""
    sub = inside(tree)
    sub.write("file.txt", "staged\n")
    sub.git("add", "file.txt")
    sub.write("file.txt", "on disk\n")
    shutil.rmtree(tree.path / NESTED)
    (tree.path / NESTED).mkdir()
    head = sub.head
    tree.finish()
    (ref,) = held(project.store).values()
    assert project.store.show(f"{ref}:file.txt") == b"on disk\n"
    assert project.store.show(f"{ref}^2:file.txt") == b"staged\n"
    assert project.store.git("rev-parse", f"{ref}^1") == head


def test_the_commit_of_the_worktree_names_one_that_is_there(project: Project, tree: Tree) -> None:
    """``git submodule update`` in the main checkout, on the agent's branch, gets what the agent committed."""
    sub = inside(tree)
    sub.write("work", "committed\n")
    sub.commit("in the submodule")
    tree.inside.commit("another submodule")
    assert tree.finish().kept is None
    project.repo.git("checkout", "-q", f"ralph/{ID}")
    project.repo.git("submodule", "--quiet", "update")
    assert (project.repo.path / SUB / "work").read_text() == "committed\n"


def test_an_uncommitted_step_to_another_commit_is_saved(project: Project, tree: Tree) -> None:
    """In the worktree's own saved work."""
    commit = inside(tree).commit("in the submodule")
    assert tree.finish().kept is None
    assert project.repo.git("rev-parse", f"{WIP}:{SUB}") == commit


def test_what_is_below_a_submodule_does_not_count_as_the_worktrees(project: Project, tree: Tree) -> None:
    """A file in it is no file of the project."""
    inside(tree).write("new", "n\n")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert (outcome.saved.branch, outcome.saved.paths) == (None, (f"{SUB}/new",))
    assert WIP not in project.repo.branches()


def test_ignored_files_in_a_submodule_are_counted(tree: Tree) -> None:
    """They go with it, so they are told."""
    inside(tree).write("a.ignored", "x\n")
    outcome = tree.finish()
    assert outcome.saved is not None
    assert (outcome.saved.ignored, outcome.saved.ignored_files) == ((f"{SUB}/a.ignored",), 1)


def test_a_submodule_that_the_agent_added(project: Project, tree: Tree, tmp_path: Path) -> None:
    """Nobody else has it; its commits go where the project's are."""
    other = make_repo(tmp_path / "other")
    tree.inside.git(*ALLOWED, "submodule", "--quiet", "add", other.path, "added")
    inside(tree, "added").write("mine", "m\n")
    commit = inside(tree, "added").commit("mine")
    assert tree.finish().kept is None
    assert project.repo.git("rev-parse", f"{WIP}:added") == commit
    assert project.repo.show(f"{commit}:mine") == b"m\n"


def test_a_submodule_whose_directory_is_gone(project: Project, tree: Tree) -> None:
    """Its commits are saved all the same."""
    commit = inside(tree).commit("work")
    tree.inside.git("submodule", "--quiet", "deinit", "--force", "--all")
    assert tree.finish().kept is None
    assert commit in held(project.store).values()


def test_a_conflict_about_the_commit_of_a_submodule(project: Project, tree: Tree) -> None:
    """Both sides and what the agent has there are saved."""
    sub = inside(tree)
    commits = []
    for name in ("side", f"ralph/{ID}"):
        tree.inside.git("checkout", "-q", *(["-b"] if name == "side" else []), name)
        sub.git("checkout", "-q", "--detach", "origin/main")
        sub.write(name, "x\n")
        commits.append(sub.commit(name))
        tree.inside.git("commit", "-qam", name)
    tree.inside.git("merge", "side", check=False)
    assert len(tree.inside.git("ls-files", "--unmerged").splitlines()) == 3
    sub.write("new", "n\n")
    assert tree.finish().kept is None
    assert found(project.store, "new") == {b"n\n"}
    assert {*commits} <= {*project.store.git("rev-list", "--all").splitlines()}


def test_work_on_a_shallow_clone_of_a_shallow_clone(tmp_path: Path) -> None:
    """Where the repository that stays ends in the same place, it can take what stands on that."""
    project = make_project(tmp_path / "world", checked_out=False)
    project.upstream.commit("not the first")
    head = project.upstream.head
    project.repo.git("update-index", "--cacheinfo", f"160000,{head},{SUB}")
    project.repo.git("commit", "-q", "-m", "not the first")
    url = f"file://{project.upstream.path}"
    update = (*ALLOWED, "-c", f"submodule.{SUB}.url={url}", "submodule", "--quiet", "update", "--init")
    project.repo.git(*update, "--depth", "1")
    tree = project.tree(initialised=False)
    tree.inside.git(*update, "--depth", "1")
    assert (project.store.path / "shallow").read_text() == (_repository(tree) / "shallow").read_text()
    _detached(inside(tree))
    assert tree.finish().kept is None
    assert found(project.store, "work") == {b"detached\n"}
    assert project.store.git("fsck", "--no-dangling") == ""


def test_saving_again_makes_nothing_new(
    project: Project, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was killed after the save is followed by somebody who saves the same."""
    _stashed(inside(tree))
    inside(tree).write("new", "n\n")
    remove = import_module("ralph_wrap.worktree.remove")
    with monkeypatch.context() as patch:
        patch.setattr(remove, "_remove", lambda *_, **__: "killed")
        first = tree.finish()
    before = held(project.store)
    second = tree.finish()
    assert (first.kept, second.kept) == ("killed", None)
    assert held(project.store) == before
    assert first.saved is not None
    assert second.saved is not None
    assert [one.refs for one in first.saved.inner] == [one.refs for one in second.saved.inner]


BEGUN = {
    "nothing": (),
    "templates": ("hooks/post-checkout.sample", "info/exclude", "description"),
    "a head": ("description", "HEAD"),
    "no objects": ("HEAD", "config.lock"),
    "half a pack": ("HEAD", "config", "refs/heads/", "objects/pack/tmp_pack_AbCdEf", "objects/info/"),
}


@pytest.mark.parametrize("begun", BEGUN)
def test_a_clone_that_was_cut_short_is_nothing(project: Project, begun: str) -> None:
    """Git makes these in this order; before there is a ref or an index, there is no work."""
    tree = project.tree(initialised=False)
    place = _repository(tree)
    place.mkdir(parents=True)
    for name in BEGUN[begun]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (place / name).mkdir()
        else:
            (place / name).write_text("ref: refs/heads/main\n" if name == "HEAD" else "")
    assert tree.finish().kept is None


@pytest.mark.parametrize("name", ["refs/heads/work", "packed-refs", "index", "logs/HEAD", "objects/work"])
def test_one_that_may_hold_work_is_not_taken_for_one_cut_short(project: Project, name: str) -> None:
    """The control for the test above; git cannot read this one, so that it is kept."""
    tree = project.tree(initialised=False)
    place = _repository(tree)
    (place / name).parent.mkdir(parents=True)
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    (place / name).write_text("")
    assert SUB in _kept(tree)


# What keeps the worktree


def _kept(tree: Tree) -> str:
    outcome = tree.finish()
    assert outcome.kept is not None
    assert tree.path.is_dir()
    assert (tree.linked.registration / "modules").is_dir()
    return outcome.kept


def _repository(tree: Tree) -> Path:
    return tree.linked.registration / "modules" / SUB


def _nested_repository(tree: Tree) -> None:
    make_repo(tree.path / SUB / "inner")


def _nested_and_ignored(tree: Tree) -> None:
    inside(tree).write(".gitignore", "build/\n")
    make_repo(tree.path / SUB / "build" / "inner")


def _staged_without_files(tree: Tree) -> None:
    inside(tree).write("staged", "s\n")
    inside(tree).git("add", "staged")
    shutil.rmtree(tree.path / SUB)
    (tree.path / SUB).mkdir()


def _another_worktree(tree: Tree) -> None:
    inside(tree).git("worktree", "add", "-q", "--detach", tree.path.parent / "beside")


def _patches(tree: Tree) -> None:
    (_repository(tree) / "rebase-apply").mkdir()
    (_repository(tree) / "rebase-apply" / "applying").touch()


def _unknown_file(tree: Tree) -> None:
    (_repository(tree) / "annex").mkdir()


def _large_files(tree: Tree) -> None:
    place = _repository(tree) / "lfs" / "objects" / "ab" / "cd"
    place.mkdir(parents=True)
    (place / "abcd").write_text("large\n")


def _file_beside(tree: Tree) -> None:
    (tree.linked.registration / "modules" / "precious").write_text("p\n")


def _symlink(tree: Tree) -> None:
    moved = tree.path.parent / "moved"
    _repository(tree).rename(moved)
    _repository(tree).symlink_to(moved)


def _two_directories(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    shutil.copytree(tree.path / SUB, tree.path / "vendor" / "y")
    oid = inside(tree).head
    tree.inside.git("update-index", "--add", "--cacheinfo", f"160000,{oid},vendor/y")


def _out_of_the_index(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    tree.inside.git("rm", "-q", "--cached", SUB)


def _broken_ref(tree: Tree) -> None:
    (_repository(tree) / "refs" / "heads" / "broken").write_text("1" * 40 + "\n")


def _ref_to_a_file(tree: Tree) -> None:
    sub = inside(tree)
    sub.git("update-ref", "refs/precious", sub.git("hash-object", "-w", "file.txt"))


def _without_index(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    (_repository(tree) / "index").write_bytes(b"garbage")


def _in_its_own_directory(tree: Tree) -> None:
    inside(tree).write("new", "n\n")
    (tree.path / SUB / ".git").unlink()
    shutil.move(_repository(tree), tree.path / SUB / ".git")
    inside(tree).git("config", "--unset", "core.worktree")
    (tree.linked.registration / "modules" / "rest").mkdir(parents=True)


KEEPING: dict[Callable[[Tree], None], str] = {
    _nested_repository: "submodule vendor/x: nested repository inner cannot be saved",
    _nested_and_ignored: "submodule vendor/x: nested repository build/inner cannot be saved",
    _staged_without_files: "its directory is gone, and something is staged",
    _another_worktree: "submodule vendor/x: another worktree belongs to it",
    _patches: "git am is in progress",
    _unknown_file: "submodule vendor/x: annex in its repository is unknown",
    _large_files: "submodule vendor/x: large files of git-lfs are nowhere else",
    _file_beside: "modules/precious belongs to no repository",
    _symlink: "is a symlink",
    _two_directories: "two directories share modules/vendor/x: vendor/x, vendor/y",
    _out_of_the_index: "nested repository vendor/x cannot be saved",
    _broken_ref: "submodule vendor/x: it cannot be saved",
    _ref_to_a_file: "submodule vendor/x: refs/precious names a blob",
    _without_index: "submodule vendor/x: the index cannot be read",
    _in_its_own_directory: "nested repository vendor/x cannot be saved",
}


@pytest.mark.parametrize("state", KEEPING, ids=lambda state: state.__name__.strip("_"))
def test_what_cannot_be_saved_keeps_the_worktree(tree: Tree, state: Callable[[Tree], None]) -> None:
    """With a line that names the submodule."""
    state(tree)
    before = on_disk(tree.path)
    assert KEEPING[state] in _kept(tree)
    assert on_disk(tree.path) == before


def test_a_shallow_clone_with_work_keeps_the_worktree(tmp_path: Path) -> None:
    """A repository that is whole cannot take a commit whose parents nobody has."""
    project = make_project(tmp_path / "world", checked_out=False)
    tree = project.tree(initialised=False)
    url = f"file://{project.upstream.path}"
    update = ("submodule", "--quiet", "update", "--init", "--depth", "1")
    project.upstream.git("config", "uploadpack.allowAnySHA1InWant", "true")
    tree.inside.git(*ALLOWED, "-c", f"submodule.{SUB}.url={url}", *update)
    assert (_repository(tree) / "shallow").exists()
    inside(tree).commit("work")
    assert "submodule vendor/x: it cannot be saved: it is a shallow clone" in _kept(tree)
    assert held(project.repo) == {}
    assert project.repo.git("fsck", "--no-dangling") == ""


def test_objects_that_do_not_come_keep_the_worktree(
    project: Project, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ref is made before every object has come, not only the commits."""

    def write_commits(here: git.Git, objects: Path, wanted: tuple[str, ...], _: object) -> None:
        oids = "".join(f"{oid}\n" for oid in wanted).encode()
        git.run_git(here, "pack-objects", "-q", objects / "pack" / "pack", stdin=oids)

    _detached(inside(tree))
    before = _refs(project.store)
    monkeypatch.setattr(git, "write_pack", write_commits)
    assert "submodule vendor/x: it cannot be saved" in _kept(tree)
    assert _refs(project.store) == before


def test_keeping_dirty_work_counts_that_in_submodules(project: Project, tree: Tree) -> None:
    """The worktree stays, as was asked for."""
    inside(tree).write("new", "n\n")
    outcome = tree.finish(keep_dirty=True)
    assert (outcome.kept, outcome.asked) == ("submodule vendor/x: 1 uncommitted path", True)
    assert held(project.store) == {}


def test_a_store_that_borrows_from_the_submodule_is_none(project: Project, tree: Tree) -> None:
    """What it seems to have would go."""
    commit = inside(tree).commit("work")
    alternates = project.store.path / "objects" / "info" / "alternates"
    alternates.write_text(f"{_repository(tree)}/objects\n")
    project.store.git("update-ref", "refs/heads/seems", commit)
    assert tree.finish().kept is None
    assert commit in held(project.repo).values()


@pytest.mark.parametrize(("length", "saved"), [(40, False), (39, True)])
def test_a_commit_that_was_cloned_is_known_by_its_whole_id(tree: Tree, *, length: int, saved: bool) -> None:
    """Of a file that was cut short, what is left of the last line may be the beginning of any other one."""
    commit = inside(tree).commit("work")
    (_repository(tree) / "ralph-wrap-cloned").write_text(commit[:length])
    assert tree.finish().kept is None
    store = Repo(tree.repo.path / ".git" / "modules" / SUB)
    assert (commit in held(store).values()) is saved


# What happens in the meantime


def _late_file(tree: Tree) -> None:
    inside(tree).write("late", "precious\n")


def _late_commit(tree: Tree) -> None:
    inside(tree).commit("late")


def _late_branch(tree: Tree) -> None:
    _on_a_branch(inside(tree))


def _late_module(tree: Tree) -> None:
    other = make_repo(tree.repo.path.parent / "late")
    shutil.copytree(other.path / ".git", tree.linked.registration / "modules" / "late")


def _late_stash(tree: Tree) -> None:
    _stashed(inside(tree))


def _late_nested_file(tree: Tree) -> None:
    inside(tree, NESTED).write("late", "precious\n")


def _late_repository(tree: Tree) -> None:
    other = make_repo(tree.repo.path.parent / "late")
    tree.inside.git(*ALLOWED, "submodule", "--quiet", "add", other.path, "late")


LATE = [
    _late_file,
    _late_commit,
    _late_branch,
    _late_stash,
    _late_nested_file,
    _late_repository,
    _late_module,
]


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.__name__.strip("_"))
def test_what_is_done_after_the_save_keeps_the_worktree(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, late: Callable[[Tree], None]
) -> None:
    """The last look finds it, when nobody can reach the worktree any more; all is where it was."""
    inside(tree).write("saved", "before\n")
    real = whole.save

    def save_and_write(*arguments: object, **options: object) -> object:
        saved = real(*arguments, **options)  # type: ignore[arg-type]
        late(tree)
        return saved

    monkeypatch.setattr(import_module("ralph_wrap.worktree.remove"), "save", save_and_write)
    assert _kept(tree) == "something was changed in it while it was being removed"


def test_a_registration_of_which_submodules_are_deleted_first(
    project: Project, tree: Tree, tmp_path: Path
) -> None:
    """Git killed at it: the last look was taken, so that nothing is lost if we delete the rest."""
    commit = inside(tree).commit("work")
    registration = tree.linked.registration
    deadly = f'*" worktree remove "*) rm -rf {registration}/modules; kill -9 $$ ;;'
    outcome = _finish_with(tree, {"PATH": shim_git(tmp_path / "bin", deadly)})
    assert outcome.kept is None
    assert not tree.path.exists()
    assert not registration.exists()
    assert commit in held(project.store).values()


def _finish_with(tree: Tree, env: dict[str, str]) -> WorktreeOutcome:
    return finish(
        tree.linked,
        git.Git(tree.repo.path, git.git_environment({**os.environ, **env})),
        agent_id=ID,
        session=SESSION,
        trash=tree.repo.path / ".ralph" / "run" / "trash",
        keep=None,
        keep_dirty=False,
    )


# Removal without saving


def _remove(tree: Tree, check: Callable[[Losses], None]) -> Losses:
    where = git.Git(tree.repo.path, git.git_environment(os.environ))
    trash = tree.repo.path / ".ralph" / "run" / "trash"
    return remove_worktree(tree.linked, where, trash, SESSION, check=check)


def _refuse(lost: Losses) -> None:
    if not lost.none:
        raise RefusedError("; ".join(lost.lines()))


def test_removal_lists_what_would_be_lost_in_submodules(tree: Tree) -> None:
    """As it does for the worktree itself."""
    sub = inside(tree)
    commit = sub.commit("work")
    sub.write("new", "n\n")
    with pytest.raises(RefusedError) as refused:
        _remove(tree, _refuse)
    told = f"uncommitted: {SUB}; uncommitted: {SUB}/new; commit on no branch: {commit}"
    assert refused.value.message == told
    assert (tree.path / SUB / "new").exists()


def test_removal_of_an_unchanged_one(tree: Tree) -> None:
    """Nothing would be lost."""
    assert _remove(tree, _refuse).none
    assert not tree.path.exists()


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.__name__.strip("_"))
def test_removal_looks_for_the_last_time(tree: Tree, late: Callable[[Tree], None]) -> None:
    """What is done between the list and the removal keeps it."""

    def check_and_write(lost: Losses) -> None:
        _refuse(lost)
        late(tree)

    with pytest.raises(RefusedError, match="something was changed in it"):
        _remove(tree, check_and_write)
    assert tree.path.is_dir()


# Afterwards


def test_saved_work_is_taken_over_in_the_main_checkout(project: Project, tree: Tree) -> None:
    """By the commands of the README."""
    inside(tree).write("file.txt", "changed\n")
    tree.finish()
    ref = f"refs/ralph/snapshots/{ID}/commit-1"
    words = ("--git-dir=.git/modules/vendor/x", "log", "-p", "-m", "--first-parent", ref)
    assert "+changed" in project.repo.git(*words)
    project.repo.git("-C", SUB, "switch", "-q", "-c", ID, ref)
    assert (project.repo.path / SUB / "file.txt").read_text() == "changed\n"


def test_saved_work_is_taken_over_from_the_project(tmp_path: Path) -> None:
    """The same, where the main checkout had no such submodule."""
    project = make_project(tmp_path / "world", checked_out=False)
    tree = project.tree()
    inside(tree).write("file.txt", "changed\n")
    outcome = tree.finish()
    assert outcome.saved is not None
    (ref,) = next(one.refs for one in outcome.saved.inner if one.path == SUB)
    project.repo.git(*ALLOWED, "submodule", "--quiet", "update", "--init")
    project.repo.git("-C", SUB, "fetch", "-q", "../..", ref)
    project.repo.git("-C", SUB, "switch", "-q", "-c", ID, "FETCH_HEAD")
    assert (project.repo.path / SUB / "file.txt").read_text() == "changed\n"

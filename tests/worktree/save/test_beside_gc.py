"""A ``git gc --prune=now`` beside a save, and objects that are damaged when it begins."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.errors import GitError
from ralph_wrap.git import Git, git_environment
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.save.checkpoint import snapshot
from ralph_wrap.worktree.save.commits import unreachable
from tests.support.damage import DAMAGES, damage_loose, damaged, loose_path
from tests.support.git_shim import shim_git
from tests.support.repo import Repo
from tests.support.sessions import run
from tests.support.submodules import held, inside, make_project
from tests.support.trees import ID, SESSION, WIP, Tree, make_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = ("status", "add", "write-tree", "commit-tree", "pack-objects", "cat-file", "update-ref")
"""The git commands of a save, in the order in which they begin."""


class Prune:
    """A ``git prune --expire=now`` that has looked at refs, reflogs and indexes, and has deleted nothing yet.

    Arguments:
        repo: the repository.
        directory: for its script.

    """

    def __init__(self, repo: Repo, directory: Path) -> None:
        self.repo = repo
        listed = repo.git(
            "rev-list", "--objects", "--missing=allow-any", "--all", "--reflog", "--indexed-objects"
        )
        self.reachable = {line.split()[0] for line in listed.splitlines()}
        self._directory = directory

    def git_that_is_beside(
        self, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool = False, once_packed: bool = False
    ) -> Path:
        """Let it delete whenever git begins, or has ended, a step; return a file that it makes then.

        Arguments:
            once_packed: it does so once git has made a pack.

        """
        kept, ran = self._directory / "reachable", self._directory / "ran"
        kept.write_text("".join(f"{oid}\n" for oid in self.reachable))
        deletes = f"""touch {ran}
        for object in {self.repo.path}/.git/objects/??/*; do
            name=${{object%/*}}; name=${{name##*/}}${{object##*/}}
            grep -q "$name" {kept} || rm -f "$object"
        done
        rm -f {self.repo.path}/.git/objects/pack/tmp_*"""
        if once_packed:
            deletes = f"if [ -e {self._directory}/packed ]; then {deletes}; fi"
        body = f'"$REAL" "$@"; status=$?\n{deletes}\nexit $status' if after else deletes
        cases = f'*" {step} "*)\n{body} ;;'
        if once_packed:
            cases = (
                f'*" pack-objects "*) "$REAL" "$@"; s=$?; touch {self._directory}/packed; exit $s ;;\n{cases}'
            )
        monkeypatch.setenv("PATH", shim_git(self._directory / "bin", cases))
        return ran

    def delete(self) -> None:
        """Delete every other loose object."""
        for path in (self.repo.path / ".git/objects").glob("??/*"):
            if path.parent.name + path.name not in self.reachable:
                path.unlink()


def assert_whole(repo: Repo) -> None:
    """Every object of every ref and reflog is there, and nothing of a save is left."""
    repo.git("fsck", "--full", "--strict")
    repo.git("log", "--all", "--reflog", "--oneline")
    repo.git("gc", "--quiet", "--prune=now")
    assert [*(repo.path / ".git/objects").glob("ralph-wrap-*")] == []
    assert [*(repo.path / ".git/objects/pack").glob("*.keep")] == []


@pytest.mark.parametrize(
    ("step", "after"), [*((step, False) for step in STEPS), ("pack-objects", True), ("update-ref", True)]
)
def test_a_prune_takes_nothing_of_the_work(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool
) -> None:
    """It has looked before the first object was stored, and deletes at each step, again and again."""
    ran = Prune(tree.repo, tmp_path).git_that_is_beside(monkeypatch, step, after=after)
    tree.inside.write("dir/tracked.txt", "changed\n")
    tree.inside.git("add", "dir/tracked.txt")
    tree.inside.write("new.txt", "new\n")
    outcome = tree.finish()
    assert ran.exists()
    assert outcome.kept is None
    assert not tree.path.exists()
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"
    assert tree.repo.git("show", f"{WIP}^2:dir/tracked.txt") == "changed"
    assert_whole(tree.repo)


@pytest.mark.parametrize("step", ["pack-objects", "cat-file", "update-ref"])
@pytest.mark.parametrize(
    "command", ["gc --quiet --prune=now", "repack -a -d -k -q", "repack -a -d -q", "maintenance run --quiet"]
)
def test_a_real_gc_takes_nothing_of_the_work(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, command: str
) -> None:
    """It runs as a whole before a step: what is in the repository then has no ref, and must stay."""
    git_dir = tree.repo.path / ".git"
    runs = f'touch {tmp_path}/ran; env -i PATH="$PATH" HOME={tmp_path} "$REAL" -C {git_dir} {command} >&2'
    monkeypatch.setenv("PATH", shim_git(tmp_path / "bin", f'*" {step} "*) {runs} ;;'))
    tree.inside.write("committed.txt", "committed\n")
    tree.inside.commit("work")
    tree.inside.write("new.txt", "new\n")
    outcome = tree.finish()
    assert (tmp_path / "ran").exists()
    assert outcome.kept is None
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"
    assert_whole(tree.repo)


@pytest.mark.parametrize("step", ["cat-file", "worktree"])
def test_a_prune_takes_no_commit_of_the_agent(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The branch has its commit; the prune has looked before, and deletes it once the save has a pack."""
    ran = Prune(tree.repo, tmp_path).git_that_is_beside(monkeypatch, step, once_packed=True)
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    outcome = tree.finish()
    assert ran.exists()
    assert outcome.kept is None
    assert tree.repo.git("show", f"ralph/{ID}:new.txt") == "new"
    assert_whole(tree.repo)


def test_a_lost_file_of_a_commit_is_stored_again(tree: Tree) -> None:
    """An agent has committed beside a gc, and the worktree has the last copy of a file."""
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    loose_path(tree.repo, tree.inside.git("rev-parse", "HEAD:new.txt")).unlink()
    loose_path(tree.repo, tree.inside.git("rev-parse", "HEAD^{tree}")).unlink()
    assert tree.finish().kept is None
    assert tree.repo.git("show", f"ralph/{ID}:new.txt") == "new"
    assert_whole(tree.repo)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_object_of_the_work_is_stored_again(tree: Tree, how: str) -> None:
    """Git takes a damaged object for a stored one: an earlier ``git add`` or a power failure left it."""
    tree.inside.write("new.txt", "new\n" * 100)
    blob = tree.inside.git("hash-object", "-w", "new.txt")
    damage_loose(tree.repo, blob, how)
    assert tree.finish().kept is None
    assert tree.repo.git("show", f"{WIP}:new.txt") == ("new\n" * 100).removesuffix("\n")
    assert tree.repo.git("rev-list", "--objects", WIP)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("lost", ["HEAD", "HEAD~1", "HEAD~1:gone.txt", "HEAD~1^{tree}"])
def test_damage_in_a_commit_keeps_the_worktree(tree: Tree, how: str, lost: str) -> None:
    """The files are saved on the newest whole commit; when the object is mended, the next try finishes."""
    tree.inside.write("first.txt", "first\n")
    first = tree.inside.commit("first")
    tree.inside.write("gone.txt", "gone\n" * 20)
    tree.inside.commit("second")
    (tree.path / "gone.txt").unlink()
    tree.inside.write("third.txt", "third\n")
    third = tree.inside.commit("third")
    tree.inside.write("new.txt", "new\n")
    oid = tree.inside.git("rev-parse", lost)
    parent = tree.inside.git("rev-parse", "HEAD~1") if lost == "HEAD" else first
    with damaged(tree.repo, oid, how):
        outcomes = [tree.finish(), tree.finish()]
        saved = tree.repo.git("rev-parse", WIP)
    for outcome in outcomes:
        assert outcome.later
        assert outcome.kept is not None
        assert oid in outcome.kept
        assert f"saved on {WIP}" in outcome.kept
    assert tree.repo.git("rev-parse", f"{WIP}^") == parent
    assert tree.repo.git("show", f"{saved}:new.txt") == "new"
    assert tree.repo.git("show", f"{saved}:third.txt") == "third"
    assert len([*(tree.repo.path / ".git/objects/pack").glob("*.keep")]) == 1
    assert (tree.path / "new.txt").read_text() == "new\n"
    outcome = tree.finish()
    assert outcome.kept is None
    assert tree.repo.git("rev-parse", f"{WIP}^", f"ralph/{ID}") == f"{third}\n{third}"
    assert_whole(tree.repo)


def test_a_lost_commit_of_the_reflog_keeps_the_worktree(tree: Tree) -> None:
    """Only the reflog of HEAD names it, because the agent has amended it."""
    tree.inside.write("new.txt", "new\n")
    lost = tree.inside.commit("work")
    tree.inside.git("commit", "-q", "--amend", "-m", "better")
    loose_path(tree.repo, lost).unlink()
    outcome = tree.finish()
    assert outcome.later
    assert outcome.kept is not None
    assert lost in outcome.kept
    assert tree.path.exists()


def test_a_lost_staged_file_keeps_the_worktree(tree: Tree) -> None:
    """It was staged, then changed: no file has it. All files are saved."""
    tree.inside.write("new.txt", "staged\n")
    tree.inside.git("add", "new.txt")
    blob = tree.inside.git("rev-parse", ":new.txt")
    tree.inside.write("new.txt", "on the disk\n")
    loose_path(tree.repo, blob).unlink()
    outcome = tree.finish()
    assert outcome.later
    assert "what was staged is not saved" in str(outcome.kept)
    assert tree.repo.git("show", f"{WIP}:new.txt") == "on the disk"
    assert (tree.path / "new.txt").exists()


def test_a_session_without_work_makes_no_pack(tree: Tree) -> None:
    """It has nothing that a gc could delete."""
    before = sorted((tree.repo.path / ".git/objects").rglob("*"))
    assert tree.finish().kept is None
    assert sorted((tree.repo.path / ".git/objects").rglob("*")) == before


def test_a_kept_worktree_makes_one_pack(tree: Tree) -> None:
    """Until it is removed, its pack has a ``.keep`` file, so the same work needs no second one."""
    packs = tree.repo.path / ".git/objects/pack"
    tree.inside.write("new.txt", "new\n")
    for _ in range(3):
        assert tree.finish(cancel=OutOfTime()).later
    assert len([*packs.glob("*.pack")]) == len([*packs.glob("*.keep")]) == 1
    assert tree.finish().kept is None
    assert len([*packs.glob("*.pack")]) == 1
    assert_whole(tree.repo)


def test_what_a_killed_save_has_left_is_removed(tree: Tree) -> None:
    """Its directory with new objects, and its ``.keep`` file; those of another session stay."""
    objects = tree.repo.path / ".git/objects"
    for session in (SESSION, f"{SESSION}1"):
        (objects / f"ralph-wrap-save-{session}-00aa11bb/12").mkdir(parents=True)
        (objects / f"pack/pack-{session[-1] * 40}.keep").write_text(f"ralph-wrap: a save of {session}\n")
    tree.inside.write("new.txt", "new\n")
    assert tree.finish().kept is None
    assert [path.name for path in objects.glob("ralph-wrap-*")] == [f"ralph-wrap-save-{SESSION}1-00aa11bb"]
    assert [path.name for path in (objects / "pack").glob("*.keep")] == [f"pack-{'1' * 40}.keep"]


def unpack(repo: Repo) -> None:
    """Have only loose objects."""
    objects = repo.path / ".git/objects"
    for path in [*(objects / "pack").glob("*.pack")]:
        moved = path.rename(objects / path.name)
        path.with_suffix(".idx").unlink()
        with moved.open("rb") as content:
            subprocess.run(("git", "unpack-objects", "-q"), cwd=repo.path, stdin=content, check=True)


def test_a_branch_of_another_session_has_lost_its_commit(tree: Tree) -> None:
    """It contains nothing, so the commits of a detached HEAD get a ref as always."""
    tree.repo.git("branch", "ralph/other")
    (tree.repo.path / ".git/refs/heads/ralph/other").write_text("7" * 40 + "\n")
    tree.inside.git("checkout", "-q", "--detach")
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("work")
    assert tree.finish().kept is None
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"


def test_no_missing_commit_counts_as_contained_in_a_branch(tree: Tree) -> None:
    """Also if a branch lacks its commit, too, so that git looks once more without such branches."""
    (tree.repo.path / ".git/refs/heads/ralph").mkdir(exist_ok=True)
    (tree.repo.path / ".git/refs/heads/ralph/other").write_text("7" * 40 + "\n")
    with pytest.raises(GitError):
        unreachable(git_at(tree.repo), ["8" * 40])


class OutOfTime(CancelToken):
    """A session that has to end now."""

    @property
    def out_of_time(self) -> bool:
        """There is no time left."""
        return True


def git_at(repo: Repo) -> Git:
    """Return git in a repository."""
    return Git(repo.path, git_environment(os.environ))


def take_snapshot(tree: Tree, number: int = 1) -> str:
    """Take a snapshot, and return its ref."""
    kept = snapshot(tree.linked, git_at(tree.repo), agent_id=ID, session=SESSION, number=number)
    assert kept.ref is not None
    return kept.ref


@pytest.mark.parametrize("step", ["write-tree", "commit-tree", "cat-file"])
def test_a_prune_during_a_snapshot(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It deletes once what the snapshot has stored: git stores it again, and only then it is named."""
    ran = Prune(tree.repo, tmp_path).git_that_is_beside(monkeypatch, step)
    script = tmp_path / "bin/git"
    script.write_text(
        script.read_text().replace(f"touch {ran}", f'[ -e {ran} ] && exec "$REAL" "$@"; touch {ran}')
    )
    tree.inside.write("new.txt", "new\n")
    ref = take_snapshot(tree)
    assert ran.exists()
    tree.repo.git("fsck", "--full")
    assert tree.repo.git("show", f"{ref}:new.txt") == "new"


def test_a_damaged_object_makes_no_snapshot(tree: Tree) -> None:
    """The error names it, and no ref is made."""
    tree.inside.write("new.txt", "new\n")
    blob = tree.inside.git("hash-object", "-w", "new.txt")
    damage_loose(tree.repo, blob, "empty")
    with pytest.raises(GitError) as raised:
        take_snapshot(tree)
    assert blob in str(raised.value)
    assert tree.repo.git("for-each-ref", "refs/ralph/") == ""


def test_a_base_that_a_gc_has_deleted_is_not_missed(tree: Tree) -> None:
    """The agent has left it, and no branch contains it. What the branch has now is whole."""
    tree.inside.git("checkout", "-q", "--orphan", "other")
    tree.inside.write("new.txt", "new\n")
    tree.inside.commit("anew")
    tree.inside.git("checkout", "-q", "-B", f"ralph/{ID}")
    tree.repo.git("checkout", "-q", "-B", "main", f"ralph/{ID}")
    tree.repo.git("branch", "-q", "-D", "other")
    tree.repo.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    tree.repo.git("gc", "-q", "--prune=now")
    assert tree.repo.git("cat-file", "-t", tree.linked.base, check=False) == ""
    assert tree.finish().kept is None


def _outside_of_a_sparse_checkout(inside: Repo) -> None:
    inside.git("sparse-checkout", "set", "--no-cone", "/dir/")
    inside.write("outside.txt", "new\n")


def _to_be_added(inside: Repo) -> None:
    inside.write("empty.txt", "new\n")
    inside.git("add", "--intent-to-add", "empty.txt")


@pytest.mark.parametrize("change", [_outside_of_a_sparse_checkout, _to_be_added])
def test_files_that_git_add_leaves_out_are_stored_again(tree: Tree, change: Callable[[Repo], None]) -> None:
    """They are saved a second time as they were the first time."""
    path = tree.inside.write("dir/new.txt", "new\n")
    damage_loose(tree.repo, tree.inside.git("hash-object", "-w", path), "empty")
    change(tree.inside)
    assert tree.finish().kept is None
    assert tree.repo.git("show", f"{WIP}:dir/new.txt") == "new"
    tree.repo.git("rev-list", "--objects", WIP)


def test_beside_a_nested_repository_the_other_files_are_stored_again(tree: Tree) -> None:
    """Git cannot add a repository without a commit, so the worktree stays. The other files are saved."""
    path = tree.inside.write("new.txt", "new\n")
    damage_loose(tree.repo, tree.inside.git("hash-object", "-w", path), "empty")
    tree.inside.git("init", "-q", "nested")
    assert tree.finish().kept == "nested repository nested cannot be saved"
    assert tree.repo.git("show", f"{WIP}:new.txt") == "new"


def test_a_repeated_save_has_the_index_of_a_submodule(tmp_path: Path) -> None:
    """The first save has added all files to its copy of the index."""
    project = make_project(tmp_path / "world")
    tree = project.tree()
    sub = inside(tree)
    sub.write("file.txt", "staged\n")
    sub.git("add", "file.txt")
    sub.write("file.txt", "on the disk\n")
    path = tree.inside.write("new.txt", "new\n")
    damage_loose(tree.repo, tree.inside.git("hash-object", "-w", path), "empty")
    assert tree.finish().kept is None
    assert [*held(project.store)] == ["submodule-1"]
    assert project.store.git("show", "refs/ralph/snapshots/00aa/submodule-1^2:file.txt") == "staged"


def test_what_a_sparse_partial_clone_lacks_is_not_missed(repo: Repo, tmp_path: Path) -> None:
    """Its remote has promised a file that is not checked out. The other files are stored again."""
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "partial")
    repo.git("clone", "-q", "--filter=blob:none", f"file://{repo.path}", clone.path)
    tree = make_tree(clone)
    tree.inside.git("sparse-checkout", "set", "--no-cone", "/dir/")
    repo.write("theirs.txt", "theirs\n")
    repo.commit("theirs")
    tree.inside.git("pull", "-q", "origin", "main")
    path = tree.inside.write("dir/new.txt", "new\n")
    damage_loose(clone, tree.inside.git("hash-object", "-w", path), "empty")
    assert tree.finish().kept is None
    assert clone.git("show", f"{WIP}:dir/new.txt") == "new"


def test_a_gc_deletes_nothing_that_comes_from_a_clone(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins when the objects are in the repository and have no ref yet, and ends before they get one."""
    directory = repo.path / ".git"
    cases = f"""*" update-ref "*)
    if [ -n "$(find {directory}/objects/pack -name '*.idx')" ]; then
        touch {tmp_path}/began
        env -i PATH="$PATH" "$REAL" -C {directory} gc --quiet --prune=now
    fi ;;"""
    monkeypatch.setenv("PATH", shim_git(tmp_path / "bin", cases))
    work = "echo a > a; git add a; git commit -qm a; echo b > b"
    result = run(repo.path, "-n", "1", "--isolation", "clone", "--", "sh", "-ec", work)
    assert result.status == 0, result.stderr
    assert (tmp_path / "began").exists()
    assert repo.git("show", f"{result.report['saved']}:b") == "b", result.stderr
    repo.git("fsck", "--full", "--strict")
    assert [*(repo.path / ".git/objects/pack").glob("*.keep")] == []

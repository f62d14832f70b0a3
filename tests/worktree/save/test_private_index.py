"""What a look at the end of an iteration sees, by the index of our own, and what a snapshot keeps of it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph_wrap import git
from ralph_wrap.worktree.save import private_index
from ralph_wrap.worktree.save.checkpoint import Snapshots
from tests.support.profiles import costly_examples
from tests.support.repo import make_repo
from tests.support.submodules import ALLOWED
from tests.support.trees import (
    ID,
    SESSION,
    Listing,
    Tree,
    edit_while_staging,
    in_git,
    make_tree,
    on_disk,
    put,
)
from tests.worktree.save.test_property import LISTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph_wrap.worktree.save.checkpoint import Snapshot
    from ralph_wrap.worktree.save.private_index import WorktreeState


class Looks:
    """The looks of one session at its worktree."""

    def __init__(self, tree: Tree, directory: Path) -> None:
        self.tree = tree
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        where = git.Git(tree.repo.path, git.git_environment(os.environ))
        self.snapshots = Snapshots(tree.linked, where, directory, agent_id=ID, session=SESSION)
        self.number = 0

    def look(self) -> WorktreeState:
        """Look once."""
        return self.snapshots.look()

    def files(self) -> Listing:
        """Return the files that a look stores."""
        return in_git(self.tree.inside, self.look().trees.tree)

    def take(self) -> Snapshot:
        """Look, and take a snapshot."""
        self.number += 1
        return self.snapshots.take(self.look(), self.number)


@pytest.fixture
def looks(tree: Tree, tmp_path: Path) -> Looks:
    """Return looks after the first one, which found nothing uncommitted."""
    made = Looks(tree, tmp_path / "session")
    assert made.take().ref is None
    return made


_STEPS = st.lists(
    st.tuples(LISTINGS, st.sampled_from(["", "add", "commit", "hide", "reset", "remove"])),
    min_size=1,
    max_size=5,
)


@settings(max_examples=costly_examples(), deadline=None)
@given(base=LISTINGS, steps=_STEPS)
def test_each_look_stores_what_is_on_the_disk(base: Listing, steps: list[tuple[Listing, str]]) -> None:
    """Whatever the agent stages, commits, hides or resets between two looks."""
    with tempfile.TemporaryDirectory() as temporary:
        repo = make_repo(Path(temporary, "project"), empty=True)
        put(repo.path, base)
        repo.commit("base")
        tree = make_tree(repo)
        looks = Looks(tree, Path(temporary, "session"))
        for listing, how in steps:
            put(tree.path, listing)
            _do(tree, how)
            state = looks.look()
            assert in_git(tree.inside, state.trees.tree) == listing
            assert state.trees.index_tree == tree.inside.git("write-tree")
            assert state.trees.head_tree == tree.inside.git("rev-parse", "HEAD^{tree}")


def _do(tree: Tree, how: str) -> None:
    inside = tree.inside
    if how in {"add", "commit", "hide"}:
        inside.git("add", "--all")
    if how == "commit":
        inside.git("commit", "-q", "--allow-empty", "-m", "step")
    if how == "hide":
        names = inside.git("ls-files", "-z").split("\0")[:-1]
        inside.git("update-index", "--assume-unchanged", "--", *names) if names else None
    if how == "reset":
        inside.git("reset", "-q")
    if how == "remove":
        inside.git("rm", "-rq", "--cached", "--ignore-unmatch", ".")


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_the_agent_hides_is_seen(looks: Looks, flag: str) -> None:
    """Our index never has the flag, whenever the agent sets it."""
    looks.tree.inside.git("update-index", flag, "file.txt")
    looks.tree.inside.write("file.txt", "hidden\n")
    assert looks.files()[b"file.txt"] == ("100644", b"hidden\n")


def test_an_edit_while_a_look_stages_is_in_the_next_look(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size and same second, and git writes the index a second later."""
    path = looks.tree.path / "new"
    edit_while_staging(monkeypatch, private_index, path)
    path.write_text("status names it\n")
    looks.look()
    monkeypatch.undo()
    assert path.read_bytes() == b"final\n"
    assert looks.files()[b"new"][1] == b"final\n"


def test_an_edit_of_the_same_size_in_the_same_second_is_seen(looks: Looks) -> None:
    """Right after a look has written the index: git reads each file that is not older than that."""
    for number in range(30):
        looks.tree.inside.write("file.txt", f"{number:02}\n")
        assert looks.files()[b"file.txt"][1] == f"{number:02}\n".encode()


@pytest.mark.parametrize(
    "setting",
    ["core.trustctime=false", "core.checkStat=minimal", "core.ignoreStat=true", "core.fileMode=false"],
)
def test_no_setting_of_the_agent_hides_a_change(looks: Looks, setting: str) -> None:
    """The time is put back, and the mode is new: only ctime and mode tell."""
    looks.tree.inside.git("config", *setting.split("="))
    path = looks.tree.path / "dir" / "tracked.txt"
    before = path.stat()
    path.write_text("TRACKED\n")
    path.chmod(0o755)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looks.files()[b"dir/tracked.txt"] == ("100755", b"TRACKED\n")


def test_a_large_file_that_is_written_again_is_no_progress(looks: Looks) -> None:
    """Its content decides, not its time, however large it is."""
    path = looks.tree.inside.write("large", "x" * (3 << 20))
    before = looks.look().text
    path.write_text("x" * (3 << 20))
    os.utime(path, (1, 1))
    assert looks.look().text == before
    path.write_text("y" * (3 << 20))
    assert looks.look().text != before


def test_what_is_staged_is_progress_and_in_the_snapshot(looks: Looks) -> None:
    """The disk is as it was: the index alone has changed."""
    looks.tree.inside.write("file.txt", "on disk\n")
    before = looks.take()
    looks.tree.inside.git("add", "file.txt")
    looks.tree.inside.write("file.txt", "later\n")
    first = looks.look().text
    looks.tree.inside.git("reset", "-q")
    assert looks.look().text != first
    looks.tree.inside.git("add", "file.txt")
    looks.tree.inside.write("file.txt", "on disk\n")
    after = looks.take()
    assert before.ref != after.ref
    assert looks.tree.repo.show(f"{after.ref}:file.txt") == b"on disk\n"
    assert looks.tree.repo.show(f"{after.ref}^2:file.txt") == b"later\n"


@pytest.mark.parametrize("commits", [False, True], ids=["staged", "committed"])
def test_a_file_that_git_ignores_counts_as_soon_as_it_is_tracked(looks: Looks, *, commits: bool) -> None:
    """Git does not name it as new, and its later states are work, too."""
    inside = looks.tree.inside
    inside.write("out.ignored", "first\n")
    assert b"out.ignored" not in looks.files()
    inside.git("add", "--force", "out.ignored")
    if commits:
        inside.git("commit", "-qm", "forced")
    inside.write("out.ignored", "second\n")
    assert looks.files()[b"out.ignored"][1] == b"second\n"
    inside.write("out.ignored", "third\n")
    assert looks.files()[b"out.ignored"][1] == b"third\n"


@pytest.mark.parametrize("rule", ["ignored", "not ignored"])
@pytest.mark.parametrize("commits", [False, True], ids=["staged", "committed"])
def test_a_staged_file_that_comes_back_is_seen(looks: Looks, rule: str, *, commits: bool) -> None:
    """It may be absent at one look, and the agent need not stage it again."""
    inside, name = looks.tree.inside, "out.ignored" if rule == "ignored" else "out"
    path = inside.write(name, "first\n")
    inside.git("add", "--force", name)
    if commits:
        inside.git("commit", "-qm", "forced")
    for content in ("second\n", "third\n"):
        path.unlink()
        assert name.encode() not in looks.files()
        path.write_text(content)
        before = looks.look().text
        assert looks.files()[name.encode()][1] == content.encode()
        path.write_text(f"more of the {content}")
        assert looks.look().text != before


@pytest.mark.parametrize("form", ["--index-version=2", "--index-version=4", "--split-index"])
def test_a_file_that_git_ignores_and_intends_to_add_is_seen(looks: Looks, form: str) -> None:
    """No tree of the agent's index has it."""
    inside = looks.tree.inside
    path = inside.write("out.ignored", "first\n")
    before = looks.look().text
    inside.git("add", "--force", "--intent-to-add", "out.ignored")
    inside.git("update-index", *form.split("="))
    assert looks.files()[b"out.ignored"][1] == b"first\n"
    assert looks.look().text != before
    path.unlink()
    assert b"out.ignored" not in looks.files()
    path.write_text("second\n")
    assert looks.files()[b"out.ignored"][1] == b"second\n"


def test_a_file_that_git_ignores_beside_one_that_it_cannot_add(looks: Looks) -> None:
    """The other file is named, and this one is kept."""
    inside = looks.tree.inside
    inside.write("out.ignored", "first\n")
    inside.git("add", "--force", "out.ignored")
    _replace_by_pipe(looks.tree.path / "file.txt")
    assert looks.files()[b"out.ignored"][1] == b"first\n"


def test_what_is_in_the_place_of_a_staged_file_is_seen(looks: Looks) -> None:
    """A directory, or a link above it: git can add no such path, and adds what is there."""
    inside, top = looks.tree.inside, looks.tree.path
    inside.write("one/file", "x\n")
    inside.write("two", "x\n")
    inside.git("add", "one", "two")
    shutil.rmtree(top / "one")
    (top / "one").symlink_to("dir")
    (top / "two").unlink()
    inside.write("two/file", "y\n")
    for _ in range(2):
        assert looks.files() == on_disk(top)
        assert looks.take().problems == ()


@pytest.mark.parametrize("rules", [".gitignore", "exclude"])
def test_what_a_new_rule_ignores_leaves_the_next_snapshot(looks: Looks, rules: str) -> None:
    """Build output that was not ignored yet was new work until then."""
    inside = looks.tree.inside
    inside.write("target/out", "x\n")
    assert b"target/out" in looks.files()
    path = inside.path / ".gitignore" if rules == ".gitignore" else looks.tree.repo.path / ".git/info/exclude"
    with path.open("a") as appending:
        appending.write("target/\n")
    assert b"target/out" not in looks.files()


def test_the_same_work_is_kept_once(looks: Looks) -> None:
    """No object and no ref is made for it; if its ref is gone, the work gets one again."""
    looks.tree.inside.write("new", "x\n")
    first = looks.take()
    objects = on_disk(looks.tree.repo.path / ".git")
    assert looks.take().ref == first.ref
    assert on_disk(looks.tree.repo.path / ".git") == objects
    looks.tree.repo.git("update-ref", "-d", str(first.ref))
    again = looks.take()
    assert looks.tree.repo.show(f"{again.ref}:new") == b"x\n"


def test_work_in_the_place_of_a_link_is_seen(looks: Looks) -> None:
    """A directory becomes a link, and the link a directory again, with files below it that are work."""
    top = looks.tree.path
    shutil.rmtree(top / "dir")
    (top / "dir").symlink_to("/etc")
    assert looks.files() == on_disk(top)
    (top / "dir").unlink()
    looks.tree.inside.write("dir/work", "work\n")
    assert looks.files() == on_disk(top)
    shutil.rmtree(top / "dir")
    looks.tree.inside.write("dir", "a file\n")
    assert looks.files() == on_disk(top)


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "garbage": lambda path: path.write_bytes(b"garbage"),
    "a directory": _replace_by_directory,
    "a pipe": _replace_by_pipe,
    "locked": lambda path: path.with_name("index.lock").touch(),
    "staged is gone": lambda path: path.with_name("index-staged").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_our_index_is_made_again(looks: Looks, damage: Callable[[Path], object]) -> None:
    """An agent, a `git clean` or a killed git may have left anything in its place."""
    looks.tree.inside.write("new", "1\n")
    looks.look()
    damage(looks.directory / "index")
    looks.tree.inside.write("new", "2\n")
    assert looks.files()[b"new"][1] == b"2\n"


def test_a_look_that_was_ended_loses_nothing(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is in our index already, and so no later status names it as changed."""
    looks.tree.inside.write("new", "x\n")
    with monkeypatch.context() as patched:
        patched.setattr(private_index, "write_tree", _end)
        with pytest.raises(InterruptedError):
            looks.look()
    assert b"new" in looks.files()


def test_a_look_that_was_ended_while_it_began_anew_hides_nothing(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, our index is the agent's, with the flags that hide files."""
    inside = looks.tree.inside
    inside.git("update-index", "--assume-unchanged", "file.txt")
    inside.write(".gitignore", "*.new\n")
    inside.git("add", ".gitignore")  # so that no later status names the new rule
    with monkeypatch.context() as patched:
        patched.setattr(private_index, "lift_flags", lambda *_: _end(None))
        with pytest.raises(InterruptedError):
            looks.look()
    inside.write("file.txt", "hidden\n")
    assert looks.files()[b"file.txt"] == ("100644", b"hidden\n")


def _end(_git: object) -> str:
    raise InterruptedError("a signal came")


def test_a_new_submodule_is_no_nested_repository(looks: Looks, tmp_path: Path) -> None:
    """The agent has staged it, so the snapshot has its commit; what is uncommitted in it is named."""
    other = make_repo(tmp_path / "other")
    looks.tree.inside.git(*ALLOWED, "submodule", "--quiet", "add", other.path, "sub")
    assert looks.take().problems == ()
    (looks.tree.path / "sub" / "new").write_text("x\n")
    kept = looks.take()
    assert [*kept.problems, *kept.in_submodules] == [
        "submodule sub: the uncommitted work in it",
        "submodule sub: the commits in it",
    ]
    assert looks.tree.repo.git("rev-parse", f"{kept.ref}:sub") == other.head


def test_a_snapshot_waits_for_no_gc_of_another_container(looks: Looks) -> None:
    """Its pid and host say nothing here."""
    (looks.tree.repo.path / ".git/gc.pid").write_text(f"{os.getpid()} not-{socket.gethostname()}")
    looks.tree.inside.write("new", "x\n")
    begun = time.monotonic()
    assert looks.take().ref is not None
    assert time.monotonic() - begun < 5


def test_files_that_git_cannot_add_are_named_and_the_rest_is_kept(looks: Looks) -> None:
    """Here no mode says so before: a pipe is in the place of a file."""
    (looks.tree.path / "file.txt").unlink()
    os.mkfifo(looks.tree.path / "file.txt")
    looks.tree.inside.write("new", "x\n")
    kept = looks.take()
    (problem,) = kept.problems
    assert problem.startswith("1 file cannot be saved (file.txt): ")
    assert looks.tree.repo.show(f"{kept.ref}:new") == b"x\n"


@pytest.mark.parametrize("begins", ["first look", "new rule"])
def test_a_conflict_in_a_file_that_cannot_be_staged(tree: Tree, tmp_path: Path, begins: str) -> None:
    """Each look stores the rest: the conflict does not stay in our index, whenever that begins."""
    looks, inside = Looks(tree, tmp_path / "session"), tree.inside
    if begins == "new rule":
        looks.take()
        inside.write(".gitignore", "*.ignored\nbuild/\n*.new\n")
    inside.git("checkout", "-qb", "other")
    inside.write("file.txt", "theirs\n")
    inside.git("commit", "-qm", "theirs", "file.txt")
    inside.git("checkout", "-q", "-")
    inside.write("file.txt", "ours\n")
    inside.git("commit", "-qm", "ours", "file.txt")
    inside.git("merge", "-q", "other", check=False)
    _replace_by_pipe(tree.path / "file.txt")
    for number in ("1", "2"):
        inside.write("new", number)
        kept = looks.take()
        assert [problem.partition(": ")[0] for problem in kept.problems if "file.txt" in problem] == [
            "1 file cannot be saved (file.txt)"
        ]
        assert tree.repo.show(f"{kept.ref}:new") == number.encode()
        assert tree.repo.show(f"{kept.ref}:file.txt") == b"ours\n"

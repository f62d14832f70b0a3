"""One commit in the repository of the project keeps the work in submodules, for a remote."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.state.project import find_project
from ralph_wrap.worktree.save.submodule_snapshot.bring import bring_submodules
from ralph_wrap.worktree.save.submodule_snapshot.make import read_snapshot, ref_of, snapshot_submodules
from tests.support.repo import Repo
from tests.support.submodules import NESTED, SUB, Project, held, inside
from tests.support.trees import ID, SESSION, Tree, located

if TYPE_CHECKING:
    from ralph_wrap.worktree.save.submodule_snapshot.bring import BroughtSubmodule
    from ralph_wrap.worktree.save.submodule_snapshot.make import SubmoduleWork

REF = ref_of(ID)


def keep(tree: Tree, *, largest: int = 1 << 30, session: str = SESSION) -> tuple[str, ...]:
    """Make the snapshot, and return what it lacks."""
    git = find_project(tree.repo.path, os.environ).git
    store = git._replace(git_dir=tree.linked.common_dir)
    return snapshot_submodules(tree.linked, git, store, agent_id=ID, session=session, largest=largest)


def bring(tree: Tree, snapshot: str) -> list[BroughtSubmodule]:
    """Bring a snapshot, as ``fetch`` does."""
    common = tree.linked.common_dir
    return bring_submodules(located(tree.repo)[0]._replace(git_dir=common), common, ID, snapshot)


def kept(tree: Tree) -> list[SubmoduleWork]:
    """Return what the snapshot has; nothing if there is none."""
    found = tree.repo.git("for-each-ref", "--format=%(objectname)", REF)
    return read_snapshot(located(tree.repo)[0], found) if found else []


def test_submodules_without_work_bring_nothing(tree: Tree) -> None:
    """Their history is on their own remotes."""
    assert (keep(tree), kept(tree)) == ((), [])


def test_each_kind_of_work_is_kept(tree: Tree) -> None:
    """Uncommitted work is the commit to check out; a stash and an amended commit are kept beside it."""
    sub = inside(tree)
    sub.write("file.txt", "stashed\n")
    sub.git("stash")
    amended = sub.commit("amended")
    sub.git("commit", "-q", "--amend", "--allow-empty", "-m", "again")
    sub.write("new", "new\n")
    inside(tree, NESTED).write("deep.txt", "changed\n")
    assert keep(tree) == ()
    work, deep = kept(tree)
    assert (work.path, work.name, deep.path) == (SUB, f"modules/{SUB}", NESTED)
    assert tree.repo.show(f"{work.at}:new") == b"new\n"
    assert tree.repo.git("rev-parse", f"{work.at}^") == sub.head
    assert amended in work.others
    assert sub.git("rev-parse", "stash") in work.others
    assert tree.repo.show(f"{deep.at}:deep.txt") == b"changed\n"
    assert tree.repo.git("fsck", "--connectivity-only", "--no-dangling") == ""


def test_an_unchanged_state_is_the_same_snapshot(tree: Tree) -> None:
    """So no push is needed; the next change makes another one."""
    inside(tree).write("new", "new\n")
    keep(tree)
    first = tree.repo.git("rev-parse", REF)
    keep(tree)
    assert tree.repo.git("rev-parse", REF) == first
    inside(tree).write("new", "newer\n")
    keep(tree)
    assert tree.repo.show(f"{kept(tree)[0].at}:new") == b"newer\n"


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_snapshot_of_an_earlier_session_keeps_a_ref(tree: Tree, *, goes_on: bool) -> None:
    """The next session has only the checked out work in its worktree; it replaces snapshots of its own."""
    sub = inside(tree)
    sub.git("switch", "-q", "-c", "aside")
    aside = sub.commit("aside")
    keep(tree)
    sub.git("switch", "-q", "--detach", "HEAD^")
    (tree.linked.registration / "modules" / SUB / "logs/HEAD").unlink()
    sub.git("branch", "-q", "-D", "aside")
    if goes_on:
        sub.write("new", "new\n")
    for content in ("newer\n", "newest\n"):
        assert keep(tree, session=f"{SESSION}-next") == ()
        if goes_on:
            sub.write("new", content)
    assert aside not in {commit for work in kept(tree) for commit in work.commits}
    histories = [tree.repo.git("rev-list", oid).split() for oid in held(tree.repo).values()]
    assert sum(aside in history for history in histories) == 1


def test_a_submodule_that_went_stays_as_it_was(tree: Tree) -> None:
    """An agent has removed it, or this machine has never had it."""
    inside(tree).write("new", "new\n")
    keep(tree)
    before = kept(tree)
    tree.inside.git("submodule", "deinit", "-f", SUB)
    modules = tree.linked.registration / "modules"
    modules.rename(modules.with_name("gone"))
    assert (keep(tree), kept(tree)) == ((), before)


def test_what_cannot_travel_is_named(project: Project, tree: Tree) -> None:
    """A history that is too large, a tag with a message, and a nested repository."""
    sub = inside(tree)
    sub.commit("new")
    assert keep(tree, largest=1) == (
        f"submodule {SUB}: its history has 0 MiB, more than 0 MiB do not travel",
    )
    sub.git("tag", "-a", "-m", "a message", "v1")
    sub.git("init", "-q", "nested")
    Repo(sub.path / "nested").commit("work")
    assert keep(tree) == (f"submodule {SUB}: nested repository nested", f"submodule {SUB}: the tag v1")
    assert project.upstream.git("tag") == ""


def test_large_files_are_named_unless_the_main_checkout_has_them(project: Project, tree: Tree) -> None:
    """A commit has only their names, and git-lfs stores them in a directory of its own."""
    inside(tree).write("new", "new\n")
    names = Path("lfs", "objects", "ab", "cd", "abcd")
    problem = f"submodule {SUB}: large files of git-lfs, of which a commit has only the names"
    for repository, expected in (
        (tree.linked.registration / "modules" / SUB, (problem,)),
        (project.store.path, ()),
    ):
        (repository / names).parent.mkdir(parents=True)
        (repository / names).write_bytes(b"large")
        assert keep(tree) == expected


def test_the_save_of_the_end_does_not_rely_on_it(project: Project, tree: Tree) -> None:
    """The next snapshot of the session replaces it, so the save gives each commit a ref of its own."""
    tree.repo.path.joinpath(".git/modules").rename(tree.repo.path / ".git/none")
    commit = inside(tree).commit("new")
    keep(tree)
    outcome = tree.finish()
    assert outcome.saved is not None
    [saved] = [one for one in outcome.saved.inner if one.path == SUB]
    assert commit in held(tree.repo).values(), saved
    assert project.store.path != saved.store


def test_the_own_repository_of_the_submodule_gets_it(project: Project, tree: Tree) -> None:
    """With its history; where the main checkout has no such repository, that of the project has it."""
    sub = inside(tree)
    commit = sub.commit("new")
    inside(tree, NESTED).write("new", "new\n")
    keep(tree)
    common = tree.linked.common_dir
    (common / "modules" / SUB / "modules").rename(common / "none")
    work, deep = kept(tree)
    brought = bring(tree, tree.repo.git("rev-parse", REF))
    assert [(one.path, one.repository) for one in brought] == [
        (SUB, common / "modules" / SUB),
        (NESTED, common),
    ]
    assert commit in project.store.git("rev-list", *held(project.store).values())
    assert project.store.git("rev-parse", brought[0].at) == work.at
    assert tree.repo.git("rev-parse", brought[1].at) == deep.at
    assert bring(tree, tree.repo.git("rev-parse", REF)) == brought


@pytest.mark.parametrize(
    "name",
    [
        *("modules/../../../elsewhere", "../../elsewhere", "modules/vendor/x/../../../../../elsewhere"),
        *("/", "modules", "", "worktrees/x", "modules/link", "modules/\ud800", f"modules/{'x' * 300}"),
    ],
)
def test_a_forged_name_leads_nowhere(project: Project, tree: Tree, tmp_path: Path, name: str) -> None:
    """Each user of a remote can write a snapshot: its commits stay in the repository of the project."""
    commit = inside(tree).commit("new")
    keep(tree)
    elsewhere = tmp_path / "elsewhere"
    Repo(tmp_path).git("init", "-q", "--bare", "elsewhere")
    (tree.repo.path / ".git/modules/link").symlink_to(elsewhere)
    (tree.repo.path.parent / "elsewhere").symlink_to(elsewhere)
    forged = _forged(tree, [[name, "lib", commit, []]])
    [brought] = bring(tree, forged)
    assert brought.repository == tree.linked.common_dir
    assert Repo(elsewhere).git("for-each-ref") == ""
    assert held(project.store) == {}


@pytest.mark.parametrize(
    "rows",
    [
        *([["modules/vendor/x", "lib", "HEAD", []]], [["modules/vendor/x", "lib", "-x", ["--all"]]]),
        *([["modules/vendor/x", "lib"]], [7], ["text"], [["a", "b", {}, []]], [["a", "b", "", [[]]]]),
        *([["modules/vendor/x", "lib", None, None]], [["a", 1, "", []]]),
    ],
)
def test_a_forged_snapshot_brings_nothing(tree: Tree, rows: list[object]) -> None:
    """Only commits that are its parents are taken."""
    inside(tree).commit("new")
    keep(tree)
    before = tree.repo.git("for-each-ref")
    forged = _forged(tree, rows)
    assert bring(tree, forged) == []
    assert tree.repo.git("for-each-ref") == before


def _forged(tree: Tree, rows: list[object]) -> str:
    parents = [word for commit in kept(tree)[0].commits for word in ("-p", commit)]
    empty = tree.repo.git("hash-object", "-t", "tree", "/dev/null")
    body = json.dumps({"version": 1, "submodules": rows})
    words = (*parents, "-m", f"ralph: submodules of session {SESSION}", "-m", body)
    return tree.repo.git("commit-tree", empty, *words)


def test_no_program_of_a_submodule_runs(tree: Tree, tmp_path: Path) -> None:
    """Its repository names a filter, a hook and a monitor."""
    sub, ran = inside(tree), tmp_path / "ran"
    repository = tree.linked.registration / "modules" / SUB
    sub.git("config", "filter.x.clean", f"touch {ran}; cat")
    sub.git("config", "core.fsmonitor", f"touch {ran}")
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info/attributes").write_text("* filter=x\n")
    hook = repository / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    sub.write("file.txt", "changed\n")
    ran.unlink(missing_ok=True)
    assert keep(tree) == ()
    assert not ran.exists()
    assert tree.repo.show(f"{kept(tree)[0].at}:file.txt") == b"changed\n"

"""``ralph-wrap merge``: nothing moves where it cannot, and what is in the way is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ralph_wrap import branches
from ralph_wrap.commands import merge
from ralph_wrap.commands.merge import MergeMethod
from ralph_wrap.commands.merge.target import LandingTarget
from ralph_wrap.errors import ConflictError, NotFoundError, RalphError
from ralph_wrap.state import project
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.system import files
from tests.support.merging import AAAA, branch, files_of, land, left, replaced, state
from tests.support.mounts import read_only
from tests.support.needs import needs_mounts
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, command
from tests.support.wait import eventually

# Changes that stay


@pytest.mark.parametrize("method", MergeMethod)
def test_a_conflict_moves_nothing(repo: Repo, method: MergeMethod) -> None:
    """Files, index, branches, rerere's memory: all as before; the files are named."""
    repo.git("config", "rerere.enabled", "true")
    branch(repo, "aaaa", AAAA | {"one/two/three": "theirs\n"})
    repo.write("file.txt", "one\nmine\n")
    repo.write("one/two/three", "mine\n")
    repo.commit("mine")
    before = state(repo), sorted(repo.path.glob(".git/rr-cache/*"))
    (landed,) = land(repo, "aaaa", method=method)
    assert (landed.outcome, landed.conflicts) == ("left", ("file.txt", "one/two/three"))
    assert landed.reason == "conflicts with main in file.txt, one/two/three"
    assert (state(repo), sorted(repo.path.glob(".git/rr-cache/*"))) == before
    assert left(repo) == []


DIRTY = {
    "changed": ("echo mine >>run.sh", "where changes are not committed: run.sh"),
    "staged": ("echo mine >>run.sh; git add run.sh", "where changes are not committed: run.sh"),
    "staged and undone": (
        "echo x >>run.sh; git add run.sh; git show HEAD:run.sh >run.sh",
        "committed: run.sh",
    ),
    "to be deleted": ("git rm -q --cached run.sh", "where changes are not committed: run.sh"),
    "deleted": ("rm run.sh", "where changes are not committed: run.sh"),
    "announced": ("echo mine >mine; git add -N mine", "where changes are not committed: mine"),
    "merging": ("git merge -q --no-commit --no-ff ralph/bbbb", "where a merge is in progress"),
    "in conflict": ("git merge -q ralph/cccc", "where a merge is in progress"),
    "picking": ("git cherry-pick ralph/cccc", "where a cherry-pick is in progress"),
    "rebasing": ("git rebase -q ralph/cccc", "a rebase of main is in progress"),
    "bisecting": (
        "git bisect start; git bisect bad; git bisect good main~1",
        "a bisect of main is in progress",
    ),
    "locked": ("touch .git/index.lock", "whose index is locked"),
    "a file in the way": ("mkdir new; echo mine >new/a", "would be overwritten: new/a"),
    "an ignored file in the way": (
        "mkdir new; echo '*' >new/.gitignore; echo mine >new/a",
        "would be overwritten: new/a",
    ),
    "a file above in the way": ("echo mine >new", "would be overwritten: new"),
    "a link above in the way": ("mkdir x; ln -s x new", "would be overwritten: new"),
    "an ignored link in the way": (
        "mkdir -p new/a one/x; echo '*' >new/.gitignore; ln -s ../../one new/a/link",
        "would be overwritten: new/a/link",
    ),
    "a directory in the way": ("mkdir -p new/a/b; echo mine >new/a/b/c", "would be overwritten: new/a/b/c"),
}


@pytest.mark.parametrize("kind", DIRTY)
def test_a_dirty_checkout_is_refused(repo: Repo, kind: str) -> None:
    """Nothing of the user's is touched, and what is in the way is named."""
    repo.commit("second")
    branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"b": "b\n"})
    branch(repo, "cccc", {"file.txt": "c\n"})
    repo.write("file.txt", "mine\n")
    repo.commit("mine")
    repo.git("branch", "-f", "ralph/aaaa", _landable(repo))
    body, reason = DIRTY[kind]
    subprocess.run(("sh", "-c", body), cwd=repo.path, capture_output=True, check=False)
    before = {name: there for name, there in state(repo).items() if name != "index"}
    index = (repo.path / ".git" / "index").read_bytes()
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, reason in str(landed.reason)) == ("left", True), landed
    assert (repo.path / ".git" / "index").read_bytes() == index
    assert {name: there for name, there in state(repo).items() if name != "index"} == before


def _landable(repo: Repo) -> str:
    """Return a commit on top of main that has what aaaa has."""
    return branch(repo, "dddd", {"new/a": "A\n"})


def test_files_that_are_not_in_the_way_may_stay(repo: Repo) -> None:
    """Untracked and ignored files, an empty directory, and a file that comes as a tracked one goes."""
    repo.write(".gitignore", "*.log\n")
    repo.commit("ignore")
    tip = branch(repo, "aaaa", {"new/a": "A\n", "gone": None, "gone/x": "x\n"})
    repo.write("mine", "mine\n")
    repo.write("new/mine.log", "mine\n")
    (repo.path / "new" / "a").mkdir()
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, repo.head) == ("landed", tip), landed
    assert ((repo.path / "mine").read_text(), (repo.path / "new/mine.log").read_text()) == (
        "mine\n",
        "mine\n",
    )


def test_our_own_line_in_the_ignore_file_is_not_in_the_way(repo: Repo) -> None:
    """A session has added it; anything else is. Where the landing changes the file, the line stays."""
    repo.write(".gitignore", "*.log\n")
    repo.commit("ignore")
    tip = branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {".gitignore": "*.log\n*.txt\n"}, base="ralph/aaaa")
    repo.write(".gitignore", "*.log\n.ralph/worktrees/\nmine\n")
    assert land(repo, "aaaa")[0].outcome == "left"
    repo.write(".gitignore", "*.log\n.ralph/worktrees/\n")
    assert [one.outcome for one in land(repo, "aaaa", "bbbb")] == ["landed", "landed"]
    assert repo.git("rev-parse", "HEAD~1") == tip
    assert repo.git("status", "--porcelain", "--", ":!.ralph") == " M .gitignore"
    assert (repo.path / ".gitignore").read_text() == "*.log\n*.txt\n.ralph/worktrees/\n"


@pytest.mark.parametrize("brought", ["node_modules/\n", "node_modules/\n.ralph/worktrees/\n"])
def test_our_line_may_be_all_of_an_untracked_file(repo: Repo, brought: str) -> None:
    """The branch brings the first .gitignore of the project; our line is in it afterwards, once."""
    branch(repo, "aaaa", {".gitignore": brought})
    repo.write(".gitignore", ".ralph/worktrees/\n")
    (landed,) = land(repo, "aaaa")
    assert landed.outcome == "landed", landed
    assert (repo.path / ".gitignore").read_text() == "node_modules/\n.ralph/worktrees/\n"
    assert repo.show("HEAD:.gitignore").decode() == brought


def test_an_untracked_file_with_more_than_our_line_stays(repo: Repo) -> None:
    """It holds something of its user."""
    branch(repo, "aaaa", {".gitignore": "node_modules/\n"})
    repo.write(".gitignore", "mine\n.ralph/worktrees/\n")
    (left_alone,) = land(repo, "aaaa")
    assert (left_alone.outcome, ".gitignore" in str(left_alone.reason)) == ("left", True)
    assert (repo.path / ".gitignore").read_text() == "mine\n.ralph/worktrees/\n"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_hidden_change_is_not_overwritten(repo: Repo, flag: str) -> None:
    """A flag makes git overlook it; that is no leave to lose it."""
    branch(repo, "aaaa", AAAA)
    repo.git("update-index", flag, "file.txt")
    repo.write("file.txt", "mine, and hidden\n")
    before = state(repo)
    (landed,) = land(repo, "aaaa")
    assert landed.outcome == "left"
    assert state(repo) == before


INSTEAD: dict[str, dict[str, tuple[str, str]]] = {
    "a link": {"inner": ("120000", "one")},
    "a file": {"inner": ("100644", "a file now\n")},
    "files in a directory": {"inner/new": ("100644", "new\n")},
}


@pytest.mark.parametrize("kind", INSTEAD)
@pytest.mark.parametrize("git_dir", ["inside", "outside"])
def test_a_submodule_is_not_replaced_with_all_that_it_holds(
    repo: Repo, tmp_path: Path, kind: str, git_dir: str
) -> None:
    """Git deletes it, changes, untracked files, repository and all; deleted in the branch it stays."""
    inner = make_repo(repo.path / "inner")
    repo.git("add", "inner")
    repo.git("commit", "-q", "-m", "a submodule")
    if git_dir == "outside":
        inner.git("init", "-q", "--separate-git-dir", tmp_path / "repository")
    replaced(repo, "inner", INSTEAD[kind], "ralph/aaaa")
    inner.write("mine", "mine\n")
    before = state(repo)
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, "would be overwritten: inner" in str(landed.reason)) == (
        "left",
        True,
    )
    assert state(repo) == before
    replaced(repo, "inner", {}, "ralph/bbbb")
    assert land(repo, "bbbb")[0].outcome == "landed"
    assert (inner.path / "mine").read_text() == "mine\n"


def test_nothing_is_written_into_another_worktree(repo: Repo) -> None:
    """It stands below the checkout, git does not know it there, and a user works in it."""
    inner = repo.path / "trees" / "inner"
    repo.git("worktree", "add", "-q", "-b", "other", inner)
    branch(repo, "aaaa", {"trees/inner/new": "theirs\n"})
    before = files_of(inner)
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, "would be overwritten: trees/inner" in str(landed.reason)) == ("left", True)
    assert files_of(inner) == before


def test_another_checkout_in_the_place_of_a_worktree_is_not_moved(repo: Repo, tmp_path: Path) -> None:
    """The user has deleted the registered worktree, and made a clone there."""
    repo.git("worktree", "add", "-q", "-b", "release", tmp_path / "linked")
    shutil.rmtree(tmp_path / "linked")
    repo.git("clone", "-q", repo.path, tmp_path / "linked")
    branch(repo, "aaaa", AAAA)
    before = files_of(tmp_path / "linked")
    (landed,) = land(repo, "aaaa", into="release")
    assert (landed.outcome, "which is not accessible here" in str(landed.reason)) == ("left", True)
    assert files_of(tmp_path / "linked") == before


def test_a_dirty_linked_worktree_is_refused(repo: Repo, tmp_path: Path) -> None:
    """Wherever the worktree that has the target checked out is."""
    linked = Repo(tmp_path / "linked")
    repo.git("worktree", "add", "-q", "-b", "release", linked.path)
    branch(repo, "aaaa", AAAA)
    linked.write("file.txt", "mine\n")
    before = state(repo), files_of(linked.path)
    (landed,) = land(repo, "aaaa", into="release")
    said = f"release is checked out in {linked.path}, where changes are not committed: file.txt"
    assert (landed.outcome, landed.reason) == ("left", said)
    assert (state(repo), files_of(linked.path)) == before


def test_a_checkout_that_cannot_be_reached_is_refused(repo: Repo, tmp_path: Path) -> None:
    """It would stay behind: its next commit would take back what has landed."""
    repo.git("worktree", "add", "-q", "-b", "release", tmp_path / "linked")
    (tmp_path / "linked").rename(tmp_path / "elsewhere")
    branch(repo, "aaaa", AAAA)
    before = state(repo)
    (landed,) = land(repo, "aaaa", into="release")
    assert (landed.outcome, "which is not accessible here" in str(landed.reason)) == ("left", True)
    assert state(repo) == before


def test_a_checkout_is_not_moved_under_a_session_in_it(repo: Repo, tmp_path: Path) -> None:
    """One that is not isolated works in the project's own checkout, which may be clean at this moment."""
    branch(repo, "aaaa", {"file.txt": "one\nA\n"})
    go = tmp_path / "go"
    words = (
        "run",
        "--isolation",
        "off",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        f"until [ -e {go} ]; do sleep 0.05; done",
    )
    before = state(repo)
    with subprocess.Popen((PROGRAM, *words), cwd=repo.path, stderr=subprocess.DEVNULL) as session:
        eventually(lambda: files.is_locked(repo.path), "the session")
        (landed,) = land(repo, "aaaa")
        assert (landed.outcome, state(repo)) == ("left", before)
        assert "where a session works without isolation" in str(landed.reason)
        go.touch()
    assert session.returncode == 0
    assert land(repo, "aaaa")[0].outcome == "landed"


def test_the_worktree_of_a_session_is_not_moved(repo: Repo) -> None:
    """An agent may work in it."""
    path = repo.path / ".ralph" / "worktrees" / "20260102T030405Z-00aa"
    repo.git("worktree", "add", "-q", "-b", "ralph/00aa", path)
    branch(repo, "aaaa", AAAA)
    (landed,) = land(repo, "aaaa", into="ralph/00aa")
    assert (landed.outcome, "in the worktree of a session" in str(landed.reason)) == ("left", True)


@pytest.mark.parametrize("verdict", ["live", "orphan", "foreign", "unknown"])
def test_the_branch_of_a_session_that_is_not_finished_does_not_land(repo: Repo, verdict: str) -> None:
    """What it has done so far may be half of something."""
    tip = branch(repo, "aaaa", AAAA)
    found_project = project.find_project(repo.path, os.environ)
    one = branches.Branch("ralph/aaaa", "aaaa", tip, None, None, verdict)
    (landed,) = merge.land(found_project, [one], LandingTarget("main", "refs/heads/main"))
    assert (landed.outcome, landed.reason) == ("left", f"its session is {verdict}")
    assert landed.hint == advice_for(Verdict(verdict), "aaaa")


def test_unrelated_histories_do_not_land(repo: Repo) -> None:
    """Named as what they are."""
    root = repo.git("commit-tree", "-m", "orphan", "HEAD^{tree}")
    repo.git("branch", "ralph/aaaa", root)
    (landed,) = land(repo, "aaaa")
    said = "it has no common history with main"
    assert (landed.outcome, landed.reason) == ("left", said)


def test_saved_work_alone_is_no_branch(repo: Repo) -> None:
    """It is for ``apply``."""
    branch(repo, "aaaa-wip", AAAA)
    (landed,) = land(repo, "aaaa")
    assert (landed.outcome, landed.hint) == ("left", "ralph-wrap apply aaaa")


def test_merges_are_not_replayed(repo: Repo) -> None:
    """What a person has decided in one would be lost."""
    branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"b": "b\n"})
    land(repo, "bbbb", into="ralph/aaaa")
    repo.write("mine", "mine\n")
    repo.commit("mine")
    before = state(repo)
    (landed,) = land(repo, "aaaa", method=MergeMethod.REBASE)
    assert (landed.outcome, "has merge commits" in str(landed.reason)) == ("left", True)
    assert state(repo) == before
    assert land(repo, "aaaa", method=MergeMethod.SQUASH)[0].outcome == "landed"


@pytest.mark.parametrize("into", ["nowhere", "--orphan", "refs/heads/main", "HEAD", "ma*"])
def test_a_target_that_is_not_there(repo: Repo, into: str) -> None:
    """Nor is a name ever taken for a pattern or an option."""
    branch(repo, "aaaa", AAAA)
    with pytest.raises(NotFoundError, match="there is no local branch"):
        land(repo, "aaaa", into=into)


def test_a_target_that_stands_for_another_one(repo: Repo) -> None:
    """A worktree that has the other one checked out would stay behind."""
    repo.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    branch(repo, "aaaa", AAAA)
    with pytest.raises(ConflictError, match="alias is a symbolic ref to main"):
        land(repo, "aaaa", into="alias")


def test_a_record_directory_that_leads_elsewhere_is_not_followed(repo: Repo, tmp_path: Path) -> None:
    """Nor is anything deleted there."""
    branch(repo, "aaaa", AAAA)
    (tmp_path / "elsewhere" / "land-00000000").mkdir(parents=True)
    (repo.path / ".ralph" / "run").mkdir(parents=True)
    (repo.path / ".ralph" / "run" / "landing").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RalphError, match="it is a symlink"):
        land(repo, "aaaa", method=MergeMethod.NO_FF)
    assert (tmp_path / "elsewhere" / "land-00000000").is_dir()


@needs_mounts
@pytest.mark.parametrize("entry", [".git", ".ralph/run"])
def test_a_read_only_directory_is_reported(repo: Repo, entry: str) -> None:
    """Nothing has moved."""
    branch(repo, "aaaa", AAAA)
    (repo.path / ".ralph" / "run").mkdir(parents=True)
    before = state(repo)
    with read_only(repo.path / entry), pytest.raises(RalphError, match=r"Read-only|not writable"):
        land(repo, "aaaa")
    assert state(repo) == before
    assert land(repo, "aaaa")[0].outcome == "landed"


def test_saved_work_does_not_land_by_its_name(repo: Repo) -> None:
    """Nor does the branch that it belongs to, which was not asked for."""
    branch(repo, "aaaa", AAAA)
    branch(repo, "aaaa-wip", {"wip": "wip\n"}, base="ralph/aaaa")
    before = repo.head
    result = command("merge", "ralph/aaaa-wip", cwd=repo.path)
    assert (result.status, repo.head) == (2, before)
    assert "ralph/aaaa-wip is saved work, which cannot be merged" in result.stderr


@pytest.mark.parametrize("option", [(), ("--squash",), ("--rebase",), ("--no-ff",)])
def test_no_identity_refuses_no_merge(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    """Whoever has none gets the committer that saved work has."""
    branch(repo, "aaaa", {"new.txt": "new\n"})
    repo.write("mine.txt", "mine\n")
    repo.commit("main has moved")
    for role in ("AUTHOR", "COMMITTER"):
        for part in ("NAME", "EMAIL"):
            monkeypatch.delenv(f"GIT_{role}_{part}")
    repo.git("config", "--global", "user.useConfigOnly", "true")
    landed = command("merge", *option, "aaaa", cwd=repo.path)
    assert landed.status == 0, landed.stderr
    assert repo.git("log", "-1", "--format=%cn <%ce>") == "ralph-wrap <ralph-wrap@localhost>"

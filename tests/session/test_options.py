"""What stays after a session, and what it starts from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.directory_listing import listing
from tests.support.sessions import Session, command, run
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo
    from tests.support.sessions import Result

SH = ("--", "sh", "-c")
COMMIT = "git commit -q --allow-empty -m mine"


def _kept(result: Result, repo: Repo) -> Path:
    """Return the worktree that was kept, which the hint removes."""
    (warning,) = (printed for printed in result.warnings if printed["event"] == "worktree.kept")
    path = Path(result.report["workspace"])
    assert repo.worktrees() == [str(path)]
    assert warning["hint"] == f"to save what can be saved, and remove it: ralph-wrap rm {result.report['id']}"
    return path


@pytest.mark.parametrize("by", ["option", "environment", "old name"])
def test_a_worktree_is_kept_as_it_is_when_that_is_asked_for(repo: Repo, by: str) -> None:
    """With what was uncommitted in it, nothing of it saved a second time; the hint removes it."""
    env = {"environment": {"RALPH_WRAP_KEEP_WORKTREE": "on"}, "old name": {"RALPH_KEEP_WORKTREES": "1"}}
    options = ("--keep-worktree",) if by == "option" else ()
    result = run(repo.path, "-n", "1", *options, *SH, "echo left > left", env=env.get(by, {}))
    path = _kept(result, repo)
    assert (path / "left").read_text() == "left\n"
    assert (result.report["kept"], result.report["saved"]) == ("it was asked for", None)
    assert repo.branches() == ["main", result.report["branch"]]
    (warning,) = result.warnings
    hint = warning["hint"].removeprefix("to save what can be saved, and remove it: ralph-wrap ")
    assert command(*hint.split(), cwd=repo.path).status == 0
    assert not path.exists()
    assert repo.show(f"{result.report['branch']}-wip:left") == b"left\n"


def test_on_dirty_keep_keeps_a_worktree_with_uncommitted_work(repo: Repo) -> None:
    """And says how much that is."""
    result = run(repo.path, "-n", "1", "--on-dirty", "keep", *SH, "echo a > a; echo b > file.txt")
    path = _kept(result, repo)
    assert (path / "a").read_text() == "a\n"
    assert (result.report["kept"], result.report["saved"]) == ("2 uncommitted paths", None)
    assert repo.branches() == ["main", result.report["branch"]]


def test_on_dirty_keep_removes_a_clean_worktree(repo: Repo) -> None:
    """Commits are on the branch; there is nothing to keep."""
    result = run(repo.path, "-n", "1", "--on-dirty", "keep", *SH, COMMIT)
    assert (result.report["kept"], result.report["commits"]) == (None, 1)
    assert repo.worktrees() == []


@pytest.mark.parametrize(
    ("agent", "stays"),
    [
        ("true", False),
        (COMMIT, True),
        ("echo left > left", True),
        (f"{COMMIT}; git reset -q --hard HEAD~1", True),
    ],
)
def test_drop_empty_deletes_only_a_branch_that_holds_nothing(repo: Repo, agent: str, *, stays: bool) -> None:
    """A commit, uncommitted work, or a commit that was reset away: each keeps it."""
    result = run(repo.path, "-n", "1", "--drop-empty", *SH, agent)
    assert result.status == 0, result.stderr
    branch, saved = result.report["branch"], result.report["saved"]
    assert branch == (f"ralph/{result.report['id']}" if stays else None)
    assert repo.branches() == ["main", *(name for name in (branch, saved) if name)]
    assert ("branch.deleted" in result.names) != stays


def test_without_drop_empty_an_empty_branch_stays(repo: Repo) -> None:
    """Negative control: the same session without the option."""
    result = run(repo.path, "-n", "1", "--", "true")
    assert repo.branches() == ["main", result.report["branch"]]


def test_drop_empty_never_deletes_a_branch_that_was_there_before(repo: Repo) -> None:
    """It is the user's."""
    repo.git("branch", "mine")
    run(repo.path, "-n", "1", "--drop-empty", "--branch", "mine", "--", "true")
    assert repo.branches() == ["main", "mine"]


def test_a_new_branch_gets_the_name_that_was_asked_for(repo: Repo) -> None:
    """Saved work is still named by the agent's id."""
    result = run(repo.path, "-n", "1", "--branch", "feature/x", *SH, f"{COMMIT}; echo left > left")
    assert result.report["branch"] == "feature/x"
    assert repo.branches() == ["feature/x", "main", f"ralph/{result.report['id']}-wip"]
    assert repo.git("rev-parse", "feature/x~1") == repo.head


def test_an_existing_branch_is_continued(repo: Repo) -> None:
    """From its own tip, not from the base, by one session after the other."""
    repo.git("checkout", "--quiet", "-b", "mine")
    repo.write("theirs", "theirs\n")
    tip = repo.commit("theirs")
    repo.git("checkout", "--quiet", "main")
    agent = f"cat theirs; git log --format=%s -1; {COMMIT}"
    results = [run(repo.path, "-n", "1", "--branch", "mine", *SH, agent) for _ in range(2)]
    assert [result.stdout for result in results] == [b"theirs\ntheirs\n", b"theirs\nmine\n"]
    assert [result.report["commits"] for result in results] == [1, 1]
    assert repo.git("rev-parse", "mine~2") == tip
    assert repo.git("config", "--get-regexp", "branch.*", check=False) == ""


def test_two_sessions_do_not_work_on_one_branch(repo: Repo) -> None:
    """The second one is refused with 125, names the worktree of the first, and leaves it alone."""
    waiting = ("--branch", "mine", *SH, 'touch here; while [ ! -e "$RALPH_PROJECT/go" ]; do sleep 0.05; done')
    with Session(repo.path, "-n", "1", *waiting) as first:
        started = first.wait_for("session.started")
        eventually((Path(started["workspace"]) / "here").exists, "the first agent")
        second = run(repo.path, "-n", "1", "--branch", "mine", "--", "true")
        (repo.path / "go").touch()
        result = first.finish()
    assert second.status == 125
    assert [printed["message"] for printed in second.warnings] == [
        f"branch mine is checked out in {started['workspace']}"
    ]
    assert (second.report["ended_by"], second.report["branch"]) == ("not-started", None)
    assert (result.status, result.report["branch"]) == (0, "mine")
    assert repo.branches() == ["main", "mine", result.report["saved"]]


def test_the_branch_of_the_main_checkout_is_refused(repo: Repo) -> None:
    """A session would move it below the user's files."""
    result = run(repo.path, "-n", "1", "--branch", "main", "--", "true")
    assert result.status == 125
    assert [printed["message"] for printed in result.warnings] == [
        f"branch main is checked out in {repo.path}"
    ]
    assert repo.branches() == ["main"]


@pytest.mark.parametrize("base", ["HEAD~1", "v1", "{first}", ":/first"])
def test_a_base_is_any_revision(repo: Repo, base: str) -> None:
    """Relative, an annotated tag, an id, a search."""
    first = repo.head
    repo.git("tag", "--annotate", "--message", "one", "v1")
    repo.write("file.txt", "two\n")
    repo.commit("second")
    result = run(repo.path, "-n", "1", "--base", base.format(first=first), "--", "cat", "file.txt")
    assert (result.stdout, result.report["base"]) == (b"one\n", first)


@pytest.mark.parametrize("base", ["no-such-branch", "HEAD~99", "HEAD:file.txt", "--all", ""])
def test_a_base_that_is_no_commit_is_a_usage_error(repo: Repo, base: str) -> None:
    """Nothing is made."""
    before = listing(repo.path)
    result = run(repo.path, f"--base={base}", "--", "true")
    assert result.status == 2
    (error,) = result.narration
    assert repr(base) in error["message"]
    assert listing(repo.path) == before


@pytest.mark.parametrize(
    ("ignore", "ignored_by", "status"),
    [
        ("gitignore", ".gitignore", "?? .gitignore"),
        ("exclude", ".git/info/exclude", ""),
        ("off", None, ""),
    ],
)
def test_the_ignore_rule_goes_where_it_is_asked_for(
    repo: Repo, ignore: str, ignored_by: str | None, status: str
) -> None:
    """One line in one file, or none in any."""
    rule = ".ralph/worktrees/"
    run(repo.path, "-n", "1", "--ignore", ignore, "--", "true")
    holders = {
        name
        for name in (".gitignore", ".git/info/exclude")
        if (repo.path / name).exists() and rule in (repo.path / name).read_text().split("\n")
    }
    assert holders == ({ignored_by} if ignored_by else set())
    assert repo.git("status", "--porcelain") == status

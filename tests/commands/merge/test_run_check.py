"""``ralph-wrap merge``: the project's check."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ralph_wrap.state import check_results, project
from tests.support import processes
from tests.support.cancelling import CancelledWhen
from tests.support.merging import AAAA, branch, is_clean, land, left, state
from tests.support.repo import Repo
from tests.support.sessions import command


def test_a_check_sees_what_both_make_together(repo: Repo) -> None:
    """All of it, in a place of its own, with its name; before the target moves."""
    tip = branch(repo, "aaaa", {"a": "a\n"})
    repo.write("mine", "mine\n")
    before = repo.commit("mine")
    out = repo.path.parent / "out"
    seen = 'cat a mine one/two/three; git -C "$RALPH_PROJECT" rev-parse main; env | grep ^RALPH_ | sort'
    env = {"RALPH_SESSION_ID": "outer", "RALPH_ITERATION": "3"}
    (landed,) = land(repo, "aaaa", check=f"({seen}) >{out}; pwd >>{out}", env=env)
    *words, where = out.read_text().splitlines()
    assert words[:4] == ["a", "mine", "deep", before]
    told_of = dict(line.partition("=")[::2] for line in words[4:])
    assert (told_of.pop("RALPH_SESSION_ID").startswith("check-"), told_of) == (
        True,
        {"RALPH_BRANCH": "ralph/aaaa", "RALPH_PROJECT": os.fspath(repo.path), "RALPH_WORKSPACE": where},
    )
    assert (landed.outcome, landed.check) == ("landed", 0)
    (check,) = check_results.results(project.find_project(repo.path, os.environ)).values()
    assert (check.passed, check.target, check.onto) == (True, "main", before)
    assert tip in check_results.results(project.find_project(repo.path, os.environ))


def test_a_check_that_fails_lets_nothing_land(repo: Repo) -> None:
    """Whatever it has done to its own worktree; the next branch is checked by itself."""
    tip = branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"b": "b\n"})
    check = "echo x >left; echo changed >run.sh; test -e b"
    landed = land(repo, "aaaa", "bbbb", check=f"test ! -e left && ({check})")
    assert [(one.outcome, one.check) for one in landed] == [("left", 1), ("landed", 0)]
    assert landed[0].reason == "check failed with status 1 on the merge of ralph/aaaa into main"
    assert not (repo.path / "new").exists()
    assert check_results.results(project.find_project(repo.path, os.environ))[tip].status == 1


def test_what_a_check_commits_does_not_land(repo: Repo) -> None:
    """What lands is what was tried."""
    tip = branch(repo, "aaaa", AAAA)
    land(repo, "aaaa", check="echo x >x; git add x; git commit -qm sneaked")
    assert is_clean(repo, tip)


def test_a_branch_that_a_check_is_on_is_not_moved(repo: Repo) -> None:
    """What comes next in the same worktree is on none."""
    tip = branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"b": "b\n"})
    land(repo, "aaaa", "bbbb", check="git checkout -q -b mine || true")
    assert repo.git("rev-parse", "mine") == tip
    assert repo.git("log", "-1", "--format=%s") == "Merge branch 'ralph/bbbb'"


def test_what_a_check_leaves_running_is_ended(repo: Repo, home: Path) -> None:
    """It works in a place that is about to go."""
    branch(repo, "aaaa", AAAA)
    land(repo, "aaaa", check="setsid sleep 600 &")
    assert processes.left(home) == {}


def test_a_signal_ends_the_check_and_nothing_lands(repo: Repo, tmp_path: Path) -> None:
    """Nor does what would come after it."""
    branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"b": "b\n"})
    before = state(repo)
    begun = tmp_path / "begun"
    landed = land(repo, "aaaa", "bbbb", check=f"touch {begun}; sleep 600", cancel=CancelledWhen(begun.exists))
    assert [one.outcome for one in landed] == ["left", "left"]
    assert state(repo) == before


def test_a_check_that_takes_too_long_has_failed(repo: Repo, home: Path) -> None:
    """The file sets the limit. The lock is free again, and the next branch has its own check."""
    tip = branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"b": "b\n"})
    check = "test -e b || { sleep 600 & sleep 600; }"
    repo.write(".ralph/config.toml", f'check = "{check}"\ncheck_timeout = "200ms"\n')
    result = command("merge", "aaaa", "bbbb", "--json", cwd=repo.path, env={"RALPH_TRUST": "1"})
    first, second = json.loads(result.stdout)["data"]
    assert (first["outcome"], first["check"], second["outcome"], second["check"]) == (
        "left",
        124,
        "landed",
        0,
    )
    assert first["reason"] == "check was still running after 0.2 s on the merge of ralph/aaaa into main"
    assert first["hint"] == "see its output above; it is check_timeout in .ralph/config.toml"
    assert check_results.results(project.find_project(repo.path, os.environ))[tip].status == 124
    assert processes.left(home) == {}


def test_a_target_that_a_check_moves_is_left(repo: Repo) -> None:
    """It takes its time, and others go on meanwhile."""
    branch(repo, "aaaa", AAAA)
    (landed,) = land(repo, "aaaa", check='cd "$RALPH_PROJECT" && echo mine >>file.txt')
    assert (landed.outcome, "changes are not committed: file.txt" in str(landed.reason)) == ("left", True)
    assert (repo.path / "file.txt").read_text() == "one\nmine\n"


def test_an_ignored_file_that_comes_while_a_check_runs_is_not_overwritten(repo: Repo) -> None:
    """Git itself takes what is ignored for worthless."""
    branch(repo, "aaaa", {"new.log": "theirs\n"})
    repo.write(".git/info/exclude", "*.log\n")
    (landed,) = land(repo, "aaaa", check='echo mine >"$RALPH_PROJECT/new.log"')
    assert (landed.outcome, "would be overwritten: new.log" in str(landed.reason)) == ("left", True)
    assert (repo.path / "new.log").read_text() == "mine\n"


def test_a_part_that_is_taken_while_a_check_runs_is_kept(repo: Repo) -> None:
    """Picked by hand, it is not taken back again, neither from the disk nor from the index."""
    branch(repo, "aaaa", {"file.txt": "one\nA\n"})
    branch(repo, "aaaa", {"gone": "still there\n"})
    repo.commit("mine")
    (landed,) = land(repo, "aaaa", check='git -C "$RALPH_PROJECT" cherry-pick ralph/aaaa~1')
    assert (landed.outcome, landed.reason) == ("left", "main has moved meanwhile")
    assert (repo.path / "file.txt").read_text() == "one\nA\n"
    assert (repo.git("status", "--porcelain", "--", ":!.ralph"), left(repo)) == ("", [])


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"version": 2}', b'{"version": 1, "checks": []}'])
def test_results_that_cannot_be_read_are_said_and_kept(repo: Repo, content: bytes) -> None:
    """``review`` and the next check say so; the file is as it was, and the branch lands."""
    branch(repo, "aaaa", AAAA)
    repo.write(".ralph/run/checks.json", content)
    looked = command("review", cwd=repo.path)
    assert (looked.status, "no result of a check is shown" in looked.stderr) == (0, True), looked.stderr
    repo.write(".ralph/config.toml", 'check = "true"\n')
    assert command("trust", cwd=repo.path, env={"RALPH_TRUST": "1"}).status == 0
    landed = command("merge", "aaaa", cwd=repo.path, env={"RALPH_TRUST": "1"})
    assert (landed.status, "review will not show the result" in landed.stderr) == (0, True), landed.stderr
    assert (repo.path / ".ralph/run/checks.json").read_bytes() == content


def test_an_entry_that_is_no_result_is_left_out(repo: Repo) -> None:
    """It has no signature of the user either."""
    repo.write(".ralph/run/checks.json", b'{"version": 1, "checks": {"a": 1}}')
    assert check_results.results(project.find_project(repo.path, os.environ)) == {}

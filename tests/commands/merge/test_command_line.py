"""``ralph-wrap merge`` on the command line."""

from __future__ import annotations

from pathlib import Path

from ralph_wrap import config
from ralph_wrap.config.authority import in_force
from ralph_wrap.system.log import FORMAT_VARIABLE
from tests.commands.merge.project import merge
from tests.support.merging import AAAA, branch, state
from tests.support.repo import Repo
from tests.support.sessions import command


def test_the_json_answer(repo: Repo) -> None:
    """One entry a branch; what did not land makes the status, and stands in the error."""
    branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"file.txt": "bbbb\n"})
    status, printed = merge(repo, "aaaa", "ralph/bbbb", "aaaa")
    assert (status, printed["success"], printed["tool"], printed["error"]["code"]) == (
        6,
        False,
        "merge",
        "conflict",
    )
    assert [(one["id"], one["outcome"], one["conflicts"]) for one in printed["data"]] == [
        ("aaaa", "landed", []),
        ("bbbb", "left", ["file.txt"]),
    ]


def test_the_answer_in_words(repo: Repo) -> None:
    """One row a branch on stdout, control characters and all; why it ends on stderr."""
    before, tip = repo.head, branch(repo, "aaaa", AAAA)
    branch(repo, "bbbb", {"a\x1b[31mb": "theirs\n"})
    repo.git("branch", "release")
    ended = command("merge", "aaaa", "bbbb", cwd=repo.path)
    assert (ended.status, ended.stdout.decode().splitlines()[0]) == (
        0,
        f"ralph/aaaa  landed  main {before[:12]}..{tip[:12]}  fast-forward",
    )
    again = command("merge", "aaaa", cwd=repo.path)
    assert again.stdout.decode() == "ralph/aaaa  nothing to do  main has its changes already\n"
    repo.git("switch", "-q", "release")
    repo.write("a\x1b[31mb", "mine\n")
    repo.commit("mine")
    ended = command("merge", "bbbb", "--into", "release", cwd=repo.path)
    assert (ended.status, ended.stdout.decode()) == (6, "ralph/bbbb  left\n")
    assert "conflicts with release in a" in ended.stderr


def test_a_conflict_is_printed_once_with_the_ways_on(repo: Repo) -> None:
    """By hand, or by the agent; each command has its line."""
    branch(repo, "aaaa", {"file.txt": "theirs\n"})
    repo.write("file.txt", "mine\n")
    repo.commit("mine")
    ended = command("merge", "aaaa", cwd=repo.path, env={FORMAT_VARIABLE: "text"})
    assert ended.status == 6
    assert (ended.stdout.decode() + ended.stderr).splitlines() == [
        "ralph/aaaa  left",
        "ralph-wrap: error: ralph/aaaa: conflicts with main in file.txt",
        "ralph-wrap: hint: to resolve them, on main: git merge ralph/aaaa",
        (
            "ralph-wrap: hint: to let the agent do it: ralph-wrap resume aaaa"
            " -m 'Merge main, resolve the conflicts, and commit.'"
        ),
    ]


def test_each_branch_that_is_left_has_its_hints(repo: Repo) -> None:
    """Not only the first one."""
    for name in ("aaaa", "bbbb"):
        branch(repo, name, {"file.txt": name})
    repo.write("file.txt", "mine\n")
    repo.commit("mine")
    _, printed = merge(repo, "aaaa", "bbbb")
    hint = printed["error"]["hint"]
    assert ["git merge ralph/aaaa" in hint, "git merge ralph/bbbb" in hint] == [True, True]


def test_an_unknown_id_stops_everything(repo: Repo) -> None:
    """A slip of the finger is seen before anything moves."""
    branch(repo, "aaaa", AAAA)
    before = state(repo)
    status, printed = merge(repo, "aaaa", "ffff")
    assert (status, printed["error"]["code"]) == (4, "not_found")
    assert state(repo) == before


def test_two_ways_at_once_are_a_mistake(repo: Repo) -> None:
    """Said before anything else is looked at."""
    status, printed = merge(repo, "aaaa", "--squash", "--rebase")
    assert (status, printed["error"]["code"]) == (2, "usage")


def test_a_check_without_approval_is_not_run(repo: Repo, tmp_path: Path) -> None:
    """An agent can write it; approved, it runs."""
    branch(repo, "aaaa", AAAA)
    repo.write(".ralph/config.toml", f'check = "touch {tmp_path}/ran"\n')
    before = state(repo)
    status, printed = merge(repo, "aaaa")
    assert (status, "settings that you have not approved: check" in printed["error"]["message"]) == (
        125,
        True,
    )
    assert (state(repo), (tmp_path / "ran").exists()) == (before, False)
    assert command("trust", cwd=repo.path).status == 0
    assert merge(repo, "aaaa")[0] == 0
    assert (tmp_path / "ran").exists()


def test_a_session_does_not_ask_for_a_check_that_it_does_not_run() -> None:
    """Only one that lands does."""
    settings = config.Settings(project=Path(), command=("x",), check="make test")
    assert not in_force(settings)("check")
    assert in_force(settings._replace(merge_on_complete="main"))("check")

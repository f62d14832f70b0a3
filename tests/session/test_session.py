"""Whole sessions: register, isolate, loop, save, remove, release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sessions import Session, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.repo import Repo


def test_a_session_leaves_its_branch_and_nothing_else(repo: Repo, script: Callable[[str], str]) -> None:
    """Commits stay on ralph/<id>, what was uncommitted on ralph/<id>-wip, and the worktree is gone."""
    agent = script(
        'echo > "committed-$RALPH_ITERATION"; git add -A; git commit -qm "$RALPH_ITERATION"\n'
        'echo left > "left-$RALPH_ITERATION"'
    )
    before = repo.fingerprint()
    result = run(repo.path, "-n", "2", "--", agent)
    assert result.status == 0, result.stderr
    report = result.report
    assert (report["ended_by"], report["iterations"], report["commits"]) == ("max-iterations", 2, 2)
    branch, saved = report["branch"], report["saved"]
    assert repo.branches() == sorted(["main", branch, saved])
    assert repo.git("ls-tree", "--name-only", branch).split("\n") == [
        "committed-1",
        "committed-2",
        "file.txt",
        "left-1",
    ]
    assert repo.show(f"{saved}:left-2") == b"left\n"
    assert repo.worktrees() == []
    assert not list((repo.path / ".ralph" / "worktrees").iterdir())
    assert repo.fingerprint() == before
    assert repo.git("status", "--porcelain") == "?? .gitignore"


def test_two_sessions_at_once_do_not_meet(repo: Repo, script: Callable[[str], str]) -> None:
    """Both write the same file name, and each keeps its own content."""
    agent = script('echo "$RALPH_AGENT_ID" > same; : > "$RALPH_PROJECT/.ralph/run/here-$RALPH_AGENT_ID"; cat')
    with Session(repo.path, "-n", "1", "--", agent) as one, Session(repo.path, "-n", "1", "--", agent) as two:
        results = [one.finish(), two.finish()]
    for result in results:
        assert result.status == 0, result.stderr
        assert repo.show(f"{result.report['saved']}:same") == f"{result.report['id']}\n".encode()
    assert results[0].report["id"] != results[1].report["id"]

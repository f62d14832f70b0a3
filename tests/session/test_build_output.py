"""A session warns once about output of a build that git does not ignore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.sessions import run

if TYPE_CHECKING:
    from tests.support.repo import Repo


def test_many_new_files_are_warned_about_once(repo: Repo) -> None:
    """With the directory, and the line for ``.gitignore``; the session goes on and saves them."""
    script = "mkdir -p out/$RALPH_ITERATION; cd out/$RALPH_ITERATION; seq 1 5001 | xargs touch"
    done = run(repo.path, "-n", "3", "--", "sh", "-c", script)
    [warning] = [event for event in done.warnings if event["event"] == "snapshot.large"]
    assert "iteration 1 has made 5001 new files" in warning["message"]
    assert warning["hint"].endswith("write into .gitignore: /out/")
    assert done.status == 0
    assert (
        repo.git("ls-tree", "-r", "--name-only", f"ralph/{done.report['id']}-wip", "out").count("\n")
        == 15_002
    )

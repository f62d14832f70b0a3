"""The buttons: what they do, and what they refuse."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.interfaces.web.serving import Pages, compared, pages, words
from tests.support.repo import Repo
from tests.support.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def site(repo: Repo) -> Pages:
    """Return the pages of a repository with two branches: one adds a file, the other changes one."""
    for name, path in (("ralph/aaaa", "new.txt"), ("ralph/bbbb", "file.txt")):
        repo.git("switch", "--quiet", "--create", name, "main")
        repo.write(path, f"{name}\n")
        repo.commit(name)
    repo.git("switch", "--quiet", "main")
    return pages(repo.path)


def test_merge(repo: Repo, site: Pages) -> None:
    """The branch lands as by the command, its checkout with it, and the table knows at once."""
    tip = repo.git("rev-parse", "ralph/aaaa")
    answer = site.post("merge", ("name", quote("ralph/aaaa", safe="")), ("back", "branch?name=aaaa"))
    assert answer.headers["location"].startswith(f"{site.root}/branch?name=aaaa&note=")
    assert site.note(answer) == "done | ralph/aaaa has landed on main (fast-forward)"
    assert (repo.head, (repo.path / "new.txt").exists()) == (tip, True)
    page = answer.headers["location"].removeprefix(f"{site.root}/")
    assert "ralph/aaaa has landed on main" in words(site.get(page).text)
    assert compared(site).text.count('<span class="tag merged">') == 1


@pytest.mark.parametrize(("how", "parents"), [("squash", 1), ("rebase", 1), ("no-ff", 2)])
def test_merge_by_another_method(repo: Repo, site: Pages, how: str, parents: int) -> None:
    """Those of the command."""
    note = site.note(site.post("merge", ("name", "ralph/aaaa"), ("how", how)))
    assert note.startswith("done | ralph/aaaa has landed on main (")
    assert len(repo.git("log", "-1", "--format=%P").split()) == parents


def test_several_at_once(repo: Repo, site: Pages) -> None:
    """In the order of the table; a branch that does not land is named, and the others land."""
    repo.write("file.txt", "main\n")
    repo.commit()
    note = site.note(site.post("merge", ("name", "ralph/bbbb"), ("name", "ralph/aaaa")))
    assert note.startswith("failed | ralph/bbbb: ")
    assert "ralph/aaaa has landed on main" in note
    assert (repo.path / "new.txt").exists()
    assert (repo.path / "file.txt").read_text() == "main\n"


def test_a_dirty_checkout_is_refused(repo: Repo, site: Pages) -> None:
    """As by the command: nothing has moved, and the file is named."""
    before = repo.head
    repo.write("file.txt", "mine\n")
    note = site.note(site.post("merge", ("name", "ralph/bbbb")))
    assert note.startswith("failed | ")
    assert "file.txt" in note
    assert (repo.head, (repo.path / "file.txt").read_text()) == (before, "mine\n")


def test_a_check_without_approval_is_not_run(
    repo: Repo, site: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may have written it; approved, it runs."""
    mark = repo.path.parent / "ran"
    repo.write(".ralph/config.toml", f'check = "touch {mark}"\n')
    note = site.note(site.post("merge", ("name", "ralph/aaaa")))
    assert note.startswith("failed | the project has settings that you have not approved: check | ")
    assert (mark.exists(), (repo.path / "new.txt").exists()) == (False, False)
    monkeypatch.setenv("RALPH_TRUST", "1")
    trusting = pages(repo.path)
    note = trusting.note(trusting.post("merge", ("name", "ralph/aaaa")))
    assert "ralph/aaaa has landed on main" in note
    assert mark.exists()


def test_drop_a_merged_branch_and_bring_it_back(repo: Repo, site: Pages) -> None:
    """A dropped branch is gone, and a button brings it back as it was."""
    site.post("merge", ("name", "ralph/aaaa"))
    tip = repo.git("rev-parse", "ralph/aaaa")
    answer = site.post("drop", ("name", "ralph/aaaa"), ("back", "branch?name=aaaa"))
    assert site.note(answer).startswith("done | ralph/aaaa dropped")
    assert answer.headers["location"].startswith(f"{site.root}/?note=")
    assert repo.branches() == ["main", "ralph/bbbb"]
    html = site.get(answer.headers["location"].removeprefix(f"{site.root}/")).text
    assert "Restore</button>" in html
    assert site.note(site.post("restore", ("name", "ralph%2Faaaa"))) == "done | ralph/aaaa restored"
    assert repo.git("rev-parse", "ralph/aaaa") == tip


def test_drop_refuses_what_would_be_lost(repo: Repo, site: Pages) -> None:
    """It says what that is; only the second button, for these branches, drops it all the same."""
    answer = site.post("drop", ("name", "ralph/aaaa"), ("name", "ralph/bbbb"))
    note = site.note(answer)
    assert note.startswith("failed | ralph/aaaa kept, this would be lost: ")
    assert " | ralph/bbbb kept, this would be lost: " in note
    assert repo.branches() == ["main", "ralph/aaaa", "ralph/bbbb"]
    html = site.get(answer.headers["location"].removeprefix(f"{site.root}/")).text
    form = html[html.index("can be restored") : html.index("Drop these 2 anyway</button>")]
    assert 'name="name" value="ralph%2Faaaa"' in form
    assert 'name="name" value="ralph%2Fbbbb"' in form
    assert 'name="force" value="1"' in form
    forced = site.post("drop", ("name", "ralph%2Faaaa"), ("force", "1"))
    assert site.note(forced).startswith("done | ralph/aaaa dropped")
    assert repo.branches() == ["main", "ralph/bbbb"]


def test_drop_anyway_says_what_it_did_not_drop(repo: Repo, site: Pages) -> None:
    """Of the selected branches, the one that is checked out stays: both answers say it."""
    elsewhere = repo.path.parent / "elsewhere"
    repo.git("worktree", "add", "--quiet", elsewhere, "ralph/bbbb")
    stays = f"ralph/bbbb is checked out in {elsewhere}: the branch stays"
    answer = site.post("drop", ("name", "ralph/aaaa"), ("name", "ralph/bbbb"))
    assert stays in site.note(answer)
    html = site.get(answer.headers["location"].removeprefix(f"{site.root}/")).text
    form = html[html.index(f'action="{site.root}/drop">') : html.index("Drop it anyway</button>")]
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', form)
    assert ("name", "ralph%2Fbbbb") not in fields
    forced = site.note(site.post("drop", *fields))
    assert forced == f"failed | {stays} | ralph/aaaa dropped"
    assert repo.branches() == ["main", "ralph/bbbb"]


def test_drop_says_which_remote_still_has_a_session(repo: Repo, site: Pages) -> None:
    """As the command says it, with the command that deletes it there, too."""
    repo.git("update-ref", "refs/ralph-remotes/origin/heads/ralph/aaaa", "ralph/aaaa")
    note = site.note(site.post("drop", ("name", "ralph/aaaa"), ("force", "1")))
    assert note == (
        "done | ralph/aaaa dropped | origin still has aaaa; to delete that, too:"
        " ralph-wrap drop aaaa --remote origin --force"
    )


@pytest.mark.parametrize("button", ["merge", "drop", "restore"])
def test_names_that_are_no_branch(repo: Repo, site: Pages, button: str) -> None:
    """Nothing happens to anything."""
    before = repo.git("for-each-ref"), repo.head
    for name in ("ralph/nowhere", "main", "--force", "../x", "%FF", ""):
        assert site.note(site.post(button, ("name", name))).startswith("failed | "), name
    assert (repo.git("for-each-ref"), repo.head) == before


@pytest.mark.parametrize("button", ["merge", "drop", "restore"])
def test_nothing_selected(site: Pages, button: str) -> None:
    """It is said."""
    assert site.note(site.post(button)) == "failed | no branch is selected | select a branch in the table"


def test_stop(repo: Repo, site: Pages, script: Callable[[str], str]) -> None:
    """The session ends as by the command, and its work is saved."""
    with Session(repo.path, "--", script("echo x > left.txt; echo up; sleep 60")) as session:
        session.wait_for("agent.started")
        agent_id = session.directory.name[-4:]
        note = site.note(site.post("stop", ("id", session.directory.name), ("how", "now")))
        assert note.startswith("done | session ")
        result = session.finish()
    assert result.report["ended_by"] == "stop"
    assert f"ralph/{agent_id}" in repo.branches()
    again = site.note(site.post("stop", ("id", agent_id)))
    assert again.startswith(f"done | session {session.directory.name}: ended")


@pytest.mark.parametrize("name", ["", "0000", "../x", "ralph/aaaa"])
def test_sessions_that_are_not_there(site: Pages, name: str) -> None:
    """It is said."""
    assert site.note(site.post("stop", ("id", name))).startswith("failed | ")

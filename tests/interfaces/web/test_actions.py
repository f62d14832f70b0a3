"""The buttons: what they do, and what they refuse."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.interfaces.web.serving import Pages, compared, pages, words
from tests.support.histories import grow
from tests.support.repo import Repo
from tests.support.sessions import Session, command, run
from tests.support.told_agent import PROMPT, telling
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


@pytest.mark.usefixtures("trusted")
def test_drop_where_an_earlier_branch_of_this_name_is_overdue(repo: Repo, site: Pages) -> None:
    """The backup of the earlier one goes first, as with the command, and is not in the way."""
    site.post("drop", ("name", "ralph/aaaa"), ("force", "1"))
    grow(repo, "ralph/aaaa", "main", {"again.txt": "again\n"})
    repo.write(".ralph/config.toml", 'keep_dropped = "1ms"\n')
    site.post("drop", ("name", "ralph/bbbb"), ("force", "1"))  # what is due at two looks goes
    note = site.note(site.post("drop", ("name", "ralph/aaaa"), ("force", "1")))
    assert note == "done | ralph/aaaa dropped"


def test_drop_says_which_remote_still_has_a_session(repo: Repo, site: Pages) -> None:
    """As the command says it, with the command that deletes it there, too."""
    repo.git("update-ref", "refs/ralph-remotes/origin/heads/ralph/aaaa", "ralph/aaaa")
    note = site.note(site.post("drop", ("name", "ralph/aaaa"), ("force", "1")))
    assert note == (
        "done | ralph/aaaa dropped | origin still has aaaa; to delete that, too:"
        " ralph-wrap drop aaaa --remote origin --force"
    )


def test_apply(repo: Repo, site: Pages) -> None:
    """Saved work comes into the main checkout as by the command: all of it, or nothing with the reason."""
    grow(repo, "ralph/aaaa-wip", "ralph/aaaa", {"file.txt": "saved\n", "more.txt": "more\n"})
    for page in ("branch?name=aaaa", "saved?name=aaaa"):
        assert "Apply the saved work to the main checkout</button>" in site.get(page).text
    repo.write("file.txt", "mine\n")
    answer = site.post("apply", ("name", "ralph%2Faaaa"), ("back", "saved?name=ralph%2Faaaa"))
    assert answer.headers["location"].startswith(f"{site.root}/saved?name=ralph%2Faaaa&note=")
    assert site.note(answer).startswith("failed | ")
    assert not (repo.path / "more.txt").exists()
    repo.git("checkout", "--quiet", "file.txt")
    note = site.note(site.post("apply", ("name", "ralph%2Faaaa")))
    assert note == (
        f"done | these files of ralph/aaaa-wip are in {repo.path} now, and not staged: | file.txt | more.txt"
    )
    assert (repo.path / "file.txt").read_text() == "saved\n"


def test_the_page_of_dropped_branches(repo: Repo, site: Pages) -> None:
    """It lists what can come back, with a button for each; the button leads back to it."""
    assert f'href="{site.root}/dropped"' in compared(site).text
    assert "Nothing that was dropped can be restored." in site.get("dropped").text
    site.post("drop", ("name", "ralph/aaaa"), ("force", "1"))
    html = site.get("dropped").text
    assert re.search(r"dropped \d{4}-\d\d-\d\d \d\d:\d\d UTC · can be restored until ", words(html))
    [name] = re.findall(r'name="name" value="([^"]*)"', html)
    answer = site.post("restore", ("name", name), ("back", "dropped"))
    assert answer.headers["location"].startswith(f"{site.root}/dropped?note=")
    assert site.note(answer) == "done | ralph/aaaa restored"
    assert repo.branches() == ["main", "ralph/aaaa", "ralph/bbbb"]


def test_remove_a_kept_worktree(repo: Repo, site: Pages, script: Callable[[str], str]) -> None:
    """Of a background session that has ended: what was edited later is saved, and the button is gone."""
    spawned = command("spawn", "-n", "1", "--", script("true"), cwd=repo.path)
    agent_id = spawned.stdout.decode().strip()
    assert command("logs", "-f", agent_id, cwd=repo.path).status == 0
    button = "Remove the worktree</button>"
    assert button in site.get(f"session?id={agent_id}").text
    [worktree] = (repo.path / ".ralph/worktrees").iterdir()
    (worktree / "later.txt").write_text("later\n")
    note = site.note(site.post("rm", ("id", agent_id)))
    removed = f"the worktree of session {worktree.name} is removed"
    assert note == f"done | {removed} | ralph/{agent_id}-wip holds its saved work"
    assert not worktree.exists()
    assert repo.git("show", f"ralph/{agent_id}-wip:later.txt") == "later"
    assert button not in site.get(f"session?id={agent_id}").text


def test_resume(repo: Repo, site: Pages, script: Callable[[str], str]) -> None:
    """A session goes on in the background, with its saved work; a second one at a time is refused."""
    agent = script(
        "echo x >> left.txt; [ -e ../../../go ] || exit 0; until [ -e ../../../end ]; do sleep 0.01; done"
    )
    first = run(repo.path, "-n", "1", "--", agent)
    agent_id = first.report["id"]
    assert f'action="{site.root}/resume"' in site.get(f"session?id={agent_id}").text
    repo.write("go")
    note = site.note(site.post("resume", ("id", first.report["session"])))
    assert note.startswith("done | session "), note
    assert re.search("goes on|is starting again", note)
    with_button = f'action="{site.root}/resume"'
    eventually(lambda: with_button not in site.get(f"session?id={agent_id}").text, "the new session")
    assert site.note(site.post("resume", ("id", agent_id))).startswith("failed | ")
    repo.write("end")
    assert command("logs", "-f", agent_id, cwd=repo.path).status == 0
    assert repo.git("show", f"ralph/{agent_id}-wip:left.txt") == "x\nx"
    assert f'action="{site.root}/resume"' not in site.get(f"session?id={first.report['session']}").text


@pytest.mark.parametrize("button", ["merge", "drop", "restore", "apply"])
def test_names_that_are_no_branch(repo: Repo, site: Pages, button: str) -> None:
    """Nothing happens to anything."""
    before = repo.git("for-each-ref"), repo.head
    for name in ("ralph/nowhere", "main", "--force", "../x", "%FF", ""):
        assert site.note(site.post(button, ("name", name))).startswith("failed | "), name
    assert (repo.git("for-each-ref"), repo.head) == before


@pytest.mark.parametrize("button", ["merge", "drop", "restore", "apply"])
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


def test_no_click_on_stop_waits_for_the_end(repo: Repo, site: Pages, script: Callable[[str], str]) -> None:
    """Each would hold a thread."""
    agent = script("trap '' TERM; echo up; while :; do sleep 1; done")
    with Session(repo.path, "--grace", "5m", "--", agent) as session:
        session.wait_for("agent.started")
        for _ in range(2):
            note = site.note(site.post("stop", ("id", session.directory.name)))
            assert note.startswith(f"done | session {session.directory.name} has a stop request")
        eventually(
            lambda: not [thread for thread in threading.enumerate() if thread.name == "button"],
            "the end of all threads",
        )
        assert session.process.poll() is None
        site.post("stop", ("id", session.directory.name), ("how", "now"))
        session.finish()


@pytest.mark.parametrize("button", ["stop", "rm", "resume"])
@pytest.mark.parametrize("name", ["", "0000", "../x", "ralph/aaaa"])
def test_sessions_that_are_not_there(site: Pages, button: str, name: str) -> None:
    """It is said."""
    assert site.note(site.post(button, ("id", name))).startswith("failed | ")


def test_tell(repo: Repo, tmp_path: Path) -> None:
    """The page of a live session has a form for it; the next prompt begins with the text."""
    site = pages(repo.path)
    with telling(repo, tmp_path / "agent", "-n", "3") as told:
        told.await_prompt(1)
        name = told.session.directory.name
        assert f'action="{site.root}/tell"' in site.get(f"session?id={name}").text
        fields = ("id", name), ("text", "One\r\nmore ä."), ("back", f"session?id={name}")
        note = site.note(site.post("tell", *fields))
        assert note == f"done | session {name}: the next prompt begins with the message"
        told.let_go(1)
        assert told.await_prompt(2) == f"One\nmore ä.\n\n{PROMPT}"
        note = site.note(site.post("tell", ("id", name), ("text", "Now."), ("how", "now")))
        assert note.endswith("its running iteration ends for it")
        assert "Now.\n" in told.await_prompt(3)
        told.let_go(3)
        told.session.finish()
    assert f'action="{site.root}/tell"' not in site.get(f"session?id={name}").text
    note = site.note(site.post("tell", ("id", name), ("text", "Late.")))
    assert note == (
        f"failed | session {name} has ended"
        f" | to go on with it: ralph-wrap resume {name.rpartition('-')[2]} -m Late."
    )


@pytest.mark.parametrize(("text", "reason"), [("", "is empty"), ("x" * 17_000, "17,000 bytes, and may have")])
def test_tell_has_a_size(site: Pages, text: str, reason: str) -> None:
    """As by the command."""
    note = site.note(site.post("tell", ("id", "0000"), ("text", text)))
    assert note.startswith("failed | the message ")
    assert reason in note


def test_nobody_else_tells(repo: Repo, site: Pages) -> None:
    """A form of another site, or of a page that was started with --read-only, does nothing."""
    fields = ("id", "0000"), ("text", "x")
    assert site.post("tell", *fields, origin="http://evil.example").status == 403
    assert pages(repo.path, read_only=True).post("tell", *fields).status == 403

"""``ralph-wrap review --pr``: real gh and real git, against a GitHub on loopback."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.branches import Branch
from ralph_wrap.commands.pull_request import github
from ralph_wrap.commands.pull_request import open as pull_request
from ralph_wrap.commands.pull_request.open import OpenedPullRequest
from ralph_wrap.errors import ConflictError, NotFoundError, RalphError, UsageError
from ralph_wrap.git import CommitSummary
from ralph_wrap.state import project
from ralph_wrap.system.log import Log
from tests.support.damage import DAMAGES, damage_loose
from tests.support.fake_github import HOST, GitHub
from tests.support.histories import grow, record
from tests.support.needs import skip_or_fail
from tests.support.repo import Repo
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("trusted")

BRANCH = Branch("ralph/a3f2", "a3f2", "0" * 40, None, None, None)
ADDRESS = f"http://{HOST}/o/r/pull/1"


@pytest.fixture
def hub(server: GitHub) -> GitHub:
    """Return a GitHub that gh and git talk to; without gh the test is skipped, unless it has to be there."""
    if not shutil.which("gh"):
        skip_or_fail("gh is not installed: apt-get install gh", "REQUIRE_GH")
    return server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    """Return a GitHub that git talks to."""
    for name in list(os.environ):
        if name.startswith(("GH_", "GITHUB_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with GitHub(tmp_path / "hub") as made:
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def origin(repo: Repo, hub: GitHub) -> Repo:
    """Return the repository o/r on GitHub, which the project's origin is; branch a3f2 has one commit."""
    made = on_github(hub, "o/r")
    repo.git("remote", "add", "origin", f"http://{HOST}/o/r.git")
    grow(repo, "ralph/a3f2", "main", {"a": "a\n"}, message="Add a")
    return made


def on_github(hub: GitHub, name: str) -> Repo:
    """Make a bare repository there."""
    path = hub.root / f"{name}.git"
    path.mkdir(parents=True)
    made = Repo(path)
    made.git("init", "-q", "--bare")
    return made


def opened(repo: Repo, name: str = "a3f2", **env: str) -> OpenedPullRequest:
    """Open one, as the command line does."""
    environ = {**os.environ, **env}
    return pull_request.open_pull_request(
        project.find_project(repo.path, environ), name, lambda _remote, _address: None
    )


def pushed(origin: Repo) -> dict[str, str]:
    """Return the branches of a repository, with the subject of each one's last commit."""
    rows = origin.git("for-each-ref", "--format=%(refname:short) %(subject)").splitlines()
    return dict(row.split(" ", 1) for row in rows)


def test_a_branch_is_pushed_and_a_pull_request_opened(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """The branch and nothing else, above all not its saved work."""
    grow(repo, "ralph/a3f2-wip", "ralph/a3f2", {"b": "b\n"})
    record(repo, "a3f2", repo.head)
    commit = repo.git("rev-parse", "--short=12", "ralph/a3f2")
    assert opened(repo) == OpenedPullRequest("a3f2", "ralph/a3f2", "main", ADDRESS, "origin", created=True)
    assert pushed(origin) == {"ralph/a3f2": "Add a"}
    (pull,) = hub.pulls
    assert (pull["head"], pull["baseRefName"], pull["title"]) == ("ralph/a3f2", "main", "Add a")
    assert pull["body"] == (
        f"Commits, oldest first:\n\n    {commit} Add a\n\n"
        "The session of claude ended after 3 iterations: promise.\n\n"
        "Uncommitted work is on `ralph/a3f2-wip`, not in this branch.\n"
    )


def test_several_commits_are_listed() -> None:
    """In their order, under a title that only says how many they are; the first hundred of them."""
    commits = [CommitSummary(f"{number:040}", f"work {number}") for number in range(102)]
    assert pull_request.title_of(BRANCH, commits) == "ralph/a3f2: 102 commits"
    rows = pull_request.body_of(BRANCH, commits).split("\n")
    assert rows[2:4] == ["    000000000000 work 0", "    000000000000 work 1"]
    assert (len(rows), rows[-4:]) == (105, ["    000000000000 work 99", "", "… and 2 more.", ""])


def test_a_commit_without_a_subject_is_no_title() -> None:
    """GitHub would refuse that."""
    assert pull_request.title_of(BRANCH, [CommitSummary("0" * 40, "")]) == "ralph/a3f2: 1 commit"


def test_words_of_an_agent_are_only_words(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """No option of gh, nothing for a terminal, and in the body a block of code, which mentions no user."""
    subject = "--web @everyone, fixes #1 \x1b[2J\u202e" + "x" * 300
    grow(repo, "ralph/a3f2", "main", {"a": "a\n"}, message=subject)
    commit = repo.git("rev-parse", "--short=12", "ralph/a3f2")
    opened(repo)
    shown = "--web @everyone, fixes #1 \\x1b[2J\\u202e"
    shown += "x" * (199 - len(shown)) + "…"
    assert hub.pulls[0]["title"] == shown
    assert hub.pulls[0]["body"] == f"Commits, oldest first:\n\n    {commit} {shown}\n"
    assert len(pushed(origin)) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"agent": "claude", "ended_by": "promise", "iterations": 1},
            "The session of claude ended after 1 iteration: promise.",
        ),
        ({"agent": "/home/me/agent --key=secret", "ended_by": "stop"}, "The session ended: stop."),
        ({"agent": "claude", "ended_by": "@everyone", "iterations": 3}, ""),
        ({"agent": ["claude"], "ended_by": "stop", "iterations": "many"}, "The session ended: stop."),
        ({"agent": "claude", "ended_by": None}, ""),
    ],
)
def test_the_body_has_only_what_we_have_written(fields: dict[str, object], words: str) -> None:
    """An agent may have written more into the record; and a command may hold a prompt, a path, or a key."""
    body = pull_request.body_of(BRANCH._replace(record=fields), [CommitSummary("0" * 40, "x")])
    assert (
        body == "\n\n".join(["Commits, oldest first:", "    000000000000 x", *filter(None, [words])]) + "\n"
    )


def test_one_that_is_open_is_the_answer(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """It gets what was committed since; that of a branch of the same name in a fork is another one."""
    fork = {"baseRefName": "main", "headRefName": "ralph/a3f2", "owner": "other", "url": "http://other"}
    hub.pulls.append(fork)
    first = opened(repo)
    grow(repo, "ralph/a3f2", "ralph/a3f2", {"a": "more\n"}, message="More")
    assert opened(repo) == first._replace(created=False)
    assert pushed(origin) == {"ralph/a3f2": "More"}
    assert [pull["owner"] for pull in hub.pulls] == ["other", "o"]


def test_a_fork_is_pushed_to_and_the_original_asked(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """Where gh says that pull requests of this checkout belong."""
    original = on_github(hub, "up/r")
    repo.git("remote", "add", "upstream", f"http://{HOST}/up/r.git")
    assert opened(repo).url == f"http://{HOST}/up/r/pull/1"
    assert hub.pulls[0]["head"] == "o:ralph/a3f2"
    assert opened(repo)._replace(url="") == OpenedPullRequest(
        "a3f2", "ralph/a3f2", "main", "", "origin", created=False
    )
    assert (pushed(origin), pushed(original)) == ({"ralph/a3f2": "Add a"}, {})


def test_the_configured_remote_is_pushed_to(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """It is the one that sessions push to."""
    mine = on_github(hub, "mine/r")
    repo.git("remote", "add", "mine", f"http://{HOST}/mine/r.git")
    repo.write(".ralph/config.toml", 'push = "mine"\n')
    assert opened(repo).remote == "mine"
    assert hub.pulls[0]["head"] == "mine:ralph/a3f2"
    assert (pushed(origin), pushed(mine)) == ({}, {"ralph/a3f2": "Add a"})


@pytest.mark.parametrize(
    ("remotes", "configured", "problem"),
    [
        ((), None, "the repository has no remote"),
        (("one", "two"), None, "the repository has several remotes: one, two"),
        (("one",), "--all", "push: '--all' is not the name of a remote"),
    ],
)
def test_where_to_push_is_not_guessed(
    repo: Repo, remotes: tuple[str, ...], configured: str | None, problem: str
) -> None:
    """A name of a remote, and only if it is plain which."""
    grow(repo, "ralph/a3f2", "main", {"a": "a\n"})
    for name in remotes:
        repo.git("remote", "add", name, f"http://{HOST}/o/{name}.git")
    if configured:
        repo.write(".ralph/config.toml", f'push = "{configured}"\n')
    with pytest.raises(UsageError) as error:
        opened(repo)
    assert error.value.message == problem


def test_the_only_remote_is_meant_whatever_its_name(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """And the main branch may be one that only it has."""
    repo.git("remote", "rename", "origin", "hub")
    repo.git("push", "-q", "hub", "main")
    repo.git("switch", "-q", "ralph/a3f2")
    repo.git("branch", "-q", "-D", "main")
    repo.write(".ralph/config.toml", 'main = "hub/main"\n')
    assert opened(repo)[1:5] == ("ralph/a3f2", "main", ADDRESS, "hub")
    assert (hub.pulls[0]["baseRefName"], sorted(pushed(origin))) == ("main", ["main", "ralph/a3f2"])


def test_a_branch_that_is_not_to_land_is_refused(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """Merged, without commits, saved work alone, without a common history: nothing is pushed."""
    grow(repo, "ralph/0001", "main", {"b": "b\n"})
    grow(repo, "main", "main", {"b": "b\n"}, message="the same")
    repo.git("branch", "ralph/0002")
    grow(repo, "ralph/0003-wip", "main", {"c": "c\n"})
    grow(repo, "ralph/0004", None, {"d": "d\n"})
    problems = {}
    for name in ("0001", "0002", "0003", "0004"):
        with pytest.raises(ConflictError) as error:
            opened(repo, name)
        problems[name] = error.value.message
    assert problems == {
        "0001": "main has all of ralph/0001 already",
        "0002": "main has all of ralph/0002 already",
        "0003": "ralph/0003-wip is only saved work",
        "0004": "ralph/0004 and main have no common history",
    }
    with pytest.raises(NotFoundError):
        opened(repo, "ffff")
    assert (pushed(origin), hub.asked) == ({}, [])


def test_a_session_that_is_not_finished_is_waited_for(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """As for landing its branch: it is not yet what it will be."""
    claimed = repo.path / ".ralph" / "run" / "agents" / "a3f2.json"
    record(repo, "a3f2", repo.head)
    claimed.write_text("of an unknown author")
    with pytest.raises(ConflictError, match=r"^ralph/a3f2: its session is unknown$"):
        opened(repo)
    claimed.unlink()
    assert opened(repo).created
    assert (len(hub.pulls), len(pushed(origin))) == (1, 1)


def test_what_another_user_has_pushed_there_stays(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """It is not contained in the branch: nothing is replaced, and nothing opened."""
    other = origin.git("commit-tree", "-m", "theirs", origin.git("mktree"))
    origin.git("update-ref", "refs/heads/ralph/a3f2", other)
    with pytest.raises(ConflictError, match=r"has other commits: \[rejected\] \(fetch first\)$"):
        opened(repo)
    assert (pushed(origin), hub.pulls) == ({"ralph/a3f2": "theirs"}, [])


def test_a_refusal_is_printed_in_its_own_words(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """By GitHub, of a pull request."""
    hub.refusal = "Base ref must be a branch"
    with pytest.raises(RalphError) as error:
        opened(repo)
    assert error.value.message == (
        "gh pr create: pull request create failed: GraphQL: Base ref must be a branch (createPullRequest)"
    )
    assert pushed(origin) == {"ralph/a3f2": "Add a"}


def test_a_missing_login_is_explained(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """Before anything is pushed."""
    with pytest.raises(RalphError, match="gh auth login"):
        opened(repo, GH_TOKEN="", GH_HOST="", CI="")
    assert (pushed(origin), hub.asked) == ({}, [])


def test_a_remote_that_is_not_on_github_is_refused(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """In gh's words, before anything is pushed."""
    repo.git("remote", "set-url", "origin", os.fspath(origin.path))
    with pytest.raises(RalphError, match=r"^gh repo view: none of the git remotes configured"):
        opened(repo)
    assert (pushed(origin), hub.asked) == ({}, [])


def test_without_gh_nothing_is_done(repo: Repo, tmp_path: Path) -> None:
    """It is said what is missing."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(str(shutil.which("git")))
    grow(repo, "ralph/a3f2", "main", {"a": "a\n"})
    repo.git("remote", "add", "origin", os.fspath(tmp_path / "nothing.git"))
    with pytest.raises(UsageError) as error:
        opened(repo, PATH=os.fspath(tmp_path / "bin"))
    assert error.value.message == "gh, GitHub's command line, is not installed"


def test_without_gh_the_page_is_named_on_which_to_open_it(repo: Repo, server: GitHub, tmp_path: Path) -> None:
    """The branch is pushed, and a person has to do the rest."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(str(shutil.which("git")))
    made = on_github(server, "o/r")
    repo.git("remote", "add", "origin", f"http://{HOST}/o/r.git")
    grow(repo, "ralph/a3f2", "main", {"a": "a\n"}, message="Add a")
    env = {"RALPH_TRUST": "1", "PATH": os.fspath(tmp_path / "bin")}
    ended = command("review", "--pr", "a3f2", cwd=repo.path, env=env)
    page = f"http://{HOST}/o/r/compare/main...ralph/a3f2?expand=1"
    assert (ended.status, ended.stdout.decode()) == (0, f"{page}\n"), ended.stderr
    assert "gh is not installed: the pull request is still to be opened" in ended.stderr
    assert (pushed(made), server.asked) == ({"ralph/a3f2": "Add a"}, [])


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("https://github.com/o/r.git", "https://github.com/o/r"),
        ("https://user:secret@github.com/o/r", "https://github.com/o/r"),
        ("git@github.com:o/r.name.git", "https://github.com/o/r.name"),
        ("ssh://git@github.com:22/o/r.git/", "https://github.com/o/r"),
        ("https://git.example/o/r.git", None),
        ("https://github.com.example/o/r.git", None),
        ("/srv/github.com/o/r.git", None),
    ],
)
def test_the_page_of_an_address(address: str, page: str | None) -> None:
    """Without the user and the secret in it; only GitHub is known to have such a page."""
    found = github.page_to_open(address, "main", "ralph/a b", {})
    assert found == (page and f"{page}/compare/main...ralph/a%20b?expand=1")


def test_a_gh_that_hangs_is_ended(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its process group, when its time is over."""
    shim = tmp_path / "bin" / "gh"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid; exec sleep 600\n")
    shim.chmod(0o755)
    monkeypatch.setattr(github, "_PATIENCE", 0.5)
    grow(repo, "ralph/a3f2", "main", {"a": "a\n"})
    repo.git("remote", "add", "origin", os.fspath(tmp_path / "nothing.git"))
    with pytest.raises(RalphError, match=r"^gh repo view: still running after"):
        opened(repo, PATH=f"{shim.parent}:{os.environ['PATH']}")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_gh_runs_nothing_that_an_agent_has_configured(
    repo: Repo, origin: Repo, hub: GitHub, script: Callable[[str], str], tmp_path: Path
) -> None:
    """It asks git for what is uncommitted, which would start a file system monitor."""
    repo.git("config", "core.fsmonitor", script(f"echo ran >{tmp_path}/ran"))
    repo.git("status")
    (tmp_path / "ran").unlink()
    assert opened(repo, GH_FORCE_TTY="80", CLICOLOR_FORCE="1").url == ADDRESS
    assert not (tmp_path / "ran").exists()
    assert (len(hub.pulls), len(pushed(origin))) == (1, 1)


def test_unpushed_commits_of_the_main_branch_are_named(
    repo: Repo, origin: Repo, hub: GitHub, tmp_path: Path
) -> None:
    """They would show in the pull request as if they were the session's."""
    repo.git("push", "-q", "origin", "main")
    grow(repo, "main", "main", {"m": "m\n"}, {"m": "n\n"})
    grow(repo, "ralph/a3f2", "main", {"a": "a\n"})
    with (tmp_path / "told").open("wb") as file:
        log = Log(file.fileno(), terminal=False, colour=False, as_json=True)
        with log.in_use():
            opened(repo)
    printed = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [(one["level"], one["message"]) for one in printed] == [
        (
            "warning",
            "the pull request also has 2 commits of main that origin/main lacks",
        ),
        ("info", "pushed ralph/a3f2 to origin"),
    ]
    assert (len(hub.pulls), len(pushed(origin))) == (1, 2)


def test_the_answer_is_the_address(repo: Repo, origin: Repo, hub: GitHub) -> None:
    """On standard output, alone, and with what it is about as JSON."""
    ended = command("review", "--pr", "ralph/a3f2", cwd=repo.path, env={"RALPH_TRUST": "1"})
    assert (ended.status, ended.stdout.decode()) == (0, f"{ADDRESS}\n"), ended.stderr
    ended = command("review", "--pr", "a3f2", "--json", cwd=repo.path, env={"RALPH_TRUST": "1"})
    assert (ended.status, json.loads(ended.stdout)) == (
        0,
        {
            "version": 1,
            "success": True,
            "tool": "review",
            "data": {
                "id": "a3f2",
                "branch": "ralph/a3f2",
                "base": "main",
                "url": ADDRESS,
                "remote": "origin",
                "created": False,
                "to_open": False,
            },
        },
    )
    assert (len(hub.pulls), len(pushed(origin))) == (1, 1)


def test_it_is_about_one_branch(repo: Repo) -> None:
    """Options of the list mean nothing to it."""
    ended = command("review", "--pr", "a3f2", "--only", "live", "--json", cwd=repo.path)
    printed = json.loads(ended.stdout)
    assert (ended.status, printed["error"]["code"]) == (2, "usage")


@pytest.mark.parametrize("which", ["", ":a", "^{tree}"])
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_branch_is_not_pushed(repo: Repo, server: GitHub, how: str, which: str) -> None:
    """The message names the object, the branch stays, and the remote gets nothing."""
    there = on_github(server, "o/r")
    repo.git("remote", "add", "origin", f"http://{HOST}/o/r.git")
    repo.git("config", "fastimport.unpackLimit", "1000")
    tip = grow(repo, "ralph/a3f2", "main", {"a": "a\n" * 20}, message="Add a")
    oid = repo.git("rev-parse", f"{tip}{which}")
    damage_loose(repo, oid, how)
    with pytest.raises(RalphError) as caught:
        opened(repo)
    assert oid in caught.value.message
    assert there.git("for-each-ref") == ""
    assert (repo.path / ".git/refs/heads/ralph/a3f2").read_text() == f"{tip}\n"

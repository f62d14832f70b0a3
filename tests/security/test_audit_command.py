"""``ralph-wrap audit``: findings, undoing them, accepting them."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.errors import RalphError
from tests.security.tamperings import TAMPERINGS
from tests.support.sessions import PROGRAM, command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo


def _rows(repo: Repo, *words: str, status: int = 0) -> list[dict[str, Any]]:
    """Return the answer of an audit."""
    result = command("audit", *words, "--json", cwd=repo.path)
    assert result.status == status, (result.stdout, result.stderr)
    rows: list[dict[str, Any]] = json.loads(result.stdout)["data"]
    return rows


def _open(repo: Repo) -> list[str]:
    rows = json.loads(command("audit", "--json", cwd=repo.path).stdout)["data"]
    return [row["title"] for row in rows if not row["accepted"]]


def test_a_finding_is_said_in_full(repo: Repo) -> None:
    """What, since which session, what plain git does, and a command that takes it away."""
    ended = run(repo.path, "-n", "1", "--", "git", "-C", repo.path, "config", "core.pager", "evil")
    [row] = _rows(repo, status=1)
    assert (row["title"], row["kind"]) == (".git/config: core.pager", "key-runs")
    assert row["since"] == f"session {ended.report['session']}"
    assert row["effect"] == "git runs a program that this key names"
    assert "evil" not in json.dumps(row)
    assert repo.git("config", "core.pager") == "evil"
    shell = os.system(row["remove"])  # noqa: S605 -- the command that a user pastes
    assert (shell, _rows(repo)) == (0, [])


def test_an_undo_takes_away_what_came(repo: Repo) -> None:
    """Other lines of the configuration stay, and the agent's version is kept."""
    repo.git("config", "alias.mine", "!echo mine")
    assert _rows(repo)[0]["accepted"], "it was there before the first session"
    repo.git("config", "core.pager", "evil")
    repo.git("config", "pull.rebase", "true")
    repo.git("config", "alias.mine", "!evil")
    repo.write(".git/hooks/post-checkout", "evil hook", executable=True)
    undone = {row["title"]: row for row in _rows(repo, "--undo")}
    assert undone[".git/config: core.pager"]["action"] == "taken away"
    assert undone[".git/config: alias.mine"]["action"] == "put back"
    assert repo.git("config", "pull.rebase") == "true"
    assert repo.git("config", "alias.mine") == "!echo mine"
    assert _open(repo) == []
    hook = undone[".git/hooks/post-checkout"]
    assert (hook["action"], Path(hook["aside"]).read_text()) == ("taken away", "evil hook")
    assert b"pager = evil" in Path(undone[".git/config: core.pager"]["aside"]).read_bytes()


def test_an_undo_puts_a_changed_hook_back(repo: Repo) -> None:
    """With its old content, and executable."""
    hook = repo.write(".git/hooks/pre-commit", "#!/bin/sh\n", executable=True)
    assert _open(repo) == []
    hook.write_text("#!/bin/sh\nevil\n")
    assert [row["action"] for row in _rows(repo, "--undo")] == ["put back"]
    assert (hook.read_text(), bool(hook.stat().st_mode & stat.S_IXUSR)) == ("#!/bin/sh\n", True)


def test_an_undo_follows_no_symlink(repo: Repo, tmp_path: Path) -> None:
    """An agent can point the directory of the hooks at the user's programs, which stay where they are."""
    assert _open(repo) == []
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "tool").write_text("#!/bin/sh\n")
    (programs / "tool").chmod(0o755)
    (repo.path / ".git/hooks").rename(repo.path / ".git/other")
    (repo.path / ".git/hooks").symlink_to(programs)
    command("audit", "--undo", cwd=repo.path)
    assert (programs / "tool").exists()


def test_an_undo_keeps_nothing_behind_a_symlink(repo: Repo, tmp_path: Path) -> None:
    """The agent's version stays in the git directory, so an undo writes nowhere else."""
    assert _open(repo) == []
    repo.git("config", "core.pager", "evil")
    (tmp_path / "elsewhere").mkdir()
    (repo.path / ".git/ralph-wrap-aside").symlink_to(tmp_path / "elsewhere")
    command("audit", "--undo", cwd=repo.path)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


UNDONE = [
    *("smudge filter", "push address", "include", "key of the worktree", "hook", "attributes", "grafts"),
    *(
        "shallow",
        "common directory",
        "alternates",
        "remote in a file",
        "rebase that runs",
        "huge configuration",
    ),
    *("replaced object", "replaced object, packed", "unreadable configuration", "FIFO as configuration"),
    *("symlink as configuration", "directory as configuration", "common directory of a worktree"),
]


@pytest.mark.parametrize("name", UNDONE)
def test_an_undo_leaves_nothing(repo: Repo, name: str) -> None:
    """Each of these goes, git works again, and an audit finds nothing."""
    assert _open(repo) == []
    before = repo.head
    TAMPERINGS[name].make(repo)
    assert _open(repo) != []
    _rows(repo, "--undo")
    assert (_open(repo), repo.head) == ([], before)


def test_an_undo_without_a_memory_changes_nothing(repo: Repo) -> None:
    """Nothing tells whose hook it is; the message has the command."""
    repo.write(".ralph/run/sessions/20260102T030405Z-abcd/record.json", "{}")
    hook = repo.write(".git/hooks/pre-commit", "#!/bin/sh\n", executable=True)
    [row] = _rows(repo, "--undo", status=5)
    assert (row["action"], hook.exists()) == ("left", True)
    assert "by hand: chmod a-x " in row["reason"]


@pytest.mark.parametrize("name", TAMPERINGS)
def test_the_command_by_hand_takes_a_finding_away(repo: Repo, name: str) -> None:
    """If nothing is remembered, the user types what stands after *remove*; a few findings have no command."""
    repo.write(".ralph/run/sessions/20260102T030405Z-abcd/record.json", "{}")
    TAMPERINGS[name].make(repo)
    without_command = []
    for row in _rows(repo, status=1):
        if row["remove"].startswith("look at it, "):
            without_command.append(row["title"])
        else:
            assert os.system(f"cd {repo.path} && {row['remove']}") == 0, row  # noqa: S605
    assert [title for title in _open(repo) if title not in without_command] == []


NOT_UNDONE = {
    "a hook of a machine that never saw it without": ".git/hooks/pre-commit",
    "a hook in the checkout": ".husky/_/pre-commit",
}


@pytest.mark.parametrize("hook", NOT_UNDONE.values(), ids=NOT_UNDONE)
def test_an_undo_is_offered_only_where_it_can_undo(repo: Repo, hook: str) -> None:
    """Else the hint names the commands by hand, and these take the finding away."""
    if hook.startswith(".husky"):
        repo.git("config", "core.hooksPath", ".husky/_")
        assert _open(repo) == []
    else:
        repo.write(".ralph/run/sessions/20260102T030405Z-abcd/record.json", "{}")
    repo.write(hook, "#!/bin/sh\n", executable=True)
    for words in (("audit",), ("merge", "abcd")):
        hint = json.loads(command(*words, "--json", cwd=repo.path).stdout)["error"]["hint"]
        assert "--undo" not in hint
        assert "by hand, ralph-wrap audit shows" in hint
    [remove] = [row["remove"] for row in _rows(repo, status=1) if not row["accepted"]]
    assert os.system(f"cd {repo.path} && {remove}") == 0  # noqa: S605 -- the command that a user pastes
    assert _open(repo) == []


def test_a_changed_identity_is_said_and_refuses_nothing(repo: Repo) -> None:
    """Users change it themselves, so a merge goes on; the report of the session names it."""
    agent = "git config user.email agent@example.invalid; git commit -q --allow-empty -m work"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
    line = ".git/config: user.email: git gives commits another author or signature than before"
    assert ended.report["tampering"] == [line]
    merged = command("merge", ended.report["id"], cwd=repo.path)
    assert merged.status == 0, merged.stderr
    assert line in merged.stderr
    [row] = _rows(repo, status=1)
    assert (row["kind"], row["remove"]) == ("changed-identity", "ralph-wrap audit --undo")


def test_an_accepted_finding_is_no_longer_said(repo: Repo) -> None:
    """Exactly as it is: another value is another finding."""
    assert _open(repo) == []
    repo.git("config", "core.pager", "less")
    [row] = _rows(repo, "--accept")
    assert row["accepted"]
    assert _open(repo) == []
    repo.git("config", "core.pager", "less -R; evil")
    assert _open(repo) == [".git/config: core.pager"]


def test_what_trust_approves_is_accepted(repo: Repo) -> None:
    """One answer is enough for a key that our git obeys; another value needs another one."""
    assert _open(repo) == []
    repo.git("config", "filter.mine.clean", "cat")
    assert _open(repo) == [".git/config: filter.mine.clean"]
    assert command("trust", cwd=repo.path).status == 0
    assert _open(repo) == []
    repo.git("config", "filter.mine.clean", "cat; evil")
    assert _open(repo) == [".git/config: filter.mine.clean"]


def test_an_agent_cannot_accept(repo: Repo) -> None:
    """Inside a session only a terminal counts."""
    assert _open(repo) == []
    agent = f"git -C {repo.path} config core.pager evil; cd {repo.path} && {PROGRAM} audit --accept"
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", agent)
    assert "cannot be accepted inside session" in ended.stderr + ended.output_log.decode()
    assert _open(repo) == [".git/config: core.pager"]


@pytest.mark.parametrize("damage", [lambda path: path.chmod(0o666), lambda path: path.write_text("{")])
def test_a_memory_that_does_not_count_accepts_nothing(repo: Repo, home: Path, damage: Any) -> None:
    """A file that others can write, or a damaged one: after sessions nothing is accepted by itself."""
    repo.write(".git/hooks/pre-commit", "#!/bin/sh\n", executable=True)
    assert _open(repo) == []
    assert run(repo.path, "-n", "1", "--", "true").status == 0
    [memory] = (home / "state/ralph-wrap/audit").iterdir()
    damage(memory)
    assert _open(repo) == [".git/hooks/pre-commit"]


@pytest.mark.parametrize("damage", [lambda path: path.chmod(0o666), lambda path: path.write_text("{")])
def test_a_memory_that_cannot_be_read_is_said_and_kept(repo: Repo, home: Path, damage: Any) -> None:
    """It holds what an undo would put back; the printed command begins a new one."""
    repo.git("config", "alias.mine", "!echo mine")
    assert _open(repo) == []
    [memory] = (home / "state/ralph-wrap/audit").iterdir()
    damage(memory)
    before = memory.read_bytes()
    said = command("audit", cwd=repo.path)
    assert (said.status, "what this machine remembers of the project" in said.stderr) == (1, True)
    assert command("audit", "--accept", cwd=repo.path).status == RalphError.exit_code
    assert (memory.read_bytes(), _open(repo)) == (before, [".git/config: alias.mine"])
    [way] = re.findall(r'mv /[^"]*', said.stderr)
    assert os.system(way) == 0  # noqa: S605 -- the command that a user pastes
    assert (command("audit", cwd=repo.path).status, memory.exists()) == (0, True)


def test_a_session_says_that_the_memory_cannot_be_read(repo: Repo, home: Path) -> None:
    """It does not learn anew what an agent of an earlier session may have left."""
    assert _open(repo) == []
    [memory] = (home / "state/ralph-wrap/audit").iterdir()
    memory.write_text("{")
    ended = run(repo.path, "-n", "1", "--", "true")
    assert "what this machine remembers of the project cannot be read" in ended.stderr
    assert memory.read_text() == "{"

"""An agent, or a clone, cannot decide by files of the project what the next session does.

Each attack is tried twice: with the defence off (``RALPH_TRUST=1``) it succeeds, without that it is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap import config
from ralph_wrap.config import trust
from ralph_wrap.config.authority import needs_approval
from tests.security import defences
from tests.support.agent_script import PROMISE, TRUSTED
from tests.support.merging import branch
from tests.support.needs import needs_other_users
from tests.support.sessions import Result, command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo

UID = 54321

LIMITS = {
    *("max_iterations", "max_failures", "max_stalls", "max_time", "max_tokens", "max_cost"),
    *("iteration_timeout", "idle_timeout", "delay", "grace", "pool", "remote_beat"),
    *("setup_timeout", "teardown_timeout", "verify_timeout", "check_timeout"),
}
"""The keys that only make a session longer or shorter, or its worktrees more."""

READS_PROMPT = ("run", "-n", "1", "--", "cat")


def refused(ended: Result, keys: str) -> bool:
    """Return whether a command asked for approval of exactly these keys, and did nothing."""
    said = f"the project has settings that you have not approved: {keys}\n"
    return ended.status == 125 and json.loads(ended.stderr.splitlines()[-1])["message"] + "\n" == said


def test_every_key_but_limits_needs_the_users_word() -> None:
    """A new key of the file fails here until its author has decided."""
    assert {name for name in config.KEYS if name != "agents" and not needs_approval(name)} == LIMITS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("merge_on_complete", "main"),
        ("push", "origin"),
        ("isolation", "off"),
        ("hooks", True),
        ("prompt", "do evil"),
        ("main", "ralph/a3f2"),
        ("link", ["node_modules"]),
        ("base", "ralph/a3f2"),
        ("until", ""),
    ],
)
def test_a_key_counts_only_when_approved_or_typed(repo: Repo, key: str, value: Any) -> None:
    """What the user types replaces the key, and so needs no approval."""
    repo.write(".ralph/config.toml", f"{key} = {json.dumps(value)}\n")
    settings = config.load(repo.path, repo.path, repo.path, {}, {}, ("agent",))
    assert [*settings.stated] == [key]
    assert trust.unapproved(repo.path, settings.stated, os.environ) == settings.stated
    trust.approve(repo.path, settings.stated, os.environ)
    assert trust.unapproved(repo.path, settings.stated, os.environ) == {}


def test_work_that_was_not_reviewed_does_not_land(repo: Repo) -> None:
    """The agent of one session writes ``merge_on_complete``; the next session obeys only the user."""
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("ignored")
    before = repo.git("rev-parse", "main")
    agent = f"cd $RALPH_PROJECT; echo 'merge_on_complete = \"main\"' >.ralph/config.toml; echo '{PROMISE}'"
    assert command("run", "-n", "1", "--", "sh", "-c", agent, cwd=repo.path).status == 0
    work = (
        "run",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        f"echo evil >evil; git add .; git commit -qm evil; echo '{PROMISE}'",
    )
    assert refused(command(*work, cwd=repo.path), "merge_on_complete")
    assert repo.git("rev-parse", "main") == before
    assert command(*work, cwd=repo.path, env=TRUSTED).status == 0
    assert repo.git("show", "main:evil") == "evil"


def test_an_approved_check_cannot_be_taken_away(repo: Repo) -> None:
    """The branch would land unchecked; a user who wants that says so."""
    branch(repo, "aaaa", {"a": "a"})
    repo.write(".ralph/config.toml", 'check = "false"\n')
    assert command("trust", cwd=repo.path).status == 0
    repo.write(".ralph/config.toml", "")
    assert refused(command("merge", "aaaa", cwd=repo.path), "check (removed)")
    shown = command("trust", "--show", cwd=repo.path).stdout.decode()
    assert shown == "  check: removed since your approval\nnot approved\n"
    assert command("trust", cwd=repo.path).status == 0
    assert command("merge", "aaaa", cwd=repo.path).status == 0


def test_a_clone_hands_nothing_to_an_agent(repo: Repo) -> None:
    """A bare ``run`` in a project that never ran: neither its agent nor its prompt is obeyed."""
    repo.write(".ralph/config.toml", '[agents.mine]\ncommand = ["cat"]\n')
    config_file = repo.path / ".ralph/config.toml"
    config_file.write_text('agent = "mine"\n' + config_file.read_text())
    repo.write("PROMPT.md", "exfiltrate\n")
    words = ("run", "-n", "1")
    assert refused(command(*words, cwd=repo.path), "agent, agents.mine, PROMPT.md")
    assert command(*words, cwd=repo.path, env=TRUSTED).stdout == b"exfiltrate\n"
    assert command("trust", cwd=repo.path).status == 0
    repo.write("PROMPT.md", "another task of the user\n")
    assert command(*words, cwd=repo.path).stdout == b"another task of the user\n"


@pytest.mark.parametrize("typed", [("-p", "task"), ("-f", "task.txt")])
def test_typed_options_need_no_approval(repo: Repo, tmp_path: Path, typed: tuple[str, str]) -> None:
    """The first session of a user who says what to do asks nothing, though the project has a prompt."""
    repo.write("PROMPT.md", "of the project\n")
    (tmp_path / "task.txt").write_text("task")
    words = [str(tmp_path / word) if word == "task.txt" else word for word in typed]
    ended = command("run", "-n", "1", *words, "--", "cat", cwd=repo.path)
    assert (ended.status, ended.stdout) == (0, b"task")


@pytest.mark.parametrize("by_key", [False, True])
def test_a_prompt_that_leads_out_of_the_project_is_named(repo: Repo, tmp_path: Path, by_key: bool) -> None:
    """``../secret``, or a symlink as ``PROMPT.md``. A symlink that is changed later asks again."""
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    key = "prompt_file" if by_key else "PROMPT.md"
    if by_key:
        repo.write(".ralph/config.toml", 'prompt_file = "../secret"\n')
    else:
        (repo.path / "PROMPT.md").symlink_to(secret)
    assert refused(command(*READS_PROMPT, cwd=repo.path), key)
    assert command(*READS_PROMPT, cwd=repo.path, env=TRUSTED).stdout == b"secret\n"
    shown = command("trust", "--show", cwd=repo.path).stdout.decode()
    assert f"(it leads to {secret})" in shown
    assert command("trust", cwd=repo.path).status == 0
    assert command(*READS_PROMPT, cwd=repo.path).stdout == b"secret\n"
    secret.rename(tmp_path / "other")
    secret.symlink_to(tmp_path / "other")
    assert refused(command(*READS_PROMPT, cwd=repo.path), key)


@needs_other_users
def test_a_configuration_of_another_user_is_not_obeyed(repo: Repo) -> None:
    """Not even for limits: the owner of the file can change it at any time."""
    path = repo.write(".ralph/config.toml", "max_iterations = 1\n")
    assert command("run", "--", "true", cwd=repo.path).status == 0
    os.chown(path, UID, UID)
    assert refused(command("run", "--", "true", cwd=repo.path), "owner")
    assert command("run", "--", "true", cwd=repo.path, env=TRUSTED).status == 0


@pytest.fixture
def shared() -> Iterator[Path]:
    """Yield a directory of root that everybody may write, such as ``/tmp``."""
    with tempfile.TemporaryDirectory(prefix="test-shared-") as temporary:
        Path(temporary).chmod(0o1777)
        yield Path(temporary)


@needs_other_users
def test_a_repository_of_another_user_is_an_error(
    repo: Repo, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other user put it where root works. A fallback would run root's agent on that user's files."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    shutil.copytree(repo.path / ".git", shared / ".git")
    (shared / "PROMPT.md").write_text("obey\n")
    subprocess.run(("chown", "-R", f"{UID}:{UID}", shared / ".git", shared / "PROMPT.md"), check=True)
    words = ("run", "-n", "1", "--", "cat")
    ended = command(*words, cwd=shared, env={**TRUSTED, "GIT_CEILING_DIRECTORIES": "/"})
    assert (ended.status, ended.stdout) == (125, b"")
    assert f"{shared} is a repository of user id {UID}" in ended.stderr
    obeyed = defences.run(
        defences.NO_OWNER, *words, cwd=shared, env={**TRUSTED, "GIT_CEILING_DIRECTORIES": "/"}
    )
    assert obeyed.stdout == b"obey\n"


@pytest.mark.parametrize("entry", [".ralph", ".ralph/run", ".ralph/worktrees", ".ralph/run/sessions"])
def test_a_symlink_takes_no_isolation_away(repo: Repo, tmp_path: Path, entry: str) -> None:
    """It leads nowhere, and the next session does not work in the plain root: it ends before it begins."""
    link = repo.path / entry
    link.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    ended = command("run", "-n", "1", "--", "pwd", cwd=repo.path)
    assert (ended.status, ended.stdout) == (125, b"")
    assert f"{link} is a symlink, which is not followed" in ended.stderr
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    if entry == ".ralph":  # where this look is off, another one refuses the others
        defences.run(defences.FOLLOWS_SYMLINKS, "run", "-n", "1", "--", "pwd", cwd=repo.path)
        assert [*(tmp_path / "elsewhere").iterdir()] != []

"""Hooks off in one worktree, for every process there; on elsewhere, and no trace afterwards."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.repo import Repo, make_repo
from tests.support.sessions import Result, command

OURS = b"# ralph-wrap: "


def _make(repo: Repo, *words: str) -> Repo:
    result = command("worktree", "create", "fix it", *words, cwd=repo.path)
    assert result.status == 0, (result.stdout, result.stderr)
    return Repo(Path(json.loads(result.stdout)["data"]["path"]))


def _clean(repo: Repo, tree: Repo) -> None:
    result = command("worktree", "cleanup", tree.path, "--force", cwd=repo.path)
    assert (result.status, result.warnings) == (0, []), (result.stdout, result.stderr)


def _config(repo: Repo) -> Path:
    return repo.path / ".git" / "config"


def _fails(repo: Repo) -> bool:
    """Return whether a hook keeps a commit, typed in a worktree, from being made."""
    done = subprocess.run(
        ("git", "commit", "-q", "--allow-empty", "-m", "x"), cwd=repo.path, check=False, capture_output=True
    )
    return done.returncode != 0


def _refused(repo: Repo, *words: str) -> str:
    """Return why hooks cannot be switched off; nothing is made."""
    before = (_config(repo).read_bytes(), repo.git("for-each-ref"), sorted(repo.path.iterdir()))
    result: Result = command("worktree", "create", "fix it", *words, cwd=repo.path)
    assert (_config(repo).read_bytes(), repo.git("for-each-ref"), sorted(repo.path.iterdir())) == before
    error = json.loads(result.stdout)["error"]
    assert (result.status, error["code"]) == (5, "refused")
    return str(error["message"])


@pytest.fixture
def hooked(repo: Repo) -> Repo:
    """Return a repository whose hook refuses every commit."""
    repo.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n", executable=True)
    return repo


def test_off_in_the_worktree_and_on_in_the_main_checkout(hooked: Repo) -> None:
    """Whatever program commits there."""
    tree = _make(hooked)
    assert (_fails(tree), _fails(hooked)) == (False, True)


def test_off_where_the_user_has_hooks_elsewhere(hooked: Repo) -> None:
    """As husky does it, in the shared configuration."""
    hooked.git("config", "core.hooksPath", ".git/hooks")
    tree = _make(hooked)
    hooked.git("config", "core.hooksPath", f"{hooked.path}/.git/hooks")
    assert (_fails(tree), _fails(hooked)) == (False, True)


def test_on_if_that_is_asked_for(hooked: Repo) -> None:
    """And the configuration is not touched."""
    before = _config(hooked).read_bytes()
    assert _fails(_make(hooked, "--hooks", "on")) is True
    assert _config(hooked).read_bytes() == before


def test_on_in_a_worktree_of_the_user(hooked: Repo, tmp_path: Path) -> None:
    """Made before and after."""
    theirs = [Repo(tmp_path / name) for name in ("before", "after")]
    hooked.git("worktree", "add", "-q", "--detach", theirs[0].path)
    _make(hooked)
    hooked.git("worktree", "add", "-q", "--detach", theirs[1].path)
    assert [_fails(one) for one in theirs] == [True, True]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content,
        lambda content: content.removesuffix(b"\n"),
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
        lambda content: content + b"[a]\n\tb = c\\\n",
        lambda content: content + b"[a]\n\tb = c ; d",
        lambda content: content + b"\n\n",
        lambda content: content + b"[extensions]\n\tworktreeConfig = false\n",
    ],
    ids=[
        "as git has it",
        "no last newline",
        "CRLF",
        "CRLF, none last",
        "continued",
        "comment",
        "empty",
        "false",
    ],
)
def test_the_configuration_is_the_same_byte_for_byte(hooked: Repo, change: object) -> None:
    """Once the last such worktree is gone; off in between."""
    assert callable(change)
    _config(hooked).write_bytes(change(_config(hooked).read_bytes()))
    before = _config(hooked).read_bytes()
    one, two = _make(hooked), _make(hooked)
    assert (_fails(one), _fails(two), _fails(hooked)) == (False, False, True)
    _clean(hooked, one)
    assert (_fails(two), OURS in _config(hooked).read_bytes()) == (False, True)
    _clean(hooked, two)
    assert _config(hooked).read_bytes() == before


def test_values_are_the_same_in_between(repo: Repo) -> None:
    """A last line without its newline is still that line."""
    _config(repo).write_bytes(_config(repo).read_bytes() + b"[a]\n\tb = c")
    before = repo.git("config", "--file", ".git/config", "--list")
    _make(repo)
    now = repo.git("config", "--file", ".git/config", "--list")
    assert now == f"{before}\nextensions.worktreeconfig=true"


def test_a_symlinked_configuration(repo: Repo, tmp_path: Path) -> None:
    """Stays a symlink; the file behind it is the same."""
    real = tmp_path / "real-config"
    _config(repo).rename(real)
    _config(repo).symlink_to(real)
    before = real.read_bytes()
    tree = _make(repo)
    assert OURS in real.read_bytes()
    _clean(repo, tree)
    assert (_config(repo).readlink(), real.read_bytes()) == (real, before)


def test_the_mode_stays(repo: Repo) -> None:
    """It may hold secrets."""
    _config(repo).chmod(0o600)
    tree = _make(repo)
    _clean(repo, tree)
    assert _config(repo).stat().st_mode & 0o777 == 0o600


def test_the_users_own_extension_is_left_alone(hooked: Repo) -> None:
    """Nothing is added, and nothing taken away."""
    hooked.git("config", "extensions.worktreeConfig", "true")
    hooked.git("config", "--worktree", "user.name", "Main")
    before = _config(hooked).read_bytes()
    tree = _make(hooked)
    assert (_config(hooked).read_bytes(), _fails(tree)) == (before, False)
    _clean(hooked, tree)
    assert _config(hooked).read_bytes() == before
    assert hooked.git("config", "user.name") == "Main"


@pytest.mark.parametrize("newline", [b"\n", b""], ids=["newline", "none"])
def test_what_the_user_adds_in_between_stays(repo: Repo, newline: bytes) -> None:
    """In a section of its own."""
    _config(repo).write_bytes(_config(repo).read_bytes().removesuffix(b"\n") + newline)
    before = _config(repo).read_bytes()
    tree = _make(repo)
    repo.git("config", "branch.main.description", "mine")
    _clean(repo, tree)
    assert _config(repo).read_bytes() == (
        before.removesuffix(b"\n") + b'\n[branch "main"]\n\tdescription = mine\n'
    )


def test_what_the_user_adds_to_our_section_stays(repo: Repo) -> None:
    """With its head, or it would belong to the section before."""
    before = repo.git("config", "--file", ".git/config", "--list")
    tree = _make(repo)
    repo.git("config", "extensions.preciousObjects", "true")
    _clean(repo, tree)
    assert (
        repo.git("config", "--file", ".git/config", "--list") == f"{before}\nextensions.preciousobjects=true"
    )
    assert OURS not in _config(repo).read_bytes()


def test_an_extension_that_the_user_takes_back_is_gone(repo: Repo) -> None:
    """And so is our remark."""
    before = _config(repo).read_bytes()
    tree = _make(repo)
    repo.git("config", "--unset", "extensions.worktreeConfig")
    _clean(repo, tree)
    assert _config(repo).read_bytes() == before


def test_an_extension_that_another_worktree_needs_stays(repo: Repo) -> None:
    """As ``git sparse-checkout`` does; it goes when no worktree needs it any more."""
    before = _config(repo).read_bytes()
    tree = _make(repo)
    repo.git("config", "--worktree", "user.name", "Main")
    _clean(repo, tree)
    assert repo.git("config", "user.name") == "Main"
    (repo.path / ".git/config.worktree").unlink()
    _clean(repo, _make(repo))
    assert _config(repo).read_bytes() == before


def test_several_at_once(hooked: Repo) -> None:
    """Made, and removed."""
    before = _config(hooked).read_bytes()
    with ThreadPoolExecutor(6) as pool:
        trees = list(pool.map(lambda _: _make(hooked), range(6)))
        assert [_fails(tree) for tree in trees] == [False] * 6
        assert _config(hooked).read_bytes().count(OURS) == 1
        list(pool.map(lambda tree: _clean(hooked, tree), trees))
    assert _config(hooked).read_bytes() == before


def test_a_bare_shared_configuration_is_a_reason_not_to(tmp_path: Path) -> None:
    """Every worktree would become bare, or none."""
    make_repo(tmp_path / "first")
    subprocess.run(("git", "clone", "-q", "--bare", "first", "bare"), cwd=tmp_path, check=True)
    subprocess.run(("git", "worktree", "add", "-q", "../work", "main"), cwd=tmp_path / "bare", check=True)
    before = (tmp_path / "bare/config").read_bytes()
    result = command("worktree", "create", "fix it", cwd=tmp_path / "work")
    assert (result.status, "core.bare" in json.loads(result.stdout)["error"]["message"]) == (5, True)
    assert (tmp_path / "bare/config").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == [".git", "file.txt"]


def test_a_shared_work_tree_is_a_reason_not_to(repo: Repo) -> None:
    """All worktrees would get it."""
    repo.git("config", "core.worktree", str(repo.path))
    assert "core.worktree" in _refused(repo)


def test_a_file_that_git_does_not_read_yet_is_a_reason_not_to(repo: Repo) -> None:
    """It would come into force."""
    repo.write(".git/config.worktree", "[user]\n\tname = Old\n")
    assert "config.worktree" in _refused(repo)


def test_a_configuration_that_another_process_changes(repo: Repo) -> None:
    """Git's own lock is waited for, then respected; nothing is left."""
    repo.write(".git/config.lock")
    result = command("worktree", "create", "fix it", cwd=repo.path)
    assert (result.status, json.loads(result.stdout)["error"]["code"]) == (6, "conflict")
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_a_worktree_that_git_removed_is_tidied_up_after(repo: Repo) -> None:
    """With the next one of ours that goes."""
    before = _config(repo).read_bytes()
    one, two = _make(repo), _make(repo)
    repo.git("worktree", "remove", "-f", "-f", one.path)
    _clean(repo, two)
    assert _config(repo).read_bytes() == before


def test_a_lock_that_one_of_us_left_is_no_obstacle(repo: Repo) -> None:
    """Killed while it changed the configuration; that of anybody else stays."""
    lock = repo.path / ".git" / "config.lock"
    lock.write_text("ralph-wrap\n")
    before = (repo.path / ".git" / "config").read_bytes()
    made = command("worktree", "create", "x", cwd=repo.path)
    assert made.status == 0, made.stdout
    assert not lock.exists()
    path = repo.path / ".ralph" / "worktrees" / "quick-build-x"
    assert command("worktree", "cleanup", path, cwd=repo.path).status == 0
    assert (repo.path / ".git" / "config").read_bytes() == before

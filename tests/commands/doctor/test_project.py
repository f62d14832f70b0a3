"""What would go wrong with a repository; each check is seen to fail, and to pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.commands.doctor import examine
from tests.support.damage import loose_path
from tests.support.git_shim import old_git, path_without_git
from tests.support.needs import CAPABILITY_DROPS, OTHER_USERS, PROGRAM_FOR_OTHERS, needs, needs_other_users
from tests.support.repo import Repo, make_repo
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
from tests.commands.doctor.world import checked, failing, verdict_of, with_environ

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

UID, GID = 54321, 54322
"""A user without a passwd entry."""


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Return a directory that everybody can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="test-doctor-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


# Git and the repository


def test_git_is_there(repo: Repo, host: Path) -> None:
    """With its version."""
    version = repo.git("version").split()[2]
    assert checked(examine(repo.path, os.environ, host), "git")[:3] == ("git", True, version)


def test_what_is_broken_in_the_repository(repo: Repo, host: Path) -> None:
    """A ref of ours without its commit fails, because git gc does; files of a killed save are noted."""
    whole = examine(repo.path, os.environ, host)
    assert [verdict_of(whole, name)[0] for name in ("refs", "packs")] == ["ok", "ok"]
    tip = repo.git("commit-tree", "-m", "lost", "HEAD^{tree}")
    repo.git("update-ref", "refs/heads/ralph/00bb-wip", tip)
    loose_path(repo, tip).unlink()
    (repo.path / ".git/objects/ralph-wrap-save-20260102T030405Z-00bb-00aa11bb").mkdir()
    found = examine(repo.path, os.environ, host)
    refs, packs = checked(found, "refs"), checked(found, "packs")
    assert refs.fix == f"git -C {repo.path} update-ref --no-deref -d refs/heads/ralph/00bb-wip"
    assert packs.fix == "ralph-wrap sweep"
    assert (refs.verdict, packs.verdict) == ("FAIL", "note")


def test_no_git(repo: Repo, host: Path, tmp_path: Path) -> None:
    """Then nothing is said about the repository."""
    environ = with_environ(PATH=path_without_git(tmp_path / "bin"))
    found = examine(repo.path, environ, host)
    assert (verdict_of(found, "git"), failing(found)) == (("FAIL", "git is not installed"), ["git"])


def test_git_that_is_too_old(repo: Repo, tmp_path: Path) -> None:
    """It has an exit status of its own."""
    path = old_git(tmp_path / "shim", "2.14.6")
    result = command("doctor", "--json", cwd=repo.path, env={"PATH": path})
    envelope = json.loads(result.stdout)
    assert (envelope["error"]["code"], result.status) == ("git_too_old", 8)
    assert [row["found"] for row in envelope["data"] if row["check"] == "git"] == [
        "git 2.14.6 is older than 2.15"
    ]


@pytest.mark.parametrize(("version", "verdict"), [("2.15.0", "note"), ("2.30.9", "note"), ("2.31.0", "ok")])
def test_git_that_cannot_switch_hooks_off(
    repo: Repo, host: Path, tmp_path: Path, version: str, verdict: str
) -> None:
    """Worth a note, no failure."""
    path = old_git(tmp_path / "shim", version)
    check = checked(examine(repo.path, with_environ(PATH=path), host), "git")
    assert (check.verdict, check.found.startswith(version), "hooks" in check.found) == (
        verdict,
        True,
        verdict == "note",
    )


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.29.3", "; the oldest git that ralph-wrap is tested with is 2.30"),
        ("2.30.0", ""),
        ("2.55.9", ""),
        ("2.56.0", "; the newest git that ralph-wrap is tested with is 2.55"),
        ("3.0.0", "; the newest git that ralph-wrap is tested with is 2.55"),
    ],
)
def test_a_git_that_is_not_tested(repo: Repo, host: Path, tmp_path: Path, version: str, words: str) -> None:
    """An older and a newer git than the tested ones is worth a note that says which those are."""
    path = old_git(tmp_path / "shim", version)
    check = checked(examine(repo.path, with_environ(PATH=path), host), "git")
    assert check.found.partition(" is tested with")[2] == words.partition(" is tested with")[2]
    assert check.found.endswith(words)
    assert not words or (check.verdict, bool(check.fix)) == ("note", True)


def test_no_repository(tmp_path: Path) -> None:
    """It has an exit status of its own, and what does not need a repository is checked all the same."""
    plain = tmp_path / "plain"
    plain.mkdir()
    result = command("doctor", "--json", cwd=plain)
    envelope = json.loads(result.stdout)
    assert (envelope["error"]["code"], result.status) == ("not_a_repository", 3)
    rows = {row["check"]: row for row in envelope["data"]}
    assert rows["repository"]["found"] == f"{plain} is not in a git repository"
    assert [name for name in (".ralph", "locks", "repository lock") if name in rows] == [".ralph", "locks"]
    assert list(plain.iterdir()) == []


def test_a_repository_without_a_checkout(tmp_path: Path, host: Path) -> None:
    """What keeps a session from a worktree fails, in the same words."""
    bare = tmp_path / "bare"
    make_repo(tmp_path / "source").git("clone", "-q", "--bare", ".", bare)
    found = examine(bare, os.environ, host)
    assert verdict_of(found, "repository") == (
        "FAIL",
        f"{bare} is in a bare repository, not in a checkout of it",
    )
    assert found.problem is not None
    assert found.problem.exit_code == 1


def test_no_commit_yet(tmp_path: Path, host: Path) -> None:
    """There is nothing to branch from."""
    empty = make_repo(tmp_path / "empty", empty=True)
    found = examine(empty.path, os.environ, host)
    assert (verdict_of(found, "commit"), failing(found)) == (
        ("FAIL", "the repository has no commit yet"),
        ["commit"],
    )


def test_a_commit_is_there(repo: Repo, host: Path) -> None:
    """The one that sessions start from."""
    assert verdict_of(examine(repo.path, os.environ, host), "commit") == ("ok", repo.head)


def test_a_configuration_that_cannot_be_read(repo: Repo, host: Path) -> None:
    """No session would start."""
    repo.write(".ralph/config.toml", "max_iterations = ")
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["configuration"]
    assert "is not valid TOML" in checked(found, "configuration").found
    repo.write(".ralph/config.toml", "max_iterations = 3")
    assert verdict_of(examine(repo.path, os.environ, host), "configuration") == ("ok", "can be read")


def test_commands_without_approval(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal no session starts. Commands that are approved, implied or never run do no harm."""
    name = "trust"
    assert verdict_of(examine(repo.path, os.environ, host), name) == (
        "ok",
        "the project decides nothing but limits",
    )
    repo.write(".ralph/config.toml", 'setup = "npm ci"\n')
    found = examine(repo.path, os.environ, host)
    assert verdict_of(found, name) == ("FAIL", "setup: not approved")
    assert (failing(found), checked(found, name).fix) == ([name], "ralph-wrap trust")
    unused = with_environ(RALPH_WRAP_ISOLATION="off")
    assert verdict_of(examine(repo.path, unused, host), name)[0] == "ok"
    repo.write(".ralph/config.toml", 'setup = "npm ci"\n')
    implied = examine(repo.path, with_environ(RALPH_TRUST="1"), host)
    assert verdict_of(implied, name) == ("ok", "setup: approved by RALPH_TRUST=1")
    assert command("trust", cwd=repo.path).status == 0
    assert verdict_of(examine(repo.path, os.environ, host), name) == ("ok", "setup: approved")
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(repo.path / "state"))
    assert verdict_of(examine(repo.path, os.environ, host), name)[0] == "FAIL"


def test_what_only_clean_obeys_needs_approval_too(repo: Repo, host: Path) -> None:
    """No session depends on it, but clean refuses without the approval."""
    repo.write(".ralph/config.toml", 'keep_sessions = "1d"\n')
    found = examine(repo.path, os.environ, host)
    assert verdict_of(found, "trust") == ("FAIL", "keep_sessions: not approved")
    assert command("clean", cwd=repo.path).status == 125
    assert command("trust", cwd=repo.path).status == 0
    assert verdict_of(examine(repo.path, os.environ, host), "trust") == ("ok", "keep_sessions: approved")
    assert command("clean", cwd=repo.path).status == 0


def test_a_base_that_is_no_commit(repo: Repo, host: Path) -> None:
    """Sessions look that up before they begin."""
    found = examine(repo.path, with_environ(RALPH_WRAP_BASE="nothing"), host)
    assert verdict_of(found, "base") == ("FAIL", "base 'nothing' names no commit")


def test_the_identity_of_commits(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If git has no identity, that is worth a note: a commit still gets one."""
    assert verdict_of(examine(repo.path, os.environ, host), "committer") == ("ok", "git has an identity")
    for role in ("AUTHOR", "COMMITTER"):
        for part in ("NAME", "EMAIL"):
            monkeypatch.delenv(f"GIT_{role}_{part}")
    repo.git("config", "user.useConfigOnly", "true")
    assert verdict_of(examine(repo.path, os.environ, host), "committer") == (
        "note",
        "git has no identity here: the committer is ralph-wrap",
    )


def test_a_repository_that_is_damaged(repo: Repo, host: Path) -> None:
    """What cannot be looked at fails, in git's words; the rest is looked at all the same."""
    (repo.path / ".git/index").write_bytes(b"garbage")
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["disk"]
    assert "index file" in checked(found, "disk").found


# Whose files these are

AS_SOMEBODY = """
import hashlib, json, os, sys, tempfile, tomllib
from pathlib import Path
from ralph_wrap.commands import doctor
os.setresgid(*[int(sys.argv[3])] * 3)
os.setresuid(*[int(sys.argv[2])] * 3)
found = doctor.examine(Path(sys.argv[1]), os.environ)
print(json.dumps({check.check: [check.verdict, check.found, check.fix] for check in found.checks}))
"""


def _as_another_user(
    directory: Path, *under: str, uid: int = UID, environ: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Examine a directory as another user, who did not start this Python, and return the findings."""
    done = subprocess.run(
        (*under, sys.executable, "-c", AS_SOMEBODY, directory, str(uid), str(GID if uid else 0)),
        env={**os.environ, "HOME": "/", **(environ or {})},
        capture_output=True,
        check=True,
        cwd=directory,
    )
    loaded: dict[str, list[str]] = json.loads(done.stdout)
    return loaded


def _given(repo: Repo) -> Path:
    subprocess.run(("chown", "-R", f"{UID}:{GID}", repo.path), check=True)
    return repo.path


def test_the_owner_of_the_project_runs_this(repo: Repo, host: Path) -> None:
    """As it should be."""
    found = f"user id {os.geteuid()} runs this and owns {repo.path}"
    assert verdict_of(examine(repo.path, os.environ, host), "owner") == ("ok", found)


@needs_other_users
def test_root_becomes_the_owner(reachable: Path) -> None:
    """As a session does; all checks are the owner's, with a Python that the owner could not read."""
    path = _given(make_repo(reachable / "project"))
    envelope = json.loads(command("doctor", "--json", "-C", path, cwd=reachable).stdout)
    rows = {row["check"]: row for row in envelope["data"] if row["check"] != "PID 1"}
    assert (
        rows["owner"]["found"] == f"user id {UID} owns {path}; a session that root starts becomes this user"
    )
    assert [row for row in rows.values() if not row["ok"]] == []
    assert {entry.lstat().st_uid for entry in path.rglob("*")} == {UID}


@needs(OTHER_USERS, CAPABILITY_DROPS)
def test_root_that_cannot_become_the_owner(reachable: Path) -> None:
    """A container without capabilities."""
    path = _given(make_repo(reachable / "project"))
    helpless = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-all")
    verdict, said, fix = _as_another_user(path, *helpless, uid=0)["owner"]
    assert (verdict, said) == (
        "FAIL",
        f"cannot become user id {UID}, the owner of {path}: Operation not permitted",
    )
    assert f"docker run --user {UID}:{GID}" in fix


@needs(PROGRAM_FOR_OTHERS)
def test_a_repository_of_another_user(reachable: Path) -> None:
    """Git refuses it, unless its configuration allows it."""
    path = make_repo(reachable / "project").path
    found = _as_another_user(path)
    assert found["owner"][:2] == [
        "note",
        f"user id {UID} runs this, {path} belongs to user id {os.geteuid()}",
    ]
    assert found["repository"][0] == "FAIL"
    assert "dubious ownership" in found["repository"][1]
    assert "safe.directory" in found["repository"][2]
    safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    found = _as_another_user(path, environ=safe)
    assert found["repository"][0] == "ok"
    assert found["repository files"][:2] == ["FAIL", f"{path}/.git cannot be written by user id {UID}"]
    assert found[".ralph"][:2] == ["FAIL", f"{path} cannot be written by user id {UID}"]
    assert found["ignore rule"][:2] == ["FAIL", f"{path}/.gitignore cannot be written"]
    assert found["locks"][0] == "FAIL"


@needs(PROGRAM_FOR_OTHERS)
def test_what_root_has_left_in_the_repository(reachable: Path) -> None:
    """A directory of branches that its owner cannot write."""
    repo = make_repo(reachable / "project")
    path = _given(repo)
    (path / ".git/refs/heads/ralph").mkdir()
    verdict, said, fix = _as_another_user(path)["repository files"]
    assert (verdict, said, fix) == (
        "FAIL",
        f"{path}/.git/refs/heads/ralph cannot be written by user id {UID}",
        f"sudo chown -R {UID}:{GID} {path}/.git",
    )


def test_a_filter_without_approval(repo: Repo, host: Path) -> None:
    """A session refuses to start for the same reason, and has the same way out."""
    assert verdict_of(examine(repo.path, os.environ, host), "filters")[0] == "ok"
    repo.git("config", "filter.crypt.clean", "cat")
    repo.write(".gitattributes", "*.txt filter=crypt\n")
    repo.commit("filtered")
    found = checked(examine(repo.path, os.environ, host), "filters")
    assert (found.verdict, "applies to file.txt" in found.found) == ("FAIL", True)
    assert found.fix == f"to see and approve it: ralph-wrap trust -C {repo.path}"


@pytest.mark.parametrize(("required", "verdict"), [("true", "FAIL"), ("false", "note")])
def test_a_filter_that_is_not_installed(repo: Repo, host: Path, required: str, verdict: str) -> None:
    """If git requires it, no worktree is possible; otherwise the files stay as git stores them."""
    # git add cleans file.txt again if its entry is racy (https://git-scm.com/docs/racy-git): that must work.
    repo.git("config", "--global", "filter.big.clean", "cat")
    repo.git("config", "--global", "filter.big.smudge", "nowhere-big smudge %f")
    repo.git("config", "--global", "filter.big.required", required)
    assert verdict_of(examine(repo.path, os.environ, host), "filters")[0] == "ok"
    repo.write(".gitattributes", "*.txt filter=big\n")
    repo.commit("filtered")
    words = "the filter big of file.txt needs nowhere-big, which is not installed"
    assert verdict_of(examine(repo.path, os.environ, host), "filters") == (verdict, words)

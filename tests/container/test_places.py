"""Where HOME and temporary files of a session are in a container, and what happens if there is no place."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.container.box import PROJECT, Ended, StartBox
from tests.support.needs import needs_other_users
from tests.support.repo import Repo
from tests.support.trees import owners

pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(120, func_only=True),  # the first test of a worker may wait for the image to be built
    needs_other_users,
]

OWNER, GROUP = 4321, 4322
"""The owner of the project: a user without a passwd entry."""

HOME = f"/var/lib/ralph-wrap/home/{OWNER}"

# Keeps a login, as agents do, and commits all that it finds in its workspace.
KEEPS_A_LOGIN = """
mkdir -p "$HOME/.agent" && echo secret >"$HOME/.agent/login"
echo one >one.txt && git add -A && git commit --quiet --message=one
echo "$HOME"
"""


def session(script: str, *options: str) -> list[str]:
    """Return the command of a session of one iteration whose agent is a shell script."""
    return ["ralph-wrap", "run", "--max-iterations=1", *options, "--", "/bin/sh", "-c", script]


@pytest.fixture
def given(repo: Repo) -> Repo:
    """Return a repository that belongs to OWNER."""
    subprocess.run(["chown", "-R", f"{OWNER}:{GROUP}", repo.path], check=True)
    repo.git("config", "--global", "safe.directory", "*")
    return repo


def error_of(ended: Ended) -> dict[str, Any]:
    """Return the one error of a command that failed itself, and warned of nothing."""
    assert (ended.status, ended.stdout) == (125, ""), ended.stderr
    (line,) = [line for line in ended.narration() if line["level"] in {"warning", "error"}]
    assert line["level"] == "error"
    return line


def home_check(ended: Ended) -> dict[str, Any]:
    """Return what `doctor` says of the home."""
    checks: list[dict[str, Any]] = json.loads(ended.stdout)["data"]
    (check,) = [check for check in checks if check["check"] == "home"]
    return check


@pytest.mark.parametrize("user", ["0:0", f"{OWNER}:{GROUP}"], ids=["by root", "by the owner"])
def test_a_read_only_root_without_a_place_is_an_error(start_box: StartBox, given: Repo, user: str) -> None:
    """It names the option of the mount, nothing is made in the project, and `doctor` finds the same."""
    before = sorted(given.path.rglob("*"))
    box = start_box(given.path, read_only=True)
    error = error_of(box.run(*session(KEEPS_A_LOGIN), user=user))
    assert error["message"] == (
        f"user id {OWNER} has no home directory, and none can be made ({HOME}: Read-only file system;"
        " /tmp: Read-only file system; /var/tmp: Read-only file system)"
    )
    assert error["hint"].startswith("in a container: docker run --tmpfs /tmp:exec")
    examined = box.run("ralph-wrap", "doctor", "--json", user=user)
    check = home_check(examined)
    assert (examined.status, check["ok"]) == (1, False)
    assert (check["found"], check["fix"]) == (error["message"], error["hint"])
    assert sorted(given.path.rglob("*")) == before


def test_the_mount_of_the_hint_is_enough(start_box: StartBox, given: Repo) -> None:
    """With it a session is isolated. It says that HOME, outside the project, is a temporary directory."""
    box = start_box(given.path, read_only=True, tmpfs={"/tmp": "exec"})
    ended = box.run(*session(KEEPS_A_LOGIN, "--isolation=require"))
    assert (ended.status, ended.stdout) == (0, f"/tmp/ralph-wrap-home-{OWNER}\n"), ended.stderr
    (warning,) = [line for line in ended.narration() if line["level"] == "warning"]
    assert warning["event"] == "home.temporary"
    assert f"HOME is /tmp/ralph-wrap-home-{OWNER}" in warning["message"]
    assert warning["hint"] == f"docker run -v DIRECTORY:{HOME}"
    (branch,) = [name for name in given.branches() if name.startswith("ralph/")]
    assert given.git("diff", "--name-only", "main", branch) == "one.txt"


def test_a_full_place_is_an_error(start_box: StartBox, given: Repo) -> None:
    """Permissions alone do not show that a disk is full."""
    box = start_box(given.path, read_only=True, tmpfs={"/tmp": "exec,size=64k", "/var/tmp": "size=64k"})
    box.run("sh", "-c", "for d in /tmp /var/tmp; do head -c 1M /dev/zero >$d/full; done")
    error = error_of(box.run(*session(KEEPS_A_LOGIN)))
    assert "/tmp: No space left on device" in error["message"]
    assert error["hint"] == "make room there: df -h /tmp /var/tmp"
    assert not (given.path / ".ralph").exists()


@pytest.mark.parametrize("place", [".claude", ".config/gh"])
def test_a_mounted_login_is_in_the_home(start_box: StartBox, given: Repo, tmp_path: Path, place: str) -> None:
    """The engine makes the directories above it as root; the owner of the project gets them."""
    login = tmp_path / "login"
    login.mkdir()
    (login / "token").write_text("secret\n")
    subprocess.run(["chown", "-R", f"{OWNER}:{GROUP}", login], check=True)
    box = start_box(given.path, mounts={login: f"{HOME}/{place}"})
    script = f'cat "$HOME/{place}/token" && touch "$HOME/{place}/../new" && echo "$HOME"'
    ended = box.run(*session(script))
    assert (ended.status, ended.stdout) == (0, f"secret\n{HOME}\n"), ended.stderr
    assert [line for line in ended.narration() if line["level"] == "warning"] == []
    assert owners(login) == {(OWNER, GROUP)}


def test_a_login_that_no_home_can_have_is_an_error(start_box: StartBox, given: Repo, tmp_path: Path) -> None:
    """With `docker run --user` nobody can give the directory away; no other home hides the login."""
    login = tmp_path / "login"
    login.mkdir()
    box = start_box(given.path, user=f"{OWNER}:{GROUP}", mounts={login: f"{HOME}/.claude"})
    error = error_of(box.run(*session(KEEPS_A_LOGIN)))
    assert error["message"] == (
        f"{HOME} cannot be the home directory (not a directory of user id {OWNER}),"
        f" so an agent would not find {HOME}/.claude"
    )
    assert error["hint"] == f"docker run -v DIRECTORY:{HOME}, where DIRECTORY belongs to user id {OWNER}"


def test_a_home_with_files_of_root_is_not_given_away(
    start_box: StartBox, given: Repo, tmp_path: Path
) -> None:
    """Somebody has put them there on purpose."""
    login = tmp_path / "login"
    login.mkdir()
    box = start_box(given.path, mounts={login: f"{HOME}/.claude"})
    box.run("touch", f"{HOME}/of-root")
    assert f"{HOME} cannot be the home directory" in error_of(box.run(*session("true")))["message"]
    assert box.run("stat", "--format=%u", HOME).stdout == "0\n"


def test_a_git_directory_below_the_root_of_the_file_system(start_box: StartBox, repo: Repo) -> None:
    """The directory above it has everything in it; a session is isolated all the same."""
    box = start_box(repo.path)
    box.run("git", "config", "--global", "safe.directory", "*")
    moved = "mv .git /app.git && echo 'gitdir: /app.git' >.git"
    assert box.run("sh", "-c", moved).status == 0
    ended = box.run(*session("git rev-parse --show-toplevel", "--isolation=require"))
    assert ended.status == 0, ended.stderr
    assert ended.stdout.startswith(f"{PROJECT}/.ralph/worktrees/")

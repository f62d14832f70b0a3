"""What would go wrong here; ``ralph-wrap doctor``. Each check is seen to fail, and to pass."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.agents import NAMES, known
from ralph_wrap.commands.doctor import Diagnosis, DoctorCheck, container, examine, probes, storage
from ralph_wrap.interfaces import init
from ralph_wrap.state import project
from ralph_wrap.system import files, process_tree
from tests.support.listing import listing
from tests.support.mounts import mounted, needs_mounts, read_only
from tests.support.repo import Repo, make_repo
from tests.support.sessions import command
from tests.support.shim import path_without_git, shim_git

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

UID, GID = 54321, 54322
"""Somebody without a passwd entry."""

IN_THE_REPOSITORY = [
    *(
        "git",
        "repository",
        "commit",
        "owner",
        ".ralph",
        "configuration",
        "trust",
        "repository files",
        "branch names",
    ),
    *("ignore rule", "committer", "disk"),
]
OF_THE_MACHINE = ["file events", "subreaper", "mounts", "PID 1", "stop time-out"]
AGENTS = [f"agent {name}" for name in NAMES]

HOST = "pid:[4026531836]"
OWN = "pid:[4026532201]"

INIT = ("/usr/bin/python3", "/usr/local/bin/ralph-wrap", "init")


class World:
    """A file system with what the kernel and an engine say of the processes.

    Arguments:
        root: a new directory.

    """

    def __init__(self, root: Path, namespace: str = HOST, mark: str = "", cgroup: str = "0::/\n") -> None:
        self.root = root
        (root / "proc/self/ns").mkdir(parents=True)
        (root / "proc/self/ns/pid").symlink_to(namespace)
        self.process(1, 0, "/sbin/init")
        (root / "proc/1/cgroup").write_text(cgroup)
        if mark:
            (root / mark).parent.mkdir(exist_ok=True)
            (root / mark).touch()

    def process(self, pid: int, parent: int, *words: str, **environ: str) -> None:
        """Have a process."""
        place = self.root / "proc" / str(pid)
        place.mkdir(exist_ok=True)
        (place / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (place / "stat").write_text(f"{pid} (a ) name) S {parent} 1 1" + " 0" * 15 + f" {pid}")
        (place / "environ").write_text("".join(f"{name}={value}\0" for name, value in environ.items()))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return what a host looks like."""
    return World(tmp_path / "host").root


@pytest.fixture
def box(tmp_path: Path) -> World:
    """Return what a container looks like."""
    return World(tmp_path / "box", OWN, ".dockerenv")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Return a directory that everybody can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="test-doctor-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def checked(found: Diagnosis, name: str) -> DoctorCheck:
    """Return the one check of a name."""
    [check] = [check for check in found.checks if check.check == name]
    return check


def failing(found: Diagnosis) -> list[str]:
    """Return the names of the checks that failed."""
    return [check.check for check in found.checks if not check.ok]


def told(found: Diagnosis, name: str) -> tuple[str, str]:
    """Return the verdict on a check, and what it found."""
    check = checked(found, name)
    return check.verdict, check.found


def with_environ(**changed: str) -> dict[str, str]:
    """Return our environment with some variables changed."""
    return {**os.environ, **changed}


# The whole


def test_all_is_well(repo: Repo, host: Path) -> None:
    """On a host, in a repository with a commit: every check is there, and none fails."""
    found = examine(repo.path, os.environ, host)
    assert [check.check for check in found.checks] == [
        *IN_THE_REPOSITORY,
        *("locks", "repository lock"),
        *OF_THE_MACHINE,
        *AGENTS,
        "python",
    ]
    assert (failing(found), found.problem) == ([], None)


def test_all_checks_say_why(repo: Repo, host: Path) -> None:
    """And what has failed says what mends it, in one line each."""
    repo.git("branch", "ralph")
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["branch names"]
    assert all(check.why and (check.ok or check.fix) for check in found.checks)
    assert "\n" not in "".join(text for check in found.checks for text in (check.why, check.found, check.fix))


def test_what_fails_is_the_problem(repo: Repo, box: World) -> None:
    """By name, with the status of what ralph-wrap itself cannot do."""
    repo.git("branch", "ralph")
    problem = examine(repo.path, os.environ, box.root).problem
    assert problem is not None
    number = len(IN_THE_REPOSITORY) + 2 + len(OF_THE_MACHINE) + len(AGENTS) + 1
    assert (problem.message, problem.exit_code) == (
        f"2 of {number} checks failed: branch names, PID 1",
        125,
    )


def test_nothing_is_changed(repo: Repo, tmp_path: Path) -> None:
    """Neither in the project, whether sessions were there or not, nor in HOME, nor among temporary files."""
    for made in (".git/worktrees", ".ralph/run/agents"):
        before = [listing(place) for place in (repo.path, tmp_path / "home")]
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        assert command("doctor", cwd=repo.path, env={"TMPDIR": str(temporary)}).stderr == ""
        assert [listing(place) for place in (repo.path, tmp_path / "home")] == before
        temporary.rmdir()
        (repo.path / made).mkdir(parents=True)


def test_the_answer_is_one_line_for_each_check(repo: Repo) -> None:
    """A failing one has its reason and its cure below; nothing in it moves the cursor."""
    repo.git("branch", "ralph")
    repo.write(".ralph/config.toml", '"a\\u001b[2J" = 1')
    result = command("doctor", cwd=repo.path)
    lines = result.stdout.decode().splitlines()
    assert (result.status, result.stderr) == (125, "")
    place = lines.index("FAIL  branch names: branch ralph is in the way of ralph/<id>")
    assert lines[place + 1 : place + 3] == [
        "      why: a session creates its branch ralph/<id> and registers its worktree",
        "      fix: git branch -m ralph ANOTHER-NAME",
    ]
    assert {line[:6] for line in lines} <= {"ok    ", "FAIL  ", "note  ", "      "}
    assert len([line for line in lines if line[0] != " "]) == len(lines) - 2 * sum(
        line.startswith("FAIL") for line in lines
    )
    assert "\x1b" not in result.stdout.decode()


def test_json_is_the_envelope(repo: Repo) -> None:
    """With the checks, and, if one failed, the error that belongs to the exit status."""
    repo.git("branch", "ralph")
    result = command("doctor", "--json", cwd=repo.path)
    envelope = json.loads(result.stdout)
    data, error = envelope.pop("data"), envelope.pop("error")
    assert envelope == {"version": 1, "success": False, "tool": "doctor"}
    assert (error["code"], result.status, result.stderr) == ("failed", 125, "")
    assert all(row.keys() == {"check", "ok", "found", "why", "fix"} for row in data)
    [row] = [row for row in data if row["check"] == "branch names"]
    assert row == {
        "check": "branch names",
        "ok": False,
        "found": "branch ralph is in the way of ralph/<id>",
        "why": "a session creates its branch ralph/<id> and registers its worktree",
        "fix": "git branch -m ralph ANOTHER-NAME",
    }


def test_a_directory_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """There is nothing to look at."""
    result = command("doctor", "-C", tmp_path / "absent", cwd=tmp_path)
    assert (result.status, result.stdout) == (2, b"")


# Git and the repository


def test_git_is_there(repo: Repo, host: Path) -> None:
    """With its version."""
    version = repo.git("version").split()[2]
    assert checked(examine(repo.path, os.environ, host), "git")[:3] == ("git", True, version)


def test_no_git(repo: Repo, host: Path, tmp_path: Path) -> None:
    """Then nothing is said about the repository."""
    environ = with_environ(PATH=path_without_git(tmp_path / "bin"))
    found = examine(repo.path, environ, host)
    assert (told(found, "git"), failing(found)) == (("FAIL", "git is not installed"), ["git"])


def test_git_that_is_too_old(repo: Repo, tmp_path: Path) -> None:
    """It has an exit status of its own."""
    path = shim_git(tmp_path / "shim", '*" version "*) echo git version 2.14.6; exit ;;')
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
    path = shim_git(tmp_path / "shim", f'*" version "*) echo git version {version}; exit ;;')
    check = checked(examine(repo.path, with_environ(PATH=path), host), "git")
    assert (check.verdict, check.found.startswith(version), "hooks" in check.found) == (
        verdict,
        True,
        verdict == "note",
    )


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
    assert told(found, "repository") == (
        "FAIL",
        f"{bare} is a bare repository: it has no checkout to work in",
    )
    assert found.problem is not None
    assert found.problem.exit_code == 125


def test_no_commit_yet(tmp_path: Path, host: Path) -> None:
    """There is nothing to branch from."""
    empty = make_repo(tmp_path / "empty", empty=True)
    found = examine(empty.path, os.environ, host)
    assert (told(found, "commit"), failing(found)) == (
        ("FAIL", "the repository has no commit yet"),
        ["commit"],
    )


def test_a_commit_is_there(repo: Repo, host: Path) -> None:
    """The one that sessions start from."""
    assert told(examine(repo.path, os.environ, host), "commit") == ("ok", repo.head)


def test_a_configuration_that_cannot_be_read(repo: Repo, host: Path) -> None:
    """No session would start."""
    repo.write(".ralph/config.toml", "max_iterations = ")
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["configuration"]
    assert "is not valid TOML" in checked(found, "configuration").found
    repo.write(".ralph/config.toml", "max_iterations = 3")
    assert told(examine(repo.path, os.environ, host), "configuration") == ("ok", "can be read")


def test_commands_that_nobody_has_approved(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal no session starts; approved, implied, or never run, they are in nobody's way."""
    name = "trust"
    assert told(examine(repo.path, os.environ, host), name) == ("ok", "the configuration has no commands")
    repo.write(".ralph/config.toml", 'setup = "npm ci"\n')
    found = examine(repo.path, os.environ, host)
    assert told(found, name) == ("FAIL", "setup: configured, but not approved")
    assert (failing(found), checked(found, name).fix) == ([name], "ralph-wrap trust")
    repo.write(".ralph/config.toml", 'setup = "npm ci"\nisolation = "off"\n')
    assert told(examine(repo.path, os.environ, host), name)[0] == "ok"
    repo.write(".ralph/config.toml", 'setup = "npm ci"\n')
    implied = examine(repo.path, with_environ(RALPH_TRUST="1"), host)
    assert told(implied, name) == ("ok", "setup: approved by RALPH_TRUST=1")
    assert command("trust", cwd=repo.path).status == 0
    assert told(examine(repo.path, os.environ, host), name) == ("ok", "setup: approved")
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(repo.path / "state"))
    assert told(examine(repo.path, os.environ, host), name)[0] == "FAIL"


def test_a_base_that_is_no_commit(repo: Repo, host: Path) -> None:
    """Sessions look that up before they begin."""
    found = examine(repo.path, with_environ(RALPH_WRAP_BASE="nothing"), host)
    assert told(found, "base") == ("FAIL", "base 'nothing' names no commit")


def test_who_commits(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If git does not know, that is worth a note: somebody is found."""
    assert told(examine(repo.path, os.environ, host), "committer") == ("ok", "git has an identity")
    for role in ("AUTHOR", "COMMITTER"):
        for part in ("NAME", "EMAIL"):
            monkeypatch.delenv(f"GIT_{role}_{part}")
    repo.git("config", "user.useConfigOnly", "true")
    assert told(examine(repo.path, os.environ, host), "committer") == (
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


def _as_somebody(
    directory: Path, *under: str, uid: int = UID, environ: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Examine a directory as another user, who could not start this Python, and return what was found."""
    done = subprocess.run(
        (*under, sys.executable, "-c", AS_SOMEBODY, directory, str(uid), str(GID if uid else 0)),
        env={**os.environ, "HOME": "/", **(environ or {})},
        capture_output=True,
        check=True,
        cwd=directory,
    )
    loaded: dict[str, list[str]] = json.loads(done.stdout)
    return loaded


def _given(repo: Repo, uid: int = UID, gid: int = GID) -> Path:
    subprocess.run(("chown", "-R", f"{uid}:{gid}", repo.path), check=True)
    return repo.path


def test_who_owns_the_project_runs_this(repo: Repo, host: Path) -> None:
    """As it should be."""
    found = f"user id {os.geteuid()} runs this and owns {repo.path}"
    assert told(examine(repo.path, os.environ, host), "owner") == ("ok", found)


@needs_root
def test_root_becomes_the_owner(reachable: Path) -> None:
    """As a session does; all checks are the owner's, with a Python that the owner could not read."""
    path = _given(make_repo(reachable / "project"))
    envelope = json.loads(command("doctor", "--json", "-C", path, cwd=reachable).stdout)
    rows = {row["check"]: row for row in envelope["data"] if row["check"] != "PID 1"}
    assert (
        rows["owner"]["found"] == f"user id {UID} owns {path}; a session that root starts becomes this user"
    )
    assert [row for row in rows.values() if not row["ok"]] == []
    assert {place.lstat().st_uid for place in path.rglob("*")} == {UID}


@needs_root
def test_root_that_cannot_become_the_owner(reachable: Path) -> None:
    """A container without capabilities."""
    path = _given(make_repo(reachable / "project"))
    helpless = ("setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-all")
    verdict, said, fix = _as_somebody(path, *helpless, uid=0)["owner"]
    assert (verdict, said) == (
        "FAIL",
        f"cannot become user id {UID}, the owner of {path}: Operation not permitted",
    )
    assert f"docker run --user {UID}:{GID}" in fix


@needs_root
def test_a_repository_of_somebody_else(reachable: Path) -> None:
    """Git refuses it, unless it is told not to."""
    path = make_repo(reachable / "project").path
    found = _as_somebody(path)
    assert found["owner"][:2] == [
        "note",
        f"user id {UID} runs this, {path} belongs to user id {os.geteuid()}",
    ]
    assert found["repository"][0] == "FAIL"
    assert "dubious ownership" in found["repository"][1]
    assert "safe.directory" in found["repository"][2]
    safe = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    found = _as_somebody(path, environ=safe)
    assert found["repository"][0] == "ok"
    assert found["repository files"][:2] == ["FAIL", f"{path}/.git cannot be written by user id {UID}"]
    assert found[".ralph"][:2] == ["FAIL", f"{path} cannot be written by user id {UID}"]
    assert found["ignore rule"][:2] == ["FAIL", f"{path}/.gitignore cannot be written"]
    assert found["locks"][0] == "FAIL"


@needs_root
def test_what_root_has_left_in_the_repository(reachable: Path) -> None:
    """A directory of branches that its owner cannot write."""
    repo = make_repo(reachable / "project")
    path = _given(repo)
    (path / ".git/refs/heads/ralph").mkdir()
    verdict, said, fix = _as_somebody(path)["repository files"]
    assert (verdict, said, fix) == (
        "FAIL",
        f"{path}/.git/refs/heads/ralph cannot be written by user id {UID}",
        f"sudo chown -R {UID}:{GID} {path}/.git",
    )


# What a session makes


def test_records_can_be_kept(repo: Repo, host: Path) -> None:
    """Whether something was kept before or not."""
    assert told(examine(repo.path, os.environ, host), ".ralph") == ("ok", "can be created")
    (repo.path / ".ralph/run/agents").mkdir(parents=True)
    assert told(examine(repo.path, os.environ, host), ".ralph") == ("ok", "exists, and is writable")


@pytest.mark.parametrize("place", [".ralph", ".ralph/run", ".ralph/worktrees"])
def test_a_symlink_is_not_followed(repo: Repo, host: Path, tmp_path: Path, place: str) -> None:
    """Wherever it stands; nothing is made behind it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = repo.path / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    found = examine(repo.path, os.environ, host)
    assert told(found, ".ralph") == ("FAIL", f"{link} is a symlink, which is not followed")
    assert list(elsewhere.iterdir()) == []


def test_a_file_in_the_way(repo: Repo, host: Path) -> None:
    """Records need a directory."""
    path = repo.write(".ralph/run/agents")
    found = examine(repo.path, os.environ, host)
    assert told(found, ".ralph") == ("FAIL", f"{path} is in the way: it is not a directory")


def test_the_ignore_rule(repo: Repo, host: Path, tmp_path: Path) -> None:
    """There, to be added, not wanted, or not to be had."""

    def rule(**environ: str) -> tuple[str, str]:
        return told(examine(repo.path, with_environ(**environ), host), "ignore rule")

    path = repo.path / ".gitignore"
    assert rule() == ("ok", f"the first session adds .ralph/worktrees/ to {path}")
    exclude = repo.path / ".git/info/exclude"
    assert rule(RALPH_WRAP_IGNORE="exclude") == (
        "ok",
        f"the first session adds .ralph/worktrees/ to {exclude}",
    )
    assert rule(RALPH_WRAP_IGNORE="off") == ("note", ".ralph/worktrees/ is not ignored, as configured")
    path.symlink_to(tmp_path / "elsewhere")
    assert rule() == ("FAIL", f"{path} is a symlink, which git does not follow")
    path.unlink()
    path.write_text(".ralph/\n")
    assert rule() == ("ok", ".ralph/worktrees/ is ignored")


def test_a_branch_in_the_way(repo: Repo, host: Path) -> None:
    """It leaves no room for ralph/<id>, which another one does."""
    repo.git("branch", "ralphs")
    assert told(examine(repo.path, os.environ, host), "branch names")[0] == "ok"
    repo.git("branch", "ralph")
    assert told(examine(repo.path, os.environ, host), "branch names")[0] == "FAIL"


# Locks and events


def test_locks_are_tried(repo: Repo, host: Path) -> None:
    """In one process, and from a second one."""
    found = examine(repo.path, os.environ, host)
    assert told(found, "locks") == ("ok", f"a second process sees a lock in {repo.path}")
    assert told(found, "repository lock")[0] == "ok"
    (repo.path / ".ralph/run").mkdir(parents=True)
    assert (
        f"a second process sees a lock in {repo.path}/.ralph/run"
        in told(examine(repo.path, os.environ, host), "locks")[1]
    )


def test_a_lock_that_is_held_is_not_disturbed(repo: Repo, host: Path) -> None:
    """A session that makes its worktree in this moment is proof enough."""
    lock = files.try_lock(repo.path / ".git")
    assert lock is not None
    found = examine(repo.path, os.environ, host)
    lock.release()
    assert told(found, "repository lock") == ("ok", f"a session holds the lock on {repo.path}/.git")


def test_no_locks_at_all(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system without a lock manager; nothing is left of the attempt."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = listing(repo.path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["locks", "repository lock"]
    assert told(found, "locks")[1] == f"cannot lock in {repo.path}: {os.strerror(errno.ENOLCK)}"
    assert listing(repo.path) == before


def test_locks_that_nobody_else_sees(repo: Repo, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that only says yes."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    found = examine(repo.path, os.environ, host)
    assert failing(found) == ["locks", "repository lock"]
    assert told(found, "locks")[1] == f"a second process does not see a lock in {repo.path}"


def test_events_are_tried(repo: Repo) -> None:
    """What comes from elsewhere is not told on file systems that others share: a note."""
    place = project.find_project(repo.path, os.environ)
    assert probes.events(place, "ext4").verdict == ("ok" if sys.platform == "linux" else "note")
    check = probes.events(place, "virtiofs")
    assert (check.verdict, check.found) == (
        "note",
        "virtiofs reports changes of this machine, not those of other machines",
    )


@needs_mounts
def test_events_that_cannot_be_tried(repo: Repo) -> None:
    """A note, too."""
    with read_only(repo.path):
        check = probes.events(project.find_project(repo.path, os.environ), "ext4")
    assert (check.verdict, check.found) == ("note", "none: Read-only file system")


def test_orphans_come_to_their_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or not, which is a note; this process is none the wiser."""
    assert probes.subreaper().verdict == ("ok" if sys.platform == "linux" else "note")
    monkeypatch.setattr(process_tree, "become_subreaper", lambda: None)
    assert probes.subreaper().verdict == "note"


# Mounts and room


def test_a_project_that_can_be_written(repo: Repo, host: Path) -> None:
    """On one file system."""
    kind = storage.kind(repo.path)
    assert kind
    assert told(examine(repo.path, os.environ, host), "mounts") == ("ok", f"{kind}, writable")


@needs_mounts
@pytest.mark.parametrize("part", ["", "/.git"])
def test_a_project_that_is_read_only(repo: Repo, host: Path, part: str) -> None:
    """Or its repository."""
    with read_only(Path(f"{repo.path}{part}")) as path:
        found = examine(repo.path, os.environ, host)
    assert told(found, "mounts") == ("FAIL", f"{path} is mounted read-only")
    assert checked(found, "mounts").fix == "mount it without :ro"


@needs_mounts
def test_worktrees_on_another_file_system(repo: Repo, host: Path) -> None:
    """Worth a note."""
    with mounted(repo.path / ".ralph/worktrees", "-t", "tmpfs", "none") as path:
        found = examine(repo.path, os.environ, host)
    assert told(found, "mounts") == (
        "note",
        f"{path} is on another file system (tmpfs) than {repo.path}",
    )
    assert failing(found) == []


@needs_mounts
def test_a_project_that_goes_with_its_container(tmp_path: Path, host: Path, box: World) -> None:
    """A note in a container, nothing special elsewhere."""
    for part in ("lower", "upper", "work"):
        (tmp_path / part).mkdir()
    layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    with mounted(tmp_path / "merged", "-t", "overlay", "-o", layers, "none") as merged:
        repo = make_repo(merged / "project")
        verdicts = [examine(repo.path, os.environ, root) for root in (host, box.root)]
    assert [told(found, "mounts")[0] for found in verdicts] == ["ok", "note"]


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /a\\040b rw - tmpfs none rw
31 22 0:27 / /work rw master:1 - virtiofs share rw
32 31 0:28 / /work/in rw - xfs /dev/sdb rw
33 31 0:29 / /work/in rw - nfs4 server:/x rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/workshop", "ext4"),
        ("/a b/c", "tmpfs"),
        ("/work", "virtiofs"),
        ("/work/in/there", "nfs4"),
    ],
)
def test_the_kind_of_a_file_system(tmp_path: Path, path: str, kind: str) -> None:
    """By the innermost, and there the latest, mount."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    assert storage.kind(Path(path), table) == kind
    assert storage.kind(Path(path), tmp_path / "absent") == ""


def test_room_for_a_worktree(repo: Repo, host: Path) -> None:
    """What one takes is told."""
    repo.write("large", bytes(range(256)) * (3 << 12))
    repo.git("add", "large")
    verdict, said = told(examine(repo.path, os.environ, host), "disk")
    assert verdict == "ok"
    assert said.endswith(f"left on {repo.path}; a worktree takes 3.0 MiB in 2 files")


@needs_mounts
@pytest.mark.parametrize(
    ("options", "said"), [("size=8m", "2.6 MiB left"), ("size=16m,nr_inodes=90", "inodes left")]
)
def test_no_room_for_a_worktree(tmp_path: Path, host: Path, options: str, said: str) -> None:
    """Of bytes, or of inodes."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", options, "none") as small:
        repo = make_repo(small / "project")
        repo.write("large", bytes(4 << 20))
        repo.git("add", "large")
        if "nr_inodes" not in options:
            free = os.statvfs(small)
            (small / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - (26 << 20) // 10))
        found = examine(repo.path, os.environ, host)
    assert failing(found) == ["disk"]
    assert said in told(found, "disk")[1]


# PID 1


def test_a_host_is_no_container(host: Path) -> None:
    """Nothing there stops without a signal."""
    check = container.first_process(host)
    assert (check.verdict, check.found) == ("ok", "/sbin/init; this is not a container")


@pytest.mark.parametrize(
    ("namespace", "mark", "cgroup"),
    [
        (OWN, ".dockerenv", "0::/\n"),
        (OWN, "run/.containerenv", "0::/\n"),
        (OWN, "", "4:memory:/docker/0123\n0::/\n"),
        (OWN, "", "4:memory:/kubepods/besteffort/pod0\n"),
        (OWN, "", "0::/\n"),
    ],
)
def test_a_container_has_to_have_our_init(tmp_path: Path, namespace: str, mark: str, cgroup: str) -> None:
    """Whichever way it is known; with another PID 1 its sessions are killed without a word."""
    world = World(tmp_path / "world", namespace, mark, cgroup)
    world.process(1, 0, "sleep", "infinity")
    check = container.first_process(world.root)
    assert check.verdict == "FAIL"
    assert check.found.startswith("sleep infinity; this is a container (")
    assert "--entrypoint ralph-wrap IMAGE init" in check.fix
    world.process(1, 0, *INIT)
    assert container.first_process(world.root).verdict == "ok"


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (INIT, "ok"),
        ((*INIT, "--stop-timeout", "8"), "ok"),
        ((*INIT, "--", "sleep", "infinity"), "ok"),
        (("python3", "-P", "-m", "ralph_wrap", "init"), "ok"),
        (("/opt/python3.12", "-X", "dev", "/opt/ralph-wrap", "init"), "ok"),
        (("ralph-wrap", "init"), "ok"),
        (("python3", "ralph_wrap", "init"), "FAIL"),
        (("sh", "ralph-wrap", "init"), "FAIL"),
        (("/usr/bin/python3", "/usr/local/bin/ralph-wrap", "run", "--", "init"), "FAIL"),
        (("sh", "-c", "ralph-wrap init"), "FAIL"),
        (("cat", "ralph-wrap", "initial"), "FAIL"),
        (("/lib/systemd/systemd",), "FAIL"),
        ((), "FAIL"),
    ],
)
def test_our_init_is_known_by_its_command_line(box: World, words: tuple[str, ...], verdict: str) -> None:
    """And by nothing that only looks like it."""
    box.process(1, 0, *words)
    assert container.first_process(box.root).verdict == verdict


@pytest.mark.parametrize(
    ("first", "child", "verdict"),
    [
        ("/sbin/docker-init", INIT, "ok"),
        ("/usr/bin/tini", INIT, "ok"),
        ("/bin/sh", INIT, "FAIL"),
        ("/sbin/docker-init", ("sleep", "infinity"), "FAIL"),
    ],
)
def test_our_init_may_be_below_one_that_forwards(
    box: World, first: str, child: tuple[str, ...], verdict: str
) -> None:
    """A shell does not, and what was started by ``docker exec`` is below nobody."""
    box.process(1, 0, first, "--", *child)
    box.process(7, 1, *child)
    box.process(8, 0, *INIT)
    assert container.first_process(box.root).verdict == verdict


@needs_root
@pytest.mark.parametrize(("uid", "verdict"), [(0, "ok"), (UID, "FAIL")])
def test_our_init_has_to_be_allowed_to_tell(box: World, uid: int, verdict: str) -> None:
    """Only root signals the processes of everybody."""
    box.process(1, 0, *INIT)
    os.chown(box.root / "proc/1", uid, GID)
    check = container.first_process(box.root)
    cannot = f"runs as user id {uid} and cannot signal sessions of user id 0"
    assert (check.verdict, cannot in check.found) == (verdict, verdict == "FAIL")


def test_a_machine_in_a_container(tmp_path: Path) -> None:
    """Where systemd is PID 1 and no engine has left a mark, what goes down is told; elsewhere it is not."""
    world = World(tmp_path / "world", OWN)
    world.process(1, 0, "/lib/systemd/systemd", "--system")
    assert container.first_process(world.root).verdict == "ok"
    (world.root / ".dockerenv").touch()
    assert container.first_process(world.root).verdict == "FAIL"


def test_a_container_that_sees_the_host(tmp_path: Path) -> None:
    """Its first process is not PID 1, which is somebody else's."""
    check = container.first_process(World(tmp_path / "world", HOST, ".dockerenv").root)
    assert (check.verdict, "/sbin/init, which is the host's" in check.found) == ("FAIL", True)


def test_a_long_command_line_is_cut(box: World) -> None:
    """It is one line of an answer."""
    box.process(1, 0, "server", "--key", "x" * 1000)
    assert len(container.first_process(box.root).found) < 120


@pytest.mark.parametrize(
    ("words", "environ", "verdict", "said"),
    [
        ((), {}, "ok", "init gives sessions 8 s"),
        (("--stop-timeout", "5s"), {}, "ok", "init gives sessions 5 s"),
        (
            ("--stop-timeout=500ms", "--", "x"),
            {"RALPH_WRAP_STOP_TIMEOUT": "9"},
            "ok",
            "init gives sessions 0.5 s",
        ),
        (("--", "x", "--stop-timeout=60"), {}, "ok", "init gives sessions 8 s"),
        ((), {"RALPH_WRAP_STOP_TIMEOUT": "60s"}, "note", "init gives sessions 60 s"),
        (("--stop-timeout", "1m"), {}, "note", "docker stop --time 62"),
        (("--stop-timeout", "10"), {}, "note", "docker stop --time 12"),
        (("--stop-timeout", "soon"), {}, "note", "'soon' is no duration"),
    ],
)
def test_the_time_to_stop(
    box: World, words: tuple[str, ...], environ: Mapping[str, str], verdict: str, said: str
) -> None:
    """It has to be shorter than docker's, which is 10 s unless somebody has said otherwise."""
    box.process(1, 0, *INIT, *words, **environ)
    check = container.stop_timeout(box.root)
    assert (check.verdict, said in check.found) == (verdict, True), check.found


def test_nobody_has_time_without_our_init(box: World, host: Path) -> None:
    """That is what the check of PID 1 is about."""
    for root in (box.root, host):
        check = container.stop_timeout(root)
        assert (check.verdict, check.found) == ("ok", "no ralph-wrap init is running here")


def test_the_default_time_is_that_of_our_init(box: World) -> None:
    """The two know nothing of each other."""
    box.process(1, 0, *INIT)
    assert f"{init.duration(init.STOP_TIMEOUT):g} s," in container.stop_timeout(box.root).found


# Agents and Python


@pytest.mark.parametrize("name", NAMES)
def test_agents_need_not_be_there(repo: Repo, host: Path, tmp_path: Path, name: str) -> None:
    """Which ones are is told, with what installs the others: those that --agent takes, and no more."""
    program = tmp_path / "bin" / name
    path = path_without_git(tmp_path / "bin")
    found = examine(repo.path, with_environ(PATH=path), host)
    assert [check.check for check in found.checks if check.check.startswith("agent ")] == AGENTS
    assert told(found, f"agent {name}") == ("note", "not installed")
    assert checked(found, f"agent {name}").fix == known(name).install
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = examine(repo.path, with_environ(PATH=path), host)
    assert told(found, f"agent {name}") == ("ok", str(program))


def test_python_is_told(repo: Repo, host: Path) -> None:
    """For whoever reads the answer elsewhere."""
    assert told(examine(repo.path, os.environ, host), "python") == ("ok", platform.python_version())

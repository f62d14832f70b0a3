"""Where no worktree can be had, a session says so and works in the plain directory."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.state.project import unusable_registry
from ralph_wrap.state.registry import Registry
from tests.session.test_unreadable_files import NOT_EVEN_ROOT
from tests.support.git_shim import old_git, path_without_git
from tests.support.mounts import mounted, read_only
from tests.support.needs import needs_mounts
from tests.support.repo import Repo, make_repo
from tests.support.sessions import PROGRAM, Result, Session, command, run
from tests.support.terminal import Terminal
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


def _fell_back(result: Result, root: Path) -> dict[str, Any]:
    """Return the one warning of a session that worked in the plain root."""
    assert result.status == 0, result.stderr
    assert result.stdout == os.fsencode(f"{root}\n")
    [warning] = result.warnings
    assert warning["event"] == "isolation.fell_back"
    assert warning["hint"]
    return warning


def _no_trace(repo: Repo) -> None:
    assert repo.worktrees() == []
    assert [name for name in repo.branches() if name.startswith("ralph/")] == []
    assert not list(repo.path.glob(".ralph/worktrees/*"))


def test_not_a_repository(tmp_path: Path, script: Callable[[str], str]) -> None:
    """A plain directory is worked in as it is."""
    project = tmp_path / "project"
    project.mkdir()
    result = run(project, "-n", "1", "--", script("pwd"))
    warning = _fell_back(result, project)
    assert warning["message"] == (
        f"no isolation: {project} is not in a git repository; working in {project} itself"
    )
    assert result.report["fallback"] == f"{project} is not in a git repository"
    assert result.report["branch"] is None


def test_no_git(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> None:
    """A machine without git runs the loop all the same."""
    result = run(repo.path, "-n", "1", "--", script("pwd"), env={"PATH": path_without_git(tmp_path / "bin")})
    assert "git is not installed" in _fell_back(result, repo.path)["message"]
    _no_trace(repo)


def test_old_git(repo: Repo, tmp_path: Path, script: Callable[[str], str]) -> None:
    """Git before 2.15 is not tried."""
    path = old_git(tmp_path / "shim", "2.14.6")
    result = run(repo.path, "-n", "1", "--", script("pwd"), env={"PATH": path})
    assert "git 2.14.6 is older than 2.15" in _fell_back(result, repo.path)["message"]
    _no_trace(repo)


def test_bare_repository(tmp_path: Path, script: Callable[[str], str]) -> None:
    """It is no reason to work among git's own files; nothing is made."""
    bare = Repo(tmp_path / "bare")
    bare.path.mkdir()
    bare.git("init", "-q", "--bare")
    before = sorted(tmp_path.rglob("bare*"))
    result = command("run", "-n", "1", "--", script("pwd"), cwd=bare.path)
    assert (result.status, result.stdout) == (125, b"")
    assert "is in a bare repository, not in a checkout of it" in result.stderr
    assert sorted(tmp_path.rglob("bare*")) == before


def test_no_commit_yet(tmp_path: Path, script: Callable[[str], str]) -> None:
    """There is nothing to branch from."""
    repo = make_repo(tmp_path / "project", empty=True)
    result = run(repo.path, "-n", "1", "--", script("pwd"))
    assert "the repository has no commit yet" in _fell_back(result, repo.path)["message"]
    _no_trace(repo)


def test_a_branch_named_ralph(repo: Repo, script: Callable[[str], str]) -> None:
    """It leaves no room for ralph/<id>."""
    repo.git("branch", "ralph")
    warning = _fell_back(run(repo.path, "-n", "1", "--", script("pwd")), repo.path)
    assert "branch ralph is in the way" in warning["hint"]
    _no_trace(repo)


@needs_mounts
def test_a_read_only_repository(repo: Repo, script: Callable[[str], str]) -> None:
    """A message says so, and nothing is half-made."""
    repo.write(".gitignore", ".ralph/worktrees/\n")
    repo.commit("ignored already")
    with read_only(repo.path / ".git"):
        result = run(repo.path, "-n", "1", "--", script("pwd"))
    warning = _fell_back(result, repo.path)
    assert "read-only" in warning["message"].lower() + warning["hint"]
    _no_trace(repo)


@needs_mounts
@pytest.mark.parametrize("isolation", ["prefer", "off"])
def test_a_read_only_project_is_an_error(repo: Repo, script: Callable[[str], str], isolation: str) -> None:
    """A session has no place for its record; the message says what to mount."""
    with read_only(repo.path):
        result = run(repo.path, "-n", "1", "--isolation", isolation, "--", script("pwd"))
    (printed,) = result.warnings
    assert (result.status, result.stdout) == (125, b"")
    assert printed["message"] == f"{repo.path}/.ralph/run cannot be used: Read-only file system"
    assert printed["hint"].startswith("mount the project writable")


def _file_in_its_place(own: Path) -> None:
    own.write_text("in the way\n")


def _closed(own: Path) -> None:
    own.mkdir()
    own.chmod(0o555)


@pytest.mark.parametrize("make", [_file_in_its_place, _closed])
def test_the_hint_for_a_directory_that_cannot_be_used_works_as_typed(
    repo: Repo, make: Callable[[Path], None]
) -> None:
    """A file is moved aside, and modes are set."""
    make(repo.path / ".ralph")
    under = NOT_EVEN_ROOT if os.geteuid() == 0 else ()
    refused = run(repo.path, "-n", "1", "--", "true", under=under)
    (printed,) = refused.warnings
    assert (refused.status, printed["message"].partition(": ")[0]) == (
        125,
        f"{repo.path}/.ralph/run cannot be used",
    )
    subprocess.run(("sh", "-ec", printed["hint"]), check=True)
    assert run(repo.path, "-n", "1", "--", "true", under=under).status == 0


def test_a_directory_of_another_user_is_given_to_us(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names directory and user; the project is not given away with it."""
    own = repo.path / ".ralph"
    registry, error = Registry(own / "run"), PermissionError(errno.EACCES, "Permission denied")
    uid = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    made = unusable_registry(registry, error).hint
    own.mkdir()
    given = unusable_registry(registry, error).hint
    assert (made, given) == (
        f"sudo install -d -o {uid} -g {os.getegid()} {own}",
        f"sudo chown -R {uid}:{os.getegid()} {own}",
    )


@needs_mounts
def test_disk_full_half_way(tmp_path: Path, script: Callable[[str], str]) -> None:
    """The checkout fills the disk: all of it is taken back, and no agent works in the user's checkout."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=8m", "none") as small:
        repo = make_repo(small / "project")
        for number in range(3):
            repo.write(f"large-{number}", os.urandom(1 << 20))
        repo.commit("large")
        (small / "filler").write_bytes(bytes(1 << 19))
        free = os.statvfs(small).f_bavail
        result = run(repo.path, "-n", "1", "--", script("pwd"))
        (error,) = result.warnings
        assert (result.status, result.stdout, error["level"]) == (125, b"", "error"), result.stderr
        assert error["message"].endswith(f"the disk of {repo.path}/.git is full")
        assert error["hint"] == f"make room, then type the command again: df -h {repo.path}/.git"
        _no_trace(repo)
        assert os.statvfs(small).f_bavail >= free - 64
        assert repo.git("fsck", "--no-dangling") == ""


def _file(directory: Path, _outside: Path) -> None:
    directory.write_text("not a directory\n")


def _link_inside(directory: Path, _outside: Path) -> None:
    (directory.parent / "inside").mkdir()
    directory.symlink_to("inside")


def _link_out(directory: Path, outside: Path) -> None:
    outside.mkdir()
    directory.symlink_to(outside)


def _inner_link_out(directory: Path, outside: Path) -> None:
    outside.mkdir()
    directory.mkdir()
    (directory / "worktrees").symlink_to(outside)


def _dangling_link_out(directory: Path, outside: Path) -> None:
    directory.symlink_to(outside)


@pytest.mark.parametrize(
    "spoil",
    [_file, _link_inside, _link_out, _inner_link_out, _dangling_link_out],
    ids=lambda spoil: spoil.__name__.strip("_"),
)
def test_an_unusable_ralph_directory(
    repo: Repo, tmp_path: Path, script: Callable[[str], str], spoil: Callable[[Path, Path], None]
) -> None:
    """What is in its place is neither used nor touched."""
    outside = tmp_path / "outside"
    spoil(repo.path / ".ralph", outside)
    result = run(repo.path, "-n", "1", "--", script("pwd"))
    assert (result.status, result.stdout) == (125, b"")
    is_file = spoil is _file
    assert ("cannot be used" if is_file else "is a symlink, which is not followed") in result.stderr
    assert not outside.exists() or not list(outside.iterdir())
    _no_trace(repo)


def test_a_gitignore_symlink_costs_no_isolation(
    repo: Repo, tmp_path: Path, script: Callable[[str], str]
) -> None:
    """Git does not follow it, and we do not write through it: the rule goes into ``exclude``."""
    outside = tmp_path / "outside"
    outside.write_text("precious\n")
    (repo.path / ".gitignore").symlink_to(outside)
    ended = run(repo.path, "-n", "1", "--", script("pwd"))
    assert ended.status == 0
    assert ended.stdout.startswith(f"{repo.path}/.ralph/worktrees/".encode())
    assert outside.read_text() == "precious\n"
    assert ".ralph/worktrees/" in (repo.path / ".git/info/exclude").read_text()


def test_a_second_session_in_the_plain_root_is_refused(tmp_path: Path, script: Callable[[str], str]) -> None:
    """Its error names the first; --isolation off shares the directory on purpose."""
    project = tmp_path / "project"
    project.mkdir()
    with Session(project, "-n", "1", "--", script("exec cat"), stdin=subprocess.PIPE) as first:
        first.wait_for("agent.started")
        second = run(project, "-n", "1", "--", script("pwd"))
        assert second.status == 125
        refusal = second.warnings[-1]
        assert refusal["message"] == f"session {first.directory.name} works in {project} already"
        third = run(project, "-n", "1", "--isolation", "off", "--", script("pwd"))
        assert third.status == 0
        assert [warning["event"] for warning in third.warnings] == ["plain_root.shared"]
        assert first.process.stdin is not None
        assert first.finish().status == 0
    assert run(project, "-n", "1", "--", script("pwd")).status == 0


def test_isolation_off(repo: Repo, script: Callable[[str], str]) -> None:
    """No worktree, no branch, no rule, no warning."""
    result = run(repo.path, "-n", "1", "--isolation", "off", "--", script("pwd"))
    assert (result.status, result.stdout, result.warnings) == (0, os.fsencode(f"{repo.path}\n"), [])
    assert not (repo.path / ".gitignore").exists()
    _no_trace(repo)


# Where nobody falls back


def _refused(project: Path, *options: str, env: dict[str, str] | None = None) -> str:
    """Return the message of a session that was refused; nothing is made."""
    before = sorted(project.iterdir())
    result = run(project, "-n", "1", *options, "--", "pwd", env=env)
    assert (result.status, result.stdout, result.directory) == (2, b"", None)
    assert sorted(project.iterdir()) == before
    [error] = result.warnings
    assert "to let the agent work in this directory itself: --isolation off" in error["hint"]
    return str(error["message"])


@pytest.mark.parametrize("place", ["", "src"])
def test_a_home_directory_is_no_project(tmp_path: Path, place: str) -> None:
    """Nor is a directory above one."""
    above = tmp_path / "user"
    (above / place).mkdir(parents=True)
    message = _refused(above, env={"HOME": os.fspath(above / place)})
    assert "is a home directory, or has one in it" in message


def test_a_new_repository_in_a_home_directory_is_no_project(tmp_path: Path) -> None:
    """Without a commit there is no worktree."""
    repo = make_repo(tmp_path / "user", empty=True)
    assert "is a home directory" in _refused(repo.path, env={"HOME": os.fspath(repo.path)})


@needs_mounts
def test_a_home_directory_with_a_repository_stays_protected(repo: Repo) -> None:
    """When a worktree becomes impossible later, it is refused all the same."""
    repo.git("branch", "ralph")
    result = run(repo.path, "-n", "1", "--", "pwd", env={"HOME": os.fspath(repo.path)})
    assert (result.status, result.stdout) == (2, b"")
    assert "is a home directory" in result.stderr
    _no_trace(repo)


@pytest.mark.parametrize("place", ["app", "team/app"])
def test_a_directory_that_holds_repositories_is_no_project(tmp_path: Path, place: str) -> None:
    """The hint names one of them."""
    src = tmp_path / "src"
    make_repo(src / place)
    assert f"holds {src / place}" in _refused(src)
    for way in (("--isolation", "off"), ("-C", os.fspath(src / place))):
        assert run(src, "-n", "1", *way, "--", "true", state=src / (place if "-C" in way else "")).status == 0


def test_the_root_of_the_file_system_is_no_project(tmp_path: Path) -> None:
    """Whatever HOME says."""
    result = command("run", "-n", "1", "--", "pwd", cwd=Path("/"), env={"HOME": os.fspath(tmp_path)})
    assert (result.status, result.stdout) == (2, b"")
    assert "and has everything in it: no agent" in result.stderr


@pytest.mark.parametrize(("typed", "status"), [(b"y\n", 0), (b"n\n", 125), (b"\n", 125)])
def test_a_person_is_asked_before_the_fallback(tmp_path: Path, typed: bytes, status: int) -> None:
    """Once, with the reason; everything but yes is no."""
    project = tmp_path / "project"
    project.mkdir()
    words = ("run", "-n", "2", "--", "sh", "-c", "echo it works")
    with Terminal(PROGRAM, *words, cwd=project) as terminal:
        terminal.wait_for(f"let the agent work in {project} itself? [y/N]")
        assert "is not in a git repository" in terminal.words
        terminal.type(typed)
        assert terminal.finish() == status
        assert terminal.words.count("[y/N]") == 1
        assert ("it works\n" in terminal.words) is (status == 0)


@pytest.mark.parametrize(("typed", "status"), [(b"y\n", 0), (b"n\n", 125)])
def test_a_person_who_spawns_is_asked_too(tmp_path: Path, typed: bytes, status: int, ended: None) -> None:
    """The session has no terminal, so its caller asks; the agent works after a yes alone."""
    del ended
    project = tmp_path / "project"
    project.mkdir()
    with Terminal(PROGRAM, "spawn", "-n", "1", "--", "touch", "made", cwd=project) as terminal:
        terminal.wait_for(f"let the agent work in {project} itself? [y/N]")
        assert not (project / "made").exists()
        terminal.type(typed)
        assert terminal.finish() == status
    if status == 0:
        eventually((project / "made").exists, "the work of the agent")
    assert (project / "made").exists() is (status == 0)


def test_a_caller_that_is_gone_is_no_yes(tmp_path: Path, ended: None) -> None:
    """The terminal was closed before the answer."""
    del ended
    project = tmp_path / "project"
    project.mkdir()
    with Terminal(PROGRAM, "spawn", "-n", "1", "--", "touch", "made", cwd=project) as terminal:
        terminal.wait_for(f"let the agent work in {project} itself? [y/N]")
    reports = project / ".ralph/run/sessions"
    eventually(lambda: [*reports.glob("*/report.json")], "the end of the session")
    assert not (project / "made").exists()


@pytest.mark.parametrize("make", ["mkdir .gitignore", ": > rules; ln -s rules .gitignore"])
def test_an_ignore_file_that_git_does_not_read_costs_no_isolation(repo: Repo, make: str) -> None:
    """The rule then goes into .git/info/exclude."""
    subprocess.run(("sh", "-c", make), cwd=repo.path, check=True)
    result = run(repo.path, "-n", "1", "--", "pwd")
    assert result.stdout.decode().startswith(f"{repo.path}/.ralph/worktrees/"), result.stderr
    assert ".ralph/worktrees/" in (repo.path / ".git/info/exclude").read_text().splitlines()


@pytest.mark.parametrize(("there", "wanted"), [("release/1", "release"), ("release", "release/1")])
def test_a_branch_in_the_way_of_the_named_one_is_an_error(repo: Repo, there: str, wanted: str) -> None:
    """What was typed and cannot be had is no reason to work without isolation."""
    repo.git("branch", there)
    result = command("run", "-n", "1", "--branch", wanted, "--", "touch", "made", cwd=repo.path)
    assert (result.status, (repo.path / "made").exists()) == (2, False)
    assert f"branch {there} is in the way" in result.stderr

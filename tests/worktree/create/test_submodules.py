"""``submodules = "init"``: a session's worktree has its submodules, and what is done in them is saved."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap import git
from ralph_wrap.state.report import SessionReport, read, summary
from ralph_wrap.worktree.create.submodules import init_submodules
from tests.support.git_shim import shim_git
from tests.support.repo import Repo
from tests.support.sessions import Result, Session, command, run
from tests.support.submodules import ALLOWED, NESTED, SUB, Project, make_project
from tests.support.trees import make_tree
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("ended", "trusted")


SH = ("-n", "1", "--", "sh", "-c")
LOOK = f"cat {SUB}/file.txt {NESTED}/deep.txt"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose main checkout has its submodules, and whose sessions have them, too."""
    return _configured(make_project(tmp_path / "world"))


@pytest.fixture
def remote(tmp_path: Path) -> Project:
    """Return one whose main checkout has none of them; they come from where ``.gitmodules`` says."""
    return _configured(make_project(tmp_path / "world", checked_out=False))


def _configured(project: Project) -> Project:
    project.repo.write(".ralph/config.toml", 'submodules = "init"\n')
    return project


def _allow_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the user permit what git does not by itself."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.file.allow")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "always")


def _left_out(ended: Result) -> list[str]:
    return [
        printed["message"] for printed in ended.warnings if printed["event"] == "submodules.not_initialised"
    ]


def _refs(project: Project) -> list[str]:
    """Return the refs that sessions leave, besides their branches."""
    found = project.repo.git("for-each-ref", "--format=%(refname)", "refs/ralph/").splitlines()
    if project.store.path.exists():
        found += project.store.git("for-each-ref", "--format=%(refname)", "refs/ralph/").splitlines()
    return found


# Where they come from


def test_without_the_key_there_are_none(tmp_path: Path) -> None:
    """As in any new worktree of git."""
    project = make_project(tmp_path / "world")
    assert run(project.repo.path, *SH, f"ls {SUB}").stdout == b""


def test_those_of_the_main_checkout_need_nothing_else(project: Project) -> None:
    """What they came from is not there any more."""
    project.upstream.path.rename(project.upstream.path.with_name("gone"))
    ended = run(project.repo.path, *SH, LOOK)
    assert (ended.stdout, _left_out(ended)) == (b"one\ndeep\n", [])
    assert [event["count"] for event in ended.events if event["event"] == "submodules.initialised"] == [2]


def test_nothing_is_left_of_unchanged_ones(project: Project) -> None:
    """No ref, no registration, no worktree."""
    ended = run(project.repo.path, *SH, LOOK)
    assert (ended.report["kept"], ended.report["submodules"], _refs(project)) == (None, [], [])
    assert not (project.repo.path / ".git" / "worktrees").exists()


def test_the_shared_configuration_is_not_written(project: Project) -> None:
    """``git submodule init`` would; nor is that of the main checkout's submodules."""
    project.repo.git("config", "--remove-section", f"submodule.{SUB}")
    configs = [path for path in (project.repo.path / ".git").rglob("config") if path.is_file()]
    before = {path: path.read_bytes() for path in configs}
    assert run(project.repo.path, *SH, LOOK).stdout == b"one\ndeep\n"
    assert {path: path.read_bytes() for path in configs} == before
    assert len(configs) == 3


def test_git_itself_would_write_it(project: Project) -> None:
    """The control for the test above."""
    project.repo.git("config", "--remove-section", f"submodule.{SUB}")
    before = (project.repo.path / ".git" / "config").read_bytes()
    make_tree(project.repo).inside.git("submodule", "init")
    assert (project.repo.path / ".git" / "config").read_bytes() != before


def test_a_clone_knows_its_remote(project: Project) -> None:
    """The agent can fetch and push; it sees nothing of our own directories."""
    upstream = project.upstream.commit("newer")
    Repo(project.repo.path / SUB).git("fetch", "-q")
    ended = run(project.repo.path, *SH, f"cd {SUB}; git remote get-url origin; git rev-parse origin/main")
    assert ended.stdout.decode().split() == [str(project.upstream.path), upstream]


def test_from_where_the_modules_file_says(remote: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """And unchanged ones leave nothing, though no other repository has them."""
    _allow_files(monkeypatch)
    before = (remote.repo.path / ".git" / "config").read_bytes()
    ended = run(remote.repo.path, *SH, LOOK)
    assert (ended.stdout, _left_out(ended), _refs(remote)) == (b"one\ndeep\n", [], [])
    assert ended.report["kept"] is None
    assert (remote.repo.path / ".git" / "config").read_bytes() == before


def test_a_commit_that_the_main_checkout_lacks(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is then cloned from its remote."""
    commit = project.upstream.commit("newer")
    project.repo.git("update-index", "--cacheinfo", f"160000,{commit},{SUB}")
    project.repo.git("commit", "-q", "-m", "newer")
    _allow_files(monkeypatch)
    ended = run(project.repo.path, *SH, f"git -C {SUB} rev-parse HEAD")
    assert ended.stdout.decode().strip() == commit


def test_a_file_that_git_does_not_permit(remote: Project) -> None:
    """Our own clones are allowed it, and no others (CVE-2022-39253): a warning, and the session goes on."""
    ended = run(remote.repo.path, *SH, f"ls {SUB}; echo on")
    assert ended.stdout == b"on\n"
    (printed,) = _left_out(ended)
    assert printed.startswith(f"submodule {SUB} is not initialised: ")
    assert not (remote.repo.path / ".git" / "worktrees").exists()


def test_a_commit_that_no_repository_has(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning, and nothing half-made: the submodule is as if it had not been tried."""
    project.repo.git("update-index", "--cacheinfo", f"160000,{'1' * 40},{SUB}")
    project.repo.git("commit", "-q", "-m", "nowhere")
    _allow_files(monkeypatch)
    look = f"ls -A {SUB}; git status --porcelain; ls -d $(git rev-parse --git-dir)/modules; echo on"
    ended = run(project.repo.path, *SH, look)
    assert ended.stdout == b"on\n"
    assert len(_left_out(ended)) == 1


@pytest.mark.parametrize("key", ["active", "update"])
def test_one_that_the_user_has_switched_off(project: Project, key: str) -> None:
    """Stays so."""
    project.repo.git("config", f"submodule.{SUB}.{key}", {"active": "false", "update": "none"}[key])
    ended = run(project.repo.path, *SH, f"ls {SUB}")
    assert (ended.stdout, _left_out(ended)) == (b"", [])


def test_those_that_the_user_has_chosen(project: Project) -> None:
    """By a pattern (gitsubmodules(7)); nothing is written to the project's configuration by mistake."""
    project.repo.git("config", "--remove-section", f"submodule.{SUB}")
    project.repo.git("config", "submodule.active", "other")
    before = (project.repo.path / ".git" / "config").read_bytes()
    ended = run(project.repo.path, *SH, f"ls {SUB}")
    assert (ended.stdout, _left_out(ended)) == (b"", [])
    assert (project.repo.path / ".git" / "config").read_bytes() == before


def test_one_that_is_not_checked_out(project: Project) -> None:
    """A sparse worktree has none of what it leaves out."""
    project.repo.write("other/file", "o\n")
    project.repo.commit("other")
    ended = run(project.repo.path, "--sparse", "other", *SH, "ls")
    assert ended.stdout == b"file.txt\nother\n"
    assert [event for event in ended.names if event == "submodules.initialised"] == []


@pytest.mark.parametrize("name", ["../../up", "a=b", "-dash"])
def test_a_name_that_leads_elsewhere(project: Project, name: str) -> None:
    """Is not used."""
    project.repo.git("config", "-f", ".gitmodules", "--remove-section", f"submodule.{SUB}")
    project.repo.git("config", "-f", ".gitmodules", f"submodule.{name}.path", SUB)
    project.repo.git("config", "-f", ".gitmodules", f"submodule.{name}.url", project.upstream.path)
    project.repo.git("commit", "-qam", "renamed")
    ended = run(project.repo.path, *SH, f"ls {SUB}; echo on")
    assert ended.stdout == b"on\n"
    assert len(_left_out(ended)) == 1


# Commands that are never run


def test_no_command_of_a_configuration_is_run(project: Project, tmp_path: Path) -> None:
    """An agent could have written it there."""
    project.repo.git("config", f"submodule.{SUB}.update", f"!touch {tmp_path}/ran; false")
    assert run(project.repo.path, *SH, LOOK).stdout == b"one\ndeep\n"
    assert not (tmp_path / "ran").exists()


def test_no_hook_is_run(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not one that each new repository gets from a template."""
    hook = tmp_path / "template" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "template"))
    assert run(project.repo.path, *SH, f"{LOOK}; ls $(git -C {SUB} rev-parse --git-dir)/hooks").stdout == (
        b"one\ndeep\npost-checkout\n"
    )
    assert not (tmp_path / "ran").exists()


# How it ends


@pytest.mark.parametrize("ending", ["", "; kill -9 $PPID"], ids=["well", "killed"])
def test_what_was_done_in_them_is_saved(project: Project, ending: str) -> None:
    """By the session, or by a sweep once it is dead: a commit and what was not committed."""
    work = f"cd {SUB}; echo c > c; git add c; git commit -qm c; echo d > d"
    ended = run(project.repo.path, *SH, work + ending)
    if ending:
        assert command("sweep", cwd=project.repo.path).status == 0
    (ref,) = _refs(project)
    assert (project.store.show(f"{ref}:d"), project.store.show(f"{ref}^:c")) == (b"d\n", b"c\n")
    assert project.repo.worktrees() == []
    assert ended.directory is not None
    printed = ended.report["submodules"]
    assert printed == [{"path": SUB, "repository": str(project.store.path), "refs": [ref]}]


def test_the_exit_report_says_how_to_see_it(project: Project) -> None:
    """By a command that works as it stands."""
    ended = run(project.repo.path, *SH, f"echo d > {SUB}/d")
    assert ended.directory is not None
    report = read(ended.directory / "report.json")
    assert isinstance(report, SessionReport)
    shown = summary(report, ended.directory / "output.log")
    (line,) = [line for line in shown.splitlines() if "submodule" in line]
    label, _, words = line.partition(f"{SUB}: git ")
    assert label.split() == ["submodule"]
    assert "+d" in project.repo.git(*shlex.split(words)).splitlines()


def test_work_in_a_submodule_is_no_stall(project: Project) -> None:
    """The commit that it is at is the same all the time."""
    work = f'test -e {SUB}/n || echo > {SUB}/n; date +%N >> {SUB}/n; echo "$RALPH_ITERATION"'
    ended = run(project.repo.path, "-n", "4", "--max-stalls", "2", "--", "sh", "-c", work)
    assert ended.ending[:2] == ("max-iterations", 4)


def test_none_is_touched_by_the_time_limit(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    """A clone that has not begun is left out and named."""
    tree = make_tree(project.repo)
    where = git.Git(project.repo.path, git.git_environment(os.environ))
    init_submodules(tree.linked, where, limit=-1.0)
    assert "submodules left out: the time is over" in capfd.readouterr().err
    assert list((tree.path / SUB).iterdir()) == []


# In the middle


def _through_ssh(remote: Project, script: Callable[[str], str], body: str) -> dict[str, str]:
    """Have the submodule come by a transport of which each step is ours."""
    remote.repo.git(
        "config", "-f", ".gitmodules", f"submodule.{SUB}.url", f"ssh://host{remote.upstream.path}"
    )
    remote.repo.git("commit", "-qam", "by ssh")
    return {"GIT_SSH_COMMAND": script(body), "GIT_SSH_VARIANT": "simple"}


SERVE = 'exec sh -c "for word; do :; done; eval \\"exec \\$word\\"" - "$@"'


def test_by_a_transport_of_ours(remote: Project, script: Callable[[str], str]) -> None:
    """Control for the tests below: it does serve."""
    env = _through_ssh(remote, script, SERVE)
    assert run(remote.repo.path, *SH, f"cat {SUB}/file.txt", env=env).stdout == b"one\n"


def test_a_signal_during_a_clone(remote: Project, script: Callable[[str], str], tmp_path: Path) -> None:
    """Ends it at once, and nothing is left."""
    env = _through_ssh(remote, script, f"touch {tmp_path}/begun; exec sleep 60")
    with Session(remote.repo.path, *SH, "true", env=env) as session:
        eventually((tmp_path / "begun").exists, "a clone")
        session.send(signal.SIGTERM)
        ended = session.finish()
    assert ended.status == 128 + signal.SIGTERM
    assert remote.repo.branches() == ["main"]
    assert (remote.repo.worktrees(), _refs(remote)) == ([], [])


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_session_killed_during_a_clone(
    remote: Project, script: Callable[[str], str], tmp_path: Path, moment: str
) -> None:
    """A sweep tidies what is left: no agent has worked in it."""
    served = 'sh -c "for word; do :; done; eval \\"\\$word\\"" - "$@"; ' if moment == "after" else ""
    kill = f"kill -9 $(cat {tmp_path}/pid); kill -9 0"
    env = _through_ssh(remote, script, f"until test -s {tmp_path}/pid; do sleep 0.01; done; {served}{kill}")
    with Session(remote.repo.path, *SH, "true", env=env) as session:
        (tmp_path / "new").write_text(str(session.process.pid))
        (tmp_path / "new").rename(tmp_path / "pid")
        assert session.finish().status == -signal.SIGKILL
    (registration,) = (remote.repo.path / ".git" / "worktrees").iterdir()
    assert (registration / "modules" / SUB).is_dir()
    swept = command("sweep", cwd=remote.repo.path)
    assert swept.status == 0, swept.stderr
    assert remote.repo.branches() == ["main"]
    assert (remote.repo.worktrees(), _refs(remote)) == ([], [])


def test_a_session_killed_during_a_checkout(
    project: Project, script: Callable[[str], str], tmp_path: Path
) -> None:
    """The same, with half of the files there, by a filter that kills git and the session."""
    kill = script(
        f"until test -s {tmp_path}/pid; do sleep 0.01; done; kill -9 $(cat {tmp_path}/pid); kill -9 0"
    )
    Repo(tmp_path).git("config", "--global", "filter.deadly.smudge", kill)
    project.upstream.write(".gitattributes", "zz filter=deadly\n")
    project.upstream.write("zz", "last\n")
    commit = project.upstream.commit("filtered")
    Repo(project.repo.path / SUB).git("fetch", "-q")
    project.repo.git("update-index", "--cacheinfo", f"160000,{commit},{SUB}")
    project.repo.git("commit", "-q", "-m", "newer")
    with Session(project.repo.path, *SH, "true") as session:
        (tmp_path / "new").write_text(str(session.process.pid))
        (tmp_path / "new").rename(tmp_path / "pid")
        assert session.finish().status == -signal.SIGKILL
    (worktree,) = project.repo.worktrees()
    assert os.path.lexists(f"{worktree}/{SUB}/file.txt")
    swept = command("sweep", cwd=project.repo.path)
    assert swept.status == 0, swept.stderr
    assert project.repo.branches() == ["main"]
    assert (project.repo.worktrees(), _refs(project)) == ([], [])


def test_a_session_killed_while_git_deletes_its_submodules(project: Project, tmp_path: Path) -> None:
    """The last look was taken: the sweep deletes the rest, and does not save what is left of them."""
    gone = f"rm -rf {project.repo.path}/.git/worktrees/*/modules/{SUB}/refs; kill -9 $PPID; kill -9 $$"
    env = {"PATH": shim_git(tmp_path / "bin", f'*" worktree remove "*) {gone} ;;')}
    work = f"cd {SUB}; echo c > c; git add c; git commit -qm c"
    assert run(project.repo.path, *SH, work, env=env).status == -signal.SIGKILL
    (ref,) = _refs(project)
    assert (project.repo.path / ".git" / "worktrees").exists()
    swept = command("sweep", cwd=project.repo.path)
    assert swept.status == 0, swept.stderr
    assert list((project.repo.path / ".git" / "worktrees").iterdir()) == []
    assert list((project.repo.path / ".ralph" / "worktrees").iterdir()) == []
    assert project.store.show(f"{ref}:c") == b"c\n"


# Worktrees for other programs


def test_cleanup_refuses_what_would_be_lost_in_a_submodule(project: Project) -> None:
    """It is listed, like the rest; an unchanged one is no obstacle."""
    made = json.loads(command("worktree", "create", "a task", cwd=project.repo.path).stdout)["data"]["path"]
    inside = Repo(Path(made))
    inside.git(*ALLOWED, "submodule", "--quiet", "update", "--init")
    inside.write(f"{SUB}/new", "n\n")
    refused = command("worktree", "cleanup", made, cwd=project.repo.path)
    assert refused.status == 5
    assert f"uncommitted: {SUB}/new" in json.loads(refused.stdout)["error"]["message"]
    assert (Path(made) / SUB / "new").exists()
    (Path(made) / SUB / "new").unlink()
    assert command("worktree", "cleanup", made, cwd=project.repo.path).status == 0
    assert not Path(made).exists()

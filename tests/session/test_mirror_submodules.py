"""The work in submodules travels with a session, although its repositories are on one machine.

Two clones of one bare repository are the machines.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.session.remote.submodules import MirroredSubmodules
from ralph_wrap.session.remote.view import RemoteView
from ralph_wrap.state.project import find_project
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.worktree.save.submodule_snapshot.make import ref_of
from tests.support.git_servers import http_server
from tests.support.git_shim import shim_git
from tests.support.machines import claim_of, killed, refs
from tests.support.repo import Repo, make_repo
from tests.support.sessions import Session, command
from tests.support.submodules import ALLOWED
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

SH = ("--", "sh", "-c")
MIRRORED = ("--remote", "origin")
TRUST = {
    "RALPH_TRUST": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}
CONFIG = 'remote_beat = "200ms"\nsubmodules = "init"\n'
LOOK = (
    "git -C lib log --format=%s -2 > log; git -C lib status --porcelain > status;"
    " cat lib/file lib/deep/new > file"
)


@pytest.fixture
def library(tmp_path: Path) -> Repo:
    """Return what the submodule ``lib`` comes from; it has the submodule ``deep``."""
    deep = make_repo(tmp_path / "deep")
    deep.commit("the deep one")
    library = make_repo(tmp_path / "library")
    library.write("file", "one\n")
    library.write("large", os.urandom(100_000).hex())
    library.git(*ALLOWED, "submodule", "--quiet", "add", deep.path, "deep")
    library.commit("the library")
    return library


@pytest.fixture
def project(repo: Repo, remote: Repo, library: Repo) -> Repo:
    """Return the project with its submodules, on the first machine."""
    assert repo.git("remote", "get-url", "origin").strip() == str(remote.path)
    repo.git(*ALLOWED, "submodule", "--quiet", "add", library.path, "lib")
    repo.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
    repo.commit("with a submodule")
    repo.git("push", "-q", "origin", "HEAD")
    repo.write(".ralph/config.toml", CONFIG)
    return repo


@pytest.fixture
def elsewhere(project: Repo, remote: Repo, tmp_path: Path) -> Repo:
    """Return the second machine; its checkout has no submodule."""
    project.git("clone", "-q", str(remote.path), str(tmp_path / "elsewhere"))
    machine = Repo(tmp_path / "elsewhere")
    machine.write(".ralph/config.toml", f'{CONFIG}[agents.look]\ncommand = ["sh", "-c", "{LOOK}"]\n')
    return machine


def stopped(project: Repo, script: str, *options: str) -> str:
    """Run a session whose agent works until a SIGTERM comes, and return its id; the claim lacks nothing."""
    made = project.path.parent / "made"
    made.unlink(missing_ok=True)
    with Session(
        project.path, *MIRRORED, *options, *SH, f"{script}; touch {made}; exec sleep 1000", env=TRUST
    ) as session:
        eventually(made.exists, "the work of the agent")
        session.send(signal.SIGTERM)
        ended = session.finish()
    agent_id = str(ended.report["id"])
    assert claim_of(Repo(project.path.parent / "remote.git"), agent_id)["incomplete"] == "", ended.stderr
    return agent_id


def looked(machine: Repo, agent_id: str) -> dict[str, str]:
    """Let the session go on on another machine, and return what its agent has found there."""
    words = ("resume", agent_id, *MIRRORED, "-n", "1", "-a", "look", "-p", "x")
    again = command(*words, cwd=machine.path, env=TRUST)
    assert again.status == 0, again.stderr
    names = ("log", "file", "status")
    listed = machine.git("ls-tree", "--name-only", f"ralph/{agent_id}-wip").split()
    assert {*names} <= {*listed}, again.stderr
    return {name: machine.show(f"ralph/{agent_id}-wip:{name}").decode() for name in names}


def size(repo: Repo) -> int:
    """Return the number of bytes of its objects."""
    return sum(path.stat().st_size for path in (repo.path / "objects").rglob("*") if path.is_file())


WORK = "cd lib; echo two > file; git commit -qam two; echo three > file; echo new > deep/new"
FOUND = {"log": "two\nthe library\n", "file": "three\nnew\n", "status": " M deep\n M file\n"}


@pytest.mark.parametrize("isolation", ["require", "clone"])
def test_all_work_in_submodules_travels(
    project: Repo, remote: Repo, elsewhere: Repo, library: Repo, isolation: str
) -> None:
    """Commits and uncommitted work are where they were, although no origin of a submodule answers."""
    agent_id = stopped(project, WORK, "--isolation", isolation)
    library.path.rename(library.path.with_name("gone"))
    assert looked(elsewhere, agent_id) == FOUND
    assert claim_of(remote, agent_id)["incomplete"] == ""


def test_work_in_submodules_travels_over_http(project: Repo, remote: Repo, elsewhere: Repo) -> None:
    """A real server takes the unrelated histories in the push of the claim."""
    remote.git("config", "http.receivepack", "true")
    with http_server(remote.path.parent) as (address, _):
        for machine in (project, elsewhere):
            machine.git("remote", "set-url", "origin", f"{address}/{remote.path.name}")
        agent_id = stopped(project, WORK)
        assert looked(elsewhere, agent_id) == FOUND


def test_the_history_of_a_submodule_is_pushed_once(project: Repo, remote: Repo, elsewhere: Repo) -> None:
    """A second session, on another machine, brings only its own commits."""
    remote.git("config", "receive.unpackLimit", "1")  # it keeps each pack as it came
    stopped(project, WORK)
    first = size(remote)
    stopped(elsewhere, WORK)
    assert (first > 100_000, size(remote) - first < 50_000) == (True, True)


def test_a_branch_of_a_submodule_stays_on_the_remote(project: Repo, remote: Repo) -> None:
    """The session that goes on has no such branch in its worktree."""
    script = "cd lib; git switch -qc aside; git commit -q --allow-empty -m aside; git switch -q --detach @^"
    agent_id = stopped(project, f"{script}; echo new > new")
    project.write(
        ".ralph/config.toml", f'{CONFIG}[agents.edit]\ncommand = ["sh", "-c", "echo two > lib/file"]\n'
    )
    words = ("resume", agent_id, *MIRRORED, "-n", "1", "-a", "edit", "-p", "x")
    again = command(*words, cwd=project.path, env=TRUST)
    assert again.status == 0, again.stderr
    assert "aside" in remote.git("log", "--all", "--format=%s").split()


def test_a_killed_machine_loses_no_work_in_a_submodule(
    project: Repo, remote: Repo, elsewhere: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last snapshot brings it, together with the commit that the branch names."""
    script = f"echo $$ > {project.path.parent}/agent.pid; ({WORK}); echo made > made; exec sleep 1000"
    for name, value in TRUST.items():
        monkeypatch.setenv(name, value)
    agent_id = killed(project, script, until="made")
    assert claim_of(remote, agent_id)["state"] == "running"
    assert looked(elsewhere, agent_id) == FOUND


def test_git_finds_the_commit_that_a_fetched_branch_names(
    project: Repo, elsewhere: Repo, library: Repo
) -> None:
    """The main checkout's own repository of the submodule has it after a fetch."""
    elsewhere.git(*ALLOWED, "submodule", "--quiet", "update", "--init", "lib")
    agent_id = stopped(project, "cd lib; git commit -q --allow-empty -m two; cd ..; git commit -qam up")
    library.path.rename(library.path.with_name("gone"))
    fetched = command("fetch", cwd=elsewhere.path, env=TRUST)
    assert fetched.status == 0, fetched.stderr
    elsewhere.git("merge", "-q", f"ralph/{agent_id}")
    elsewhere.git("submodule", "--quiet", "update", "lib")
    assert Repo(elsewhere.path / "lib").git("log", "-1", "--format=%s").strip() == "two"


def test_a_third_machine_gets_work_that_the_second_had_no_place_for(
    project: Repo, remote: Repo, elsewhere: Repo, tmp_path: Path
) -> None:
    """The second one has its submodules off, so the work stays as it is."""
    agent_id = stopped(project, WORK)
    project.git("clone", "-q", str(remote.path), str(tmp_path / "third"))
    third = Repo(tmp_path / "third")
    third.write(".ralph/config.toml", '[agents.true]\ncommand = ["true"]\n')
    words = ("resume", agent_id, *MIRRORED, "-n", "1", "-a", "true", "-p", "x")
    again = command(*words, cwd=third.path, env=TRUST)
    assert "the saved work of submodule lib is not in the worktree" in again.stderr
    assert looked(elsewhere, agent_id) == FOUND, again.stderr


def test_the_claim_names_what_cannot_travel(project: Repo, remote: Repo, library: Repo) -> None:
    """A server takes no commit of a shallow clone."""
    shutil.rmtree(project.path / ".git" / "modules")
    project.git("submodule", "-q", "deinit", "-f", "lib")
    project.git("config", "-f", ".gitmodules", "submodule.lib.shallow", "true")
    project.git("config", "-f", ".gitmodules", "submodule.lib.url", f"file://{library.path}")
    project.commit("shallow")
    library.commit("another, so that the clone is shallow")
    made = project.path.parent / "made"
    with Session(
        project.path, *MIRRORED, *SH, f"echo two > lib/file; touch {made}; exec sleep 1000", env=TRUST
    ) as session:
        eventually(made.exists, "the work of the agent")
        session.send(signal.SIGTERM)
        ended = session.finish()
    said = claim_of(remote, ended.report["id"])["incomplete"]
    assert said == "submodule lib: it is a shallow clone, and the rest of its history is not here"


@pytest.mark.parametrize("has_own", [True, False])
def test_a_remote_that_refuses_a_submodule_gets_all_other_work(
    project: Repo, remote: Repo, library: Repo, *, has_own: bool
) -> None:
    """The claim and the end name the submodule; the branch and the saved work of the project are there.

    Without an own repository of the submodule, the project keeps its saved work, too. The remote refuses each
    ref that brings a commit of the submodule's history.
    """
    if not has_own:
        project.git("submodule", "-q", "deinit", "-f", "lib")
        shutil.rmtree(project.path / ".git" / "modules")
    hook = remote.path / "hooks" / "update"
    hook.write_text(f'#!/bin/sh\ngit rev-list "$3" 2>&1 | grep -q {library.head} && exit 1; exit 0\n')
    hook.chmod(0o755)
    script = f"echo a > a; {WORK}; exec sleep 1000"
    with Session(project.path, *MIRRORED, *SH, script, env=TRUST) as session:
        agent_id = session.directory.name.rpartition("-")[2]
        session.wait_for("agent.started")

        def is_there() -> bool:
            return any(ref.startswith(f"refs/ralph/snapshots/{agent_id}/") for ref in refs(remote))

        eventually(is_there, "the snapshot of the project")
        said = claim_of(remote, agent_id)["incomplete"]
        session.send(signal.SIGTERM)
        ended = session.finish()
    assert f"{ref_of(agent_id)} with the work in lib" in said
    assert remote.show(f"ralph/{agent_id}-wip:a") == b"a\n"
    assert f"{ref_of(agent_id)} with the work in lib" in claim_of(remote, agent_id)["incomplete"]
    assert f" {ref_of(agent_id)}:{ref_of(agent_id)}" in ended.stderr


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_push_without_an_answer_is_tried_again(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    """The network was down: the work in submodules comes a minute later. After a refusal it stays away."""
    git = find_project(repo.path, os.environ).git
    submodules = MirroredSubmodules(git, "00aa", "x-00aa", CancelToken())
    view, wanted = RemoteView("00aa", "x-00aa", "ralph/00aa", None, {}), {ref_of("00aa"): repo.head}
    chosen = [submodules.chosen(wanted, view)]
    submodules.is_refused = is_refused
    submodules.refuse("no answer")
    chosen.append(submodules.chosen(wanted, view))
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    chosen.append(submodules.chosen(wanted, view))
    assert chosen == [wanted, {}, {} if is_refused else wanted]


def test_a_kill_before_the_history_of_a_submodule_is_pushed(
    project: Repo, remote: Repo, elsewhere: Repo, library: Repo, tmp_path: Path
) -> None:
    """After a SIGTERM all else goes first; then the claim names what the remote lacks."""
    project.write(".ralph/config.toml", CONFIG.replace("200ms", "5m"))
    hook, pid, made = remote.path / "hooks" / "post-receive", tmp_path / "pid", tmp_path / "made"
    hook.write_text(f'#!/bin/sh\ngrep -q /heads/ && test -e {made} && kill -9 "$(cat {pid})"\n')
    hook.chmod(0o755)
    script = f"echo a > a; {WORK}; touch {made}; exec sleep 1000"
    with Session(project.path, *MIRRORED, *SH, script, env=TRUST) as session:
        pid.write_text(str(session.process.pid))
        agent_id = session.directory.name.rpartition("-")[2]
        eventually(made.exists, "the work of the agent")
        session.send(signal.SIGTERM)
        session.process.wait()
    hook.unlink()
    said = claim_of(remote, agent_id)
    assert (said["state"], said["work"]) == ("stopped", f"refs/heads/ralph/{agent_id}-wip")
    assert (
        said["incomplete"]
        == f"{ref_of(agent_id)} with the work in lib, lib/deep: it comes with the next push"
    )
    assert remote.show(f"ralph/{agent_id}-wip:a") == b"a\n"
    assert ref_of(agent_id) not in refs(remote)
    assert library.head not in remote.git("rev-list", "--all")
    words = ("resume", agent_id, *MIRRORED, "-n", "1", "-a", "look", "-p", "x")
    again = command(*words, cwd=elsewhere.path, env=TRUST)
    assert "with the work in lib, lib/deep" in again.stderr
    kept = project.git("cat-file", "commit", ref_of(agent_id))
    assert '"lib/deep"' in kept


def test_a_copy_that_takes_long_does_not_keep_other_work_back(
    project: Repo, remote: Repo, tmp_path: Path
) -> None:
    """After a SIGTERM the session goes on without it, and the claim names it."""
    apart = f'" {project.path}/.git/objects/ralph-wrap-save-"*"-submodules"*"/pack "'
    copy = f'*" pack-objects "*{apart}*) exec sleep 600 ;;'
    path, made = shim_git(tmp_path / "bin", copy), tmp_path / "made"
    project.write(".ralph/config.toml", CONFIG.replace("200ms", "10m"))
    script = f"echo a > a; {WORK}; touch {made}; exec sleep 1000"
    with Session(project.path, *MIRRORED, *SH, script, env=TRUST | {"PATH": path}) as session:
        eventually(made.exists, "the work of the agent")
        session.send(signal.SIGTERM)
        ended = session.finish()
    agent_id = str(ended.report["id"])
    assert remote.show(f"ralph/{agent_id}-wip:a") == b"a\n"
    assert "submodule lib: a signal came" in claim_of(remote, agent_id)["incomplete"]
    assert [saved["path"] for saved in ended.report["submodules"]] == ["lib", "lib/deep"]


def test_a_fenced_session_rescues_its_submodules(project: Repo, remote: Repo) -> None:
    """Its work goes to refs of its own."""
    with Session(project.path, *MIRRORED, *SH, f"{WORK}; exec sleep 1000", env=TRUST) as session:
        agent_id = session.directory.name.rpartition("-")[2]
        eventually(lambda: ref_of(agent_id) in refs(remote), "the work on the remote")
        remote.git(
            "update-ref",
            f"refs/ralph/claims/{agent_id}",
            remote.git("hash-object", "-w", "/dev/null").strip(),
        )
        ended = session.finish()
    name = f"refs/ralph/rescue/{agent_id}/{session.directory.name}/ralph/snapshots/{agent_id}/submodules"
    assert name in refs(remote), ended.stderr


def test_drop_deletes_the_submodules_on_the_remote(project: Repo, remote: Repo, elsewhere: Repo) -> None:
    """The machine that drops the session keeps their commits."""
    agent_id = stopped(project, WORK)
    snapshot = refs(remote)[ref_of(agent_id)]
    dropped = command("drop", "--force", agent_id, "--remote", "origin", cwd=elsewhere.path, env=TRUST)
    assert dropped.status == 0, dropped.stderr
    assert refs(remote) == {}
    assert snapshot in elsewhere.git("for-each-ref", "--format=%(objectname)", "refs/ralph/snapshots/")

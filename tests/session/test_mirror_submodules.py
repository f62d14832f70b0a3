"""Work in submodules stays on its machine: the claim of a mirrored session names each submodule with some.

Two clones of one bare repository are the machines.
"""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.git_shim import shim_git
from tests.support.machines import claim_of, killed, refs
from tests.support.repo import Repo, make_repo
from tests.support.sessions import Session, command, run
from tests.support.submodules import ALLOWED
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Result

SH = ("--", "sh", "-c")
MIRRORED = ("--remote", "origin")
TRUST = {
    "RALPH_TRUST": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}
CONFIG = 'remote_beat = "200ms"\nsubmodules = "init"\n'
UNCOMMITTED, COMMITS = "uncommitted work", "commits that no remote branch of it has"
BOTH = f"{UNCOMMITTED} and {COMMITS}"
WORK = "cd lib; echo two > file; git commit -qam two; echo three > file; echo new > deep/new"
NAMED = f"submodule lib: {BOTH}; submodule lib/deep: {UNCOMMITTED}"


@pytest.fixture
def library(tmp_path: Path) -> Repo:
    """Return what the submodule ``lib`` comes from; it has the submodule ``deep``."""
    deep = make_repo(tmp_path / "deep")
    deep.commit("the deep one")
    library = make_repo(tmp_path / "library")
    library.write("file", "one\n")
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
    machine.write(".ralph/config.toml", f'{CONFIG}[agents.true]\ncommand = ["true"]\n')
    return machine


def without_own(project: Repo) -> None:
    """Take the submodules out of the main checkout, so that the project's repository keeps their work."""
    project.git("submodule", "-q", "deinit", "-f", "lib")
    shutil.rmtree(project.path / ".git" / "modules")


def mirrored(project: Repo, script: str, *options: str) -> Result:
    """Run a session of one iteration."""
    ended = run(project.path, *MIRRORED, "-n", "1", *options, *SH, script, env=TRUST)
    assert ended.status == 0, ended.stderr
    return ended


def lacking(remote: Repo, ended: Result) -> str:
    """Return why the remote lacks work of a session."""
    return str(claim_of(remote, str(ended.report["id"]))["incomplete"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo a > a", ""),
        (WORK, NAMED),
        ("cd lib; git update-index --assume-unchanged file; echo 2 > file", f"submodule lib: {UNCOMMITTED}"),
        ("cd lib; git commit -q --allow-empty -m 2; cd ..; git commit -qam up", f"submodule lib: {COMMITS}"),
        ("cd lib; git commit -q --allow-empty -m 2; git reset -q --hard @^", f"submodule lib: {COMMITS}"),
        ("cd lib; echo two > file; git stash -q", f"submodule lib: {COMMITS}"),
        ("cd lib; git commit -q --allow-empty -m 2; git push -q origin HEAD:refs/heads/new", ""),
    ],
)
def test_the_claim_names_each_kind_of_work(project: Repo, remote: Repo, script: str, said: str) -> None:
    """What the submodule's own remote has, and a submodule without work, is not named."""
    assert lacking(remote, mirrored(project, script)) == said


def test_a_clone_names_it_too(project: Repo, remote: Repo) -> None:
    """The look is at the copy of what the agent has."""
    assert lacking(remote, mirrored(project, WORK, "--isolation", "clone")) == NAMED


def test_a_commit_from_before_the_session_is_no_work_of_it(project: Repo, remote: Repo) -> None:
    """The project names a commit that nobody has pushed yet."""
    project.git("-C", "lib", "commit", "-q", "--allow-empty", "-m", "not pushed")
    project.git("commit", "-qam", "up")
    assert lacking(remote, mirrored(project, "echo a > a")) == ""


def test_the_end_names_it(project: Repo) -> None:
    """With a way on; and where the work is on this machine."""
    ended = mirrored(project, WORK)
    assert f"origin does not have the work in submodules: {NAMED}" in ended.stderr
    assert [saved["path"] for saved in ended.report["submodules"]] == ["lib", "lib/deep"]


@pytest.mark.parametrize("has_own", [True, False])
def test_the_history_of_a_submodule_never_goes_to_the_remote(
    project: Repo, remote: Repo, library: Repo, *, has_own: bool
) -> None:
    """The work of the project goes, although the remote would refuse that history; all is saved here."""
    if not has_own:
        without_own(project)
    hook = remote.path / "hooks" / "update"
    hook.write_text(f'#!/bin/sh\ngit rev-list "$3" 2>&1 | grep -q {library.head} && exit 1; exit 0\n')
    hook.chmod(0o755)
    ended = mirrored(project, f"echo a > a; {WORK}")
    agent_id = str(ended.report["id"])
    assert lacking(remote, ended) == NAMED
    assert remote.show(f"ralph/{agent_id}-wip:a") == b"a\n"
    assert library.head not in remote.git("rev-list", "--all")
    kept, _ = ended.report["submodules"]
    here = Repo(project.path / kept["repository"])
    assert b"three\n" in [here.show(f"{ref}:file") for ref in kept["refs"]]


@pytest.mark.parametrize("has_own", [True, False])
def test_a_resumed_session_still_names_it(project: Repo, remote: Repo, *, has_own: bool) -> None:
    """Its work is back in the worktree here, and has a ref here; the remote lacks it as before."""
    if not has_own:
        without_own(project)
    agent_id = str(mirrored(project, WORK).report["id"])
    project.write(
        ".ralph/config.toml", f'{CONFIG}[agents.cat]\ncommand = ["cat", "lib/file", "lib/deep/new"]\n'
    )
    again = command(
        *("resume", agent_id, *MIRRORED, "-n", "1", "-a", "cat", "-p", "x"), cwd=project.path, env=TRUST
    )
    assert (again.status, again.stdout) == (0, b"three\nnew\n"), again.stderr
    assert claim_of(remote, agent_id)["incomplete"].startswith(NAMED)


def test_another_machine_is_told(project: Repo, elsewhere: Repo) -> None:
    """``fetch`` and ``resume`` there name the submodules; nothing is made up for them."""
    agent_id = str(mirrored(project, f"echo a > a; {WORK}").report["id"])
    fetched = command("fetch", cwd=elsewhere.path, env=TRUST)
    assert f"incomplete: {NAMED}" in fetched.stdout.decode(), fetched.stderr
    words = ("resume", agent_id, *MIRRORED, "-n", "1", "-a", "true", "-p", "x")
    again = command(*words, cwd=elsewhere.path, env=TRUST)
    assert again.status == 0, again.stderr
    assert NAMED in again.stderr


def test_a_killed_machine_has_named_it(project: Repo, remote: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the session runs, its claim says so already."""
    script = f"echo $$ > {project.path.parent}/agent.pid; ({WORK}); echo made > made; exec sleep 1000"
    for name, value in TRUST.items():
        monkeypatch.setenv(name, value)
    agent_id = killed(project, script, until="made")
    claim = claim_of(remote, agent_id)
    assert (claim["state"], claim["incomplete"]) == ("running", NAMED)


def test_a_look_that_takes_long_does_not_keep_other_work_back(
    project: Repo, remote: Repo, tmp_path: Path
) -> None:
    """After a SIGTERM the session goes on without it, and the claim names the submodule."""
    made = tmp_path / "made"
    path = shim_git(tmp_path / "bin", '*" ls-tree -z --full-tree "*) exec sleep 600 ;;')
    project.write(".ralph/config.toml", CONFIG.replace("200ms", "10m"))
    script = f"echo a > a; {WORK}; touch {made}; exec sleep 1000"
    with Session(project.path, *MIRRORED, *SH, script, env=TRUST | {"PATH": path}) as session:
        eventually(made.exists, "the work of the agent")
        session.send(signal.SIGTERM)
        ended = session.finish()
    agent_id = str(ended.report["id"])
    assert remote.show(f"ralph/{agent_id}-wip:a") == b"a\n"
    assert "submodule lib: git cannot look into it: a signal came" in lacking(remote, ended)
    assert [saved["path"] for saved in ended.report["submodules"]] == ["lib", "lib/deep"]
    assert not [ref for ref in refs(remote) if "submodule" in ref]

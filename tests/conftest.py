"""A sealed world for every test: no configuration, identity or variable of the machine leaks in."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ralph_wrap.session.sandbox import launcher
from ralph_wrap.system import process_tree
from ralph_wrap.system.log import Log
from tests.support import profiles as _profiles  # noqa: F401 -- registers those of Hypothesis
from tests.support.agent_script import TRUSTED
from tests.support.needs import skip_or_fail
from tests.support.processes import end_all, hear_signals
from tests.support.repo import Repo, make_repo
from tests.support.sandboxes import bubblewrap_works
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.sessions import Result

IDENTITY = {
    "GIT_AUTHOR_NAME": "A. Tester",
    "GIT_AUTHOR_EMAIL": "tester@example.invalid",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0000",
    "GIT_COMMITTER_NAME": "A. Tester",
    "GIT_COMMITTER_EMAIL": "tester@example.invalid",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0000",
}


def pytest_configure() -> None:
    """Hear all signals, before any worker starts."""
    hear_signals()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test, or fail it, if its machine lacks what its marks name, before its fixtures use that."""
    for mark in item.iter_markers("needs"):
        for need in mark.args:
            need.check()


@pytest.fixture(autouse=True)
def _is_no_subreaper() -> Iterator[None]:
    """Adopt no orphans after a session in this process: each is a zombie that later sessions look at."""
    yield
    ctypes.CDLL(None).prctl(process_tree.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(scope="session", autouse=True)
def _sealed_before() -> Iterator[None]:
    """Give a git configuration and an identity to what is made before a test, for several tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def _sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a HOME, a git configuration, an identity, and a directory that is no project."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "RALPH_", "XDG_")) or name in {"COLUMNS", "LINES"}:
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    nowhere = tmp_path / "forgot-to-choose-a-project"
    nowhere.mkdir(mode=0o500)
    settings: dict[str, str | Path] = {
        "HOME": home,
        "XDG_STATE_HOME": home / "state",
        "XDG_CONFIG_HOME": home / "config",
        "GIT_CONFIG_GLOBAL": home / "gitconfig",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": tmp_path,
        "GIT_EDITOR": "false",
        **IDENTITY,
        "TZ": "UTC",
        "PYTHONWARNINGS": "error",
        "RALPH_WRAP_LOG_FORMAT": "json",  # what most tests read; see tests/session/test_log_format.py
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(nowhere)


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Approve what the configurations of this test decide: it is about something else."""
    for name, value in TRUSTED.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the ``HOME`` by which the processes of this test are known."""
    return tmp_path / "home"


@pytest.fixture
def ended(_sealed: None, home: Path) -> Iterator[None]:
    """End, after the test, whatever it has started."""
    yield
    end_all(home)


@pytest.fixture
def log() -> Iterator[Log]:
    """Use a log that goes nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    nowhere = Log(null, terminal=False, colour=False)
    with nowhere.in_use():
        yield nowhere
    os.close(null)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Return a repository with one commit."""
    return make_repo(tmp_path / "project")


@pytest.fixture
def remote(repo: Repo, tmp_path: Path) -> Repo:
    """Return the bare repository that is the origin of the project."""
    path = tmp_path / "remote.git"
    repo.write(".gitignore", ".ralph/\n")
    repo.commit("a project")
    repo.git("clone", "-q", "--bare", str(repo.path), str(path))
    repo.git("remote", "add", "origin", str(path))
    return Repo(path)


@pytest.fixture
def other(remote: Repo, tmp_path: Path) -> Repo:
    """Return a clone: the project on another machine."""
    remote.git("clone", "-q", str(remote.path), str(tmp_path / "other"))
    return Repo(tmp_path / "other")


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that makes an executable shell script outside the project and returns its path."""
    made = 0

    def make(body: str) -> str:
        nonlocal made
        made += 1
        path = tmp_path / f"agent-{made}.sh"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return os.fspath(path)

    return make


@pytest.fixture
def mine(repo: Repo, script: Callable[[str], str]) -> Callable[..., Result]:
    """Return a function that runs a shell script as the agent ``mine``."""

    def run_it(
        body: str, *options: str, words: str = "", env: Mapping[str, str] = {}, **table: Any
    ) -> Result:
        lines = [f"{key} = {json.dumps(value)}" for key, value in {"output": "claude", **table}.items()]
        lines += [f"env.{name} = {json.dumps(value)}" for name, value in env.items()]
        argv = [script(body), *words.split()]
        content = "\n".join(["[agents.mine]", f"command = {json.dumps(argv)}", *lines])
        repo.write(".ralph/config.toml", content + "\n")
        return run(repo.path, "-a", "mine", "-p", "do it", *options, env=TRUSTED)

    return run_it


@pytest.fixture
def bwrap() -> str:
    """Return the option for bubblewrap. Without it tests are skipped, or fail with REQUIRE_SANDBOX=1."""
    if not bubblewrap_works():
        skip_or_fail("bubblewrap makes no sandbox here", "REQUIRE_SANDBOX")
    return "bwrap"


@pytest.fixture
def landlock() -> str:
    """Return the option for Landlock; a kernel that has none skips the test."""
    if launcher.landlock_abi() < launcher.SCOPES_SINCE:
        pytest.skip("this kernel has no Landlock that stops signals")
    return "landlock"

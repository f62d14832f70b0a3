"""Ids and titles are completed in real shells, by the scripts that ``--install-completion`` installs."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.histories import record
from tests.support.needs import needs, program
from tests.support.sessions import PROGRAM
from tests.support.wait import eventually

if TYPE_CHECKING:
    from tests.support.repo import Repo


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user without any configuration, with the program on PATH."""
    home = tmp_path / "user"
    home.mkdir()
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "HOME": os.fspath(home), "PATH": path, "TERM": "dumb", "XDG_CONFIG_HOME": ""}


def _install(repo: Repo, shell: str, env: dict[str, str]) -> None:
    """Leave a session with a title, and install the script from within the shell, as a user does."""
    repo.git("branch", "ralph/a3f2")
    record(repo, "a3f2", repo.head, title="Fix the login page")
    line = (
        f"{shlex.quote(os.fspath(PROGRAM))} --install-completion; exit $status"  # the shell stays the parent
    )
    line = line.replace("$status", "$?") if shell == "zsh" else line
    subprocess.run((shell, "-c", line), cwd=repo.path, env=env, capture_output=True, check=True)


@needs(program("fish", "fish"))
def test_fish(repo: Repo, env: dict[str, str]) -> None:
    """An id with its title, and a title from its first letter on."""
    _install(repo, "fish", env)
    ask = "complete -C 'ralph-wrap logs '; complete -C 'ralph-wrap resume Fix'"
    done = subprocess.run(
        ("fish", "-c", ask), cwd=repo.path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["a3f2\tFix the login page", "Fix the login page\ta3f2"]


_SHOW = r"""
show() { zle -I; print -r -- "<$BUFFER>" }
zle -N show
bindkey '^T' show
PS1='ready '
"""
"""Has zsh print its line for Ctrl-T."""


@needs(program("zsh", "zsh"))
@pytest.mark.parametrize(("typed", "completed"), [("a", "a3f2"), ("Fix", r"Fix\ the\ login\ page")])
def test_zsh(repo: Repo, env: dict[str, str], typed: str, completed: str) -> None:
    """A shell that has just started loads the script at the first Tab, and completes at the next one."""
    _install(repo, "zsh", env)
    with Path(env["HOME"], ".zshrc").open("a") as file:
        file.write(_SHOW)
    terminal, its_end = pty.openpty()
    shell = subprocess.Popen(
        ("zsh", "-i"),
        cwd=repo.path,
        env=env,
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
    )
    os.close(its_end)
    shown = b""

    def shows(text: str, keys: bytes = b"") -> bool:
        nonlocal shown
        os.write(terminal, keys)
        while select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096)
        return text in shown.decode(errors="replace")

    try:
        eventually(lambda: shows("ready "), "the prompt")
        os.write(terminal, f"ralph-wrap logs {typed}".encode())
        eventually(lambda: shows(f"<ralph-wrap logs {completed} >", b"\t\x14"), "the completed word")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)

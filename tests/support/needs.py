"""What a test needs of its machine, found by trying it.

A user id says nothing about it: root in a container may not mount, and an ordinary user may be allowed to
make namespaces. Where a need is missing, the test is skipped with the reason; with the variable of the need
set to 1, it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from ralph_wrap.git.repository import parse_version
from tests.support.sessions import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

STRANGER = 54321
"""The id of a user and of a group that nobody else has."""

_TRIAL_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a machine has or lacks.

    Attributes:
        missing: returns why it is not there, or nothing if it is.
        variable: set to 1, it makes the test fail instead of being skipped.

    """

    missing: Callable[[], str]
    variable: str

    def check(self) -> None:
        """Skip the test, or fail it, if this is missing."""
        if reason := self.missing():
            skip_or_fail(reason, self.variable)


def skip_or_fail(reason: str, variable: str) -> NoReturn:
    """Skip the test; fail it if the variable says that nothing may be missing."""
    if os.environ.get(variable, "0") not in {"", "0"}:
        pytest.fail(f"{reason} ({variable} is set)", pytrace=False)
    pytest.skip(reason)


def needs(*wanted: Need) -> pytest.MarkDecorator:
    """Return the mark of a test that needs something; ``tests/conftest.py`` checks it before the fixtures."""
    return pytest.mark.needs(*wanted)


def program(name: str, package: str, variable: str = "CI") -> Need:
    """Return the need for a program."""

    def missing() -> str:
        return "" if shutil.which(name) else f"{name} is not installed: apt-get install {package}"

    return Need(missing, variable)


def git_since(*version: int) -> Need:
    """Return the need for a git of a version, for example ``git_since(2, 36)``."""

    def missing() -> str:
        found = _git_version()
        return "" if found >= version else f"git {_numbers(found)} is older than {_numbers(version)}"

    return Need(missing, "REQUIRE_NEW_GIT")


@cache
def _git_version() -> tuple[int, ...]:
    return parse_version(subprocess.run(("git", "version"), capture_output=True, check=True).stdout)


def _numbers(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _refusal(*words: str | Path) -> str:
    """Run a trial, and return why it failed, in a line."""
    try:
        tried = subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=False, timeout=_TRIAL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if tried.returncode == 0:
        return ""
    return " ".join(tried.stderr.split()) or f"{words[0]} ended with {tried.returncode}"


@cache
def _cannot_mount() -> str:
    with tempfile.TemporaryDirectory() as directory:
        if refusal := _refusal("mount", "-t", "tmpfs", "none", directory):
            return f"the kernel lets these tests mount nothing: {refusal}"
        subprocess.run(("umount", directory), check=True)
    return ""


@cache
def _cannot_make_pid_namespaces() -> str:
    refusal = _refusal("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "true")
    return refusal and f"the kernel lets these tests make no pid namespace: {refusal}"


@cache
def _cannot_be_others() -> str:
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.chown(file.name, STRANGER, STRANGER)
            subprocess.run(("true",), user=STRANGER, group=STRANGER, extra_groups=(), check=True)
            Path(file.name).read_bytes()
        except OSError as error:
            return f"the kernel lets these tests neither give files away nor become another user: {error}"
    return ""


@cache
def _cannot_make_devices() -> str:
    with tempfile.TemporaryDirectory() as directory:
        null = Path(directory, "null")
        try:
            os.mknod(null, 0o600 | 0o020000, os.makedev(1, 3))
        except OSError as error:
            return f"the kernel lets these tests make no device: {error}"
    return ""


@cache
def _cannot_drop_capabilities() -> str:
    none_left = ("grep", "-qE", "^CapBnd:[[:space:]]*0+$", "/proc/self/status")  # setpriv may say nothing
    refusal = _refusal("setpriv", "--bounding-set=-all", "--inh-caps=-all", *none_left)
    return refusal and f"the kernel lets these tests drop no capabilities: {refusal}"


@cache
def _hides_the_program() -> str:
    if refusal := _cannot_be_others():
        return refusal
    try:
        subprocess.run((PROGRAM, "version"), user=STRANGER, group=STRANGER, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"other users cannot run what is in the directory of this checkout: {error}"
    return ""


RIGHTS = "REQUIRE_RIGHTS"

MOUNTS = Need(_cannot_mount, RIGHTS)
PID_NAMESPACES = Need(_cannot_make_pid_namespaces, RIGHTS)
OTHER_USERS = Need(_cannot_be_others, RIGHTS)
DEVICES = Need(_cannot_make_devices, RIGHTS)
CAPABILITY_DROPS = Need(_cannot_drop_capabilities, RIGHTS)
PROGRAM_FOR_OTHERS = Need(_hides_the_program, RIGHTS)

needs_mounts = needs(MOUNTS)
needs_pid_namespaces = needs(PID_NAMESPACES)
needs_other_users = needs(OTHER_USERS)

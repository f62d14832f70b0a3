"""What decides whether a test is skipped says both: what is missing, and that nothing is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import needs
from tests.support.git_servers import SSH_SERVER
from tests.support.needs import Need, program, skip_or_fail

ROOT = Path(__file__).parents[1]

RIGHTS = ("MOUNTS", "PID_NAMESPACES", "OTHER_USERS", "DEVICES", "CAPABILITY_DROPS", "PROGRAM_FOR_OTHERS")

FOR_ALL_RIGHTS = sum(1 << capability for capability in (0, 1, 6, 7, 8, 18, 21, 27))
"""CHOWN, DAC_OVERRIDE, SETGID, SETUID, SETPCAP, SYS_CHROOT, SYS_ADMIN, MKNOD: see capabilities(7)."""

WITHOUT_CAPABILITIES = """
import ctypes, sys
from tests.support import needs
library = ctypes.CDLL(None, use_errno=True)
header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
for capability in {*range(64)} - {18}:  # one stays that could be dropped: CAP_SYS_CHROOT
    library.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
assert library.capset(header, nothing) == 0
print(getattr(needs, sys.argv[1]).missing())
"""
"""Runs a trial after the process has given up what root may do. Programs that it runs get nothing back."""


def _asked(program: str, right: str, *under: str) -> str:
    words = (*under, sys.executable, "-c", program, right)
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("right", RIGHTS)
def test_a_right_that_the_kernel_refuses_is_missing(right: str) -> None:
    """The user id is the same as with it."""
    assert "kernel lets these tests" in _asked(WITHOUT_CAPABILITIES, right)


@pytest.mark.parametrize("right", RIGHTS)
def test_a_right_that_the_kernel_grants_is_there(right: str) -> None:
    """Root with the capabilities for it has every right, but what a mount takes away: no test is skipped."""
    status = Path("/proc/self/status").read_text()
    capabilities = re.search(r"^CapEff:\s*(\w+)$", status, re.MULTILINE)
    filtered = re.search(r"^Seccomp:\s*[12]$", status, re.MULTILINE)
    if not capabilities or int(capabilities[1], 16) & FOR_ALL_RIGHTS != FOR_ALL_RIGHTS or filtered:
        skip_or_fail("this process has not all capabilities of root", needs.RIGHTS)
    need: Need = getattr(needs, right)
    if right == "PROGRAM_FOR_OTHERS" and not all(path.stat().st_mode & 1 for path in ROOT.parents):
        assert "other users cannot run" in need.missing()
    else:
        assert need.missing() == ""


def test_a_program_is_there_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By PATH; the reason has the command that installs it."""
    assert program("git", "git").missing() == ""
    monkeypatch.setenv("PATH", os.devnull)
    assert program("git", "git").missing() == "git is not installed: apt-get install git"


def test_an_ssh_server_is_missing_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither part is enough."""
    monkeypatch.setenv("PATH", os.devnull)
    assert "ssh-keygen" in SSH_SERVER.missing()


@pytest.mark.parametrize("value", ["1", "true"])
def test_a_missing_part_that_is_required_is_a_failure(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """The variable of CI; unset, empty or 0, it is a skip with the reason."""
    need = Need(lambda: "no such thing", "REQUIRE_SUCH")
    for unset in ("", "0"):
        monkeypatch.setenv("REQUIRE_SUCH", unset)
        with pytest.raises(pytest.skip.Exception, match=r"^no such thing$"):
            need.check()
    monkeypatch.setenv("REQUIRE_SUCH", value)
    with pytest.raises(pytest.fail.Exception, match="no such thing"):
        need.check()
    Need(lambda: "", "REQUIRE_SUCH").check()

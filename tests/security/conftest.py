"""What the tests of the sandbox need of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from ralph_wrap.session.sandbox import launcher

PYTHON = f"{os.path.realpath(sys.executable)} -I -S"


def _works() -> bool:
    trial = ("bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--unshare-net", "--proc", "/proc", "true")
    return shutil.which("bwrap") is not None and subprocess.run(trial, check=False).returncode == 0


@pytest.fixture
def bwrap() -> str:
    """Return the option for bubblewrap. Without it tests are skipped, or fail with REQUIRE_SANDBOX=1."""
    if not _works():
        if os.environ.get("REQUIRE_SANDBOX") == "1":
            pytest.fail("bubblewrap makes no sandbox here")
        pytest.skip("bubblewrap makes no sandbox here")
    return "bwrap"


@pytest.fixture
def landlock() -> str:
    """Return the option for Landlock; a kernel that has none skips the test."""
    if launcher.landlock_abi() < launcher.SCOPES_SINCE:
        pytest.skip("this kernel has no Landlock that stops signals")
    return "landlock"

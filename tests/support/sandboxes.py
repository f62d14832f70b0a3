"""Whether this machine makes sandboxes, and what runs in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PYTHON = f"{os.path.realpath(sys.executable)} -I -S"
"""A Python that a sandbox can run: a virtual environment may be in a directory that it hides."""


def bubblewrap_works() -> bool:
    """Return whether bubblewrap makes a sandbox here."""
    trial = ("bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--unshare-net", "--proc", "/proc", "true")
    return shutil.which("bwrap") is not None and subprocess.run(trial, check=False).returncode == 0

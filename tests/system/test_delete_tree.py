"""The program that deletes a worktree in the background."""

from __future__ import annotations

import subprocess
import sys

from ralph_wrap.system import delete_tree


def test_it_loads_what_python_has_loaded_for_itself() -> None:
    """Each session starts it: with ``re`` and ``contextlib`` its start takes twice the processor time."""
    line = (sys.executable, "-I", "-S", "-X", "importtime", delete_tree.__file__, "marker")
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "os" in loaded
    assert not loaded & {"re", "contextlib", "collections", "enum", "pathlib"}

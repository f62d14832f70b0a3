"""The command that adds an optional library fits the way in which ralph-wrap was installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ralph_wrap.interfaces.cli.installation import command_to_add

ROOT = Path(__file__).parents[3]


def test_pipx_adds_to_the_environment_that_it_made(tmp_path: Path) -> None:
    """Its name is that of the directory, which may have a suffix."""
    prefix = tmp_path / "ralph-wrap@next"
    prefix.mkdir()
    (prefix / "pipx_metadata.json").write_text("{}")
    assert command_to_add("mcp", prefix) == ["pipx", "inject", "ralph-wrap@next", "mcp>=2.0"]


def test_uv_installs_the_tool_again_with_the_library(tmp_path: Path) -> None:
    """From the place that it came from: the name alone would be looked up in an index."""
    (tmp_path / "uv-receipt.toml").write_text("[tool]\n")
    recorded = distribution("ralph-wrap").read_text("direct_url.json")
    assert recorded is not None
    source = urlsplit(json.loads(recorded)["url"]).path
    assert command_to_add("mcp", tmp_path) == ["uv", "tool", "install", "--with", "mcp>=2.0", source]
    assert Path(source) == ROOT


def test_a_virtual_environment_uses_its_own_pip(tmp_path: Path) -> None:
    """The one whose Python runs this, whatever is first on PATH."""
    assert command_to_add("mcp", tmp_path) == [sys.executable, "-m", "pip", "install", "mcp>=2.0"]


@pytest.mark.parametrize("module", ["pip", "sysconfig"])
def test_an_environment_without_pip_and_a_python_of_debian(tmp_path: Path, module: str) -> None:
    """`uv venv` puts no pip into its environments; Debian's pip needs a word to change its Python."""
    code = {
        "pip": "import importlib.util as u; u.find_spec = lambda name: None",
        "sysconfig": "import sys, sysconfig; sys.base_prefix = sys.prefix; "
        f"sysconfig.get_path = lambda name: {os.fspath(tmp_path)!r}",
    }[module]
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    script = (
        f"{code}\nfrom pathlib import Path\n"
        "from ralph_wrap.interfaces.cli.installation import command_to_add\n"
        "print(*command_to_add('mcp', Path('/nowhere')))"
    )
    done = subprocess.run((sys.executable, "-c", script), check=True, capture_output=True, text=True)
    begun = {
        "pip": f"uv pip install --python {sys.executable}",
        "sysconfig": f"{sys.executable} -m pip install --break-system-packages",
    }[module]
    assert done.stdout == f"{begun} mcp>=2.0\n"

"""How this ralph-wrap was installed, and the command that adds a library to it."""

from __future__ import annotations

import json
import shlex
import sys
import sysconfig
from contextlib import contextmanager
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ralph_wrap.errors import RalphError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "ralph-wrap"


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Explain a failed import: an optional part of the package may not be installed.

    Arguments:
        name: of the command, and of the extra that it needs.

    Raises:
        RalphError: the import failed.

    """
    try:
        yield
    except ImportError as error:
        raise RalphError(
            f"{name}: the optional dependencies are not installed, or too old ({error})",
            shlex.join(command_to_add(name, Path(sys.prefix))),
        ) from error


def command_to_add(extra: str, prefix: Path) -> list[str]:
    """Return the command line that adds the libraries of an extra to this installation.

    Each installer has its own. Environments of pipx and uv may have no pip, and an upgrade drops what pip
    has added to them.

    Arguments:
        extra: its name.
        prefix: the directory of the environment.

    """
    libraries = _libraries(extra)
    if (prefix / "uv-receipt.toml").exists():
        return [
            "uv",
            "tool",
            "install",
            *(word for name in libraries for word in ("--with", name)),
            _source(),
        ]
    if (prefix / "pipx_metadata.json").exists():
        return ["pipx", "inject", prefix.name, *libraries]
    if find_spec("pip") is None:  # as in an environment that `uv venv` makes
        return ["uv", "pip", "install", "--python", sys.executable, *libraries]
    forced = ["--break-system-packages"] if _is_managed() else []
    return [sys.executable, "-m", "pip", "install", *forced, *libraries]


def _libraries(extra: str) -> list[str]:
    """Return what an extra needs, with its versions, as the metadata of the installation has it."""
    needed = [line.partition(";") for line in distribution(_NAME).requires or ()]
    return [name.strip() for name, _, condition in needed if f"extra=='{extra}'" in _plain(condition)]


def _plain(condition: str) -> str:
    return condition.replace(" ", "").replace('"', "'")


def _source() -> str:
    """Return where this installation came from: a directory, a repository, or the name in a package index."""
    recorded = distribution(_NAME).read_text("direct_url.json")  # PEP 610
    if recorded is None:
        return _NAME
    origin = json.loads(recorded)
    if origin["url"].startswith("file:"):
        return unquote(urlsplit(origin["url"]).path)
    tool = origin.get("vcs_info", {}).get("vcs")
    return f"{tool}+{origin['url']}" if tool else str(origin["url"])


def _is_managed() -> bool:
    """Return whether this Python belongs to a distribution, and refuses pip (PEP 668)."""
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    return sys.prefix == sys.base_prefix and marker.exists()

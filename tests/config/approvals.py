"""Sessions that need an approval."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.sessions import Result, command

if TYPE_CHECKING:
    from tests.support.repo import Repo


SH = ("-n", "1", "--", "sh", "-c")

SETUP = "touch ready"


def answered(cwd: Path, *arguments: str, **environ: str) -> Any:
    """Run ``ralph-wrap trust --json`` and return its data."""
    ended = command("trust", *arguments, "--json", cwd=cwd, env=environ)
    assert ended.status == 0, ended.stdout
    return json.loads(ended.stdout)["data"]


def session(app: Repo, **environ: str) -> Result:
    """Run a session whose agent fails unless the setup was run."""
    return command("run", *SH, "test -e ready", cwd=app.path, env=environ)


def approval(app: Repo) -> Path:
    """Return the file that holds the project's approval."""
    assert answered(app.path)["approved"]
    [path] = Path(os.environ["XDG_STATE_HOME"]).glob("ralph-wrap/trust/*")
    return path


def refused(ended: Result) -> bool:
    """Return whether a session was refused for this reason, with the way out."""
    said = "the project has settings that you have not approved: setup"
    return ended.status == 125 and said in ended.stderr and "ralph-wrap trust -C " in ended.stderr

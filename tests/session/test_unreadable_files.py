"""Files that git cannot read: what it can read is saved, and the session does not try each of the others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.support.git_shim import shim_git
from tests.support.sessions import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.repo import Repo

NOT_EVEN_ROOT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Starts a program that has no more right to files than their modes give."""

AGENT = "mkdir odd; for i in $(seq 64); do echo x > odd/$i; chmod 0 odd/$i; done; echo work > work"


def test_they_cost_no_process_each(repo: Repo, tmp_path: Path) -> None:
    """A container leaves thousands that only root may read; git adds all others at once."""
    calls = tmp_path / "calls"
    path = shim_git(tmp_path / "bin", f'*) echo "$*" >> {calls} ;;')
    under = NOT_EVEN_ROOT if os.geteuid() == 0 else ()
    ended = run(repo.path, "-n", "1", "--", "sh", "-c", AGENT, env={"PATH": path}, under=under)
    assert ended.report["kept"].startswith("64 files cannot be saved"), ended.stderr
    assert repo.git("show", f"{ended.report['branch']}-wip:work") == "work"
    assert len([line for line in calls.read_text().splitlines() if " update-index " in line]) <= 2

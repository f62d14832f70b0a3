"""The real agents in a sandbox: each works with what it can write there."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.agents.capture import PROMISE
from tests.agents.programs import WHO_COMMITS
from tests.agents.script import Say, Shell
from tests.agents.server import Model
from tests.agents.test_sessions import ASKED, COMMIT, PATIENCE
from tests.support.agent_script import TRUSTED
from tests.support.sessions import Session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agents.programs import Program
    from tests.agents.script import Turn
    from tests.support.repo import Repo

pytestmark = [
    pytest.mark.agents,
    pytest.mark.timeout(180),  # opencode takes 4 to 8 s for an answer that comes at once
]


@pytest.mark.parametrize("program", WHO_COMMITS, indirect=True)
def test_a_real_agent_works_in_a_sandbox(program: Program, repo: Repo, tmp_path: Path, bwrap: str) -> None:
    """It runs for the first time, commits in two iterations, and writes nothing else in the project."""
    iteration = tmp_path / "iteration"
    iteration.touch()  # the launcher of the tests writes it
    repo.write(".ralph/config.toml", f"sandbox_write = {json.dumps([os.fspath(iteration)])}\n")
    attack = f'echo x > "{repo.path}/owned"; echo x > "{tmp_path}/home/owned"'
    work = Shell(f'{attack}; echo "$RALPH_ITERATION" >> counted; {COMMIT}', "Working.")
    script: list[list[Turn]] = [[work, Say("Done.")], [work, Say(f"Done.\n{PROMISE}")]]
    with Model(script, iteration) as model:
        env = program.set_up(tmp_path / "home", model.url, iteration)
        env.pop("CLAUDE_CONFIG_DIR", None)  # as most users run it: its files are in the home itself
        arguments = ("-a", program.name, "-p", ASKED, "--ignore", "exclude", "--sandbox", bwrap)
        with Session(repo.path, *arguments, env={**env, **TRUSTED}) as session:
            result = session.finish(PATIENCE)
    assert result.ending == ("promise", 2, 0), result.stderr
    assert repo.show(f"{result.report['branch']}:counted") == b"1\n2\n"
    assert not (repo.path / "owned").exists()
    assert not (tmp_path / "home/owned").exists()

"""An agent that keeps each prompt, and works until the test lets it go on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tests.support.sessions import Session, command
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result

PROMPT = "Do the task.\n"

_SCRIPT = """#!/bin/sh
cat > "{0}/.prompt"; mv "{0}/.prompt" "{0}/prompt-$RALPH_ITERATION"
echo "$RALPH_ITERATION" >> work
until [ -e "{0}/go-$RALPH_ITERATION" ]; do sleep 0.05; done
. "{0}/go-$RALPH_ITERATION"
"""


class Told(NamedTuple):
    """A session with such an agent.

    Attributes:
        repo: its project.
        directory: where the agent keeps its prompts.
        session: the session itself.

    """

    repo: Repo
    directory: Path
    session: Session

    @property
    def id(self) -> str:
        """Its agent id."""
        return self.session.directory.name.rpartition("-")[2]

    def tell(self, *words: str, env: Mapping[str, str] | None = None) -> Result:
        """Tell it something."""
        return command("tell", self.id, *words, cwd=self.repo.path, env=env)

    def await_prompt(self, number: int) -> str:
        """Return the prompt of an iteration, once its agent has it."""
        path = self.directory / f"prompt-{number}"
        eventually(path.exists, f"the prompt of iteration {number}")
        return path.read_text(errors="surrogateescape")

    def let_go(self, number: int, then: str = "exit 0") -> None:
        """Have the agent of an iteration end, by a line of a shell."""
        path = self.directory / f"go-{number}"
        path.with_suffix(".new").write_text(f"{then}\n")
        path.with_suffix(".new").rename(path)


def agent(directory: Path) -> str:
    """Write the agent, and return its command."""
    directory.mkdir(exist_ok=True)
    path = directory / "agent"
    path.write_text(_SCRIPT.format(directory))
    path.chmod(0o755)
    return os.fspath(path)


@contextmanager
def telling(
    repo: Repo, directory: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[Told]:
    """Run a session that can be told something."""
    words = ("-p", PROMPT, *options, "--", agent(directory))
    with Session(repo.path, *words, env=env) as session:
        yield Told(repo, directory, session)

"""Whatever a test of whole sessions has started ends with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.scripted import TRUSTED
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.repo import Repo
    from tests.support.sessions import Result


@pytest.fixture(autouse=True)
def _ended(ended: None) -> None:
    """Leave nothing running."""


@pytest.fixture
def mine(repo: Repo, script: Callable[[str], str]) -> Callable[..., Result]:
    """Return a function that runs a shell script as the agent ``mine``."""

    def run_it(
        body: str, *options: str, words: str = "", env: Mapping[str, str] = {}, **table: Any
    ) -> Result:
        lines = [f"{key} = {json.dumps(value)}" for key, value in {"output": "claude", **table}.items()]
        lines += [f"env.{name} = {json.dumps(value)}" for name, value in env.items()]
        argv = [script(body), *words.split()]
        content = "\n".join(["[agents.mine]", f"command = {json.dumps(argv)}", *lines])
        repo.write(".ralph/config.toml", content + "\n")
        return run(repo.path, "-a", "mine", "-p", "do it", *options, env=TRUSTED)

    return run_it

"""Real agents go on with their own session, from one iteration to the next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.agents.programs import PROGRAMS
from tests.agents.script import Say
from tests.agents.server import Model
from tests.support.sessions import Session, start

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agents.programs import Program
    from tests.support.repo import Repo
    from tests.support.sessions import Result

pytestmark = [
    pytest.mark.agents,
    pytest.mark.timeout(180),  # opencode takes 4 to 8 s for an answer that comes at once
    pytest.mark.usefixtures("trusted"),
]

PATIENCE = 150.0  # seconds
REMEMBERED = "The word is albatross."
TOKENS = 1100  # of a turn
STORES = (".claude/projects", ".codex/sessions", ".gemini/tmp", ".local/share/opencode")  # below HOME


def _ask(
    program: Program,
    repo: Repo,
    tmp_path: Path,
    *,
    keep: bool,
    iterations: int = 2,
    forgetful: bool = False,
) -> tuple[Result, list[str]]:
    """Run a session, and return it with the conversation that the model has seen last in each iteration."""
    repo.write(".ralph/config.toml", f"keep_conversation = {json.dumps(keep)}\n")
    home, iteration = tmp_path / "home", tmp_path / "iteration"
    script = [[Say(f"{REMEMBERED} {number}.")] for number in range(1, iterations + 1)]
    with Model(script, iteration) as model:
        env = program.set_up(home, model.url, iteration)
        launcher = home / "bin" / program.name
        first, *rest = launcher.read_text().splitlines()
        stores = " ".join(f"'{home / store}'" for store in STORES)
        forget = [f'[ "$RALPH_ITERATION" = 2 ] && rm -rf {stores}'] if forgetful else []
        launcher.write_text("\n".join([first, *forget, *rest, ""]))
        options = ("-a", program.name, "-p", "Go on.", "-n", str(iterations), "--max-stalls", "0")
        with Session(repo.path, *options, "--ignore", "exclude", env=env) as session:
            result = session.finish(PATIENCE)
        return result, [json.dumps(body) for _, body in model.requests]


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_it_remembers_the_iteration_before(program: Program, repo: Repo, tmp_path: Path) -> None:
    """The model is shown what it has said then; what was spent is counted once."""
    result, seen = _ask(program, repo, tmp_path, keep=True)
    assert result.ending == ("max-iterations", 2, 0)
    if program.name == "qwen":  # after its answer it asks what of it to keep in its memory
        seen = [request for request in seen if "Go on." in json.dumps(json.loads(request)["messages"][-1])]
    assert [request.count(REMEMBERED) for request in seen] == [0, 1]
    assert result.report["tokens"] == (None if program.name in {"copilot", "kimi"} else TOKENS * 2)
    assert result.stdout.decode().count(REMEMBERED) == 2
    assert result.warnings == []


@pytest.mark.parametrize("program", ["claude", "codex"], indirect=True)
def test_each_iteration_begins_anew_by_default(program: Program, repo: Repo, tmp_path: Path) -> None:
    """Negative control."""
    result, seen = _ask(program, repo, tmp_path, keep=False)
    assert (result.ending, [request.count(REMEMBERED) for request in seen]) == (
        ("max-iterations", 2, 0),
        [0, 0],
    )


def test_a_session_that_is_gone_is_not_asked_for_again(program: Program, repo: Repo, tmp_path: Path) -> None:
    """The agent fails with it; the iteration after that begins a new one."""
    result, seen = _ask(program, repo, tmp_path, keep=True, iterations=3, forgetful=True)
    assert result.ending == ("max-iterations", 3, 0)
    assert [request.count(REMEMBERED) for request in seen] == [0, 0]
    assert [
        printed["event"] for printed in result.warnings if printed["event"].startswith("conversation")
    ] == ["conversation.failed"]


@pytest.mark.parametrize("message", ["", "Use tabs."])
def test_a_resumed_session_remembers(program: Program, repo: Repo, tmp_path: Path, message: str) -> None:
    """The agent goes on with the conversation of the earlier session, in the new worktree."""
    repo.write(".ralph/config.toml", "keep_conversation = false\n")
    home, iteration = tmp_path / "home", tmp_path / "iteration"
    with Model([[Say(f"{REMEMBERED} 1.")]], iteration) as model:
        env = program.set_up(home, model.url, iteration)
        options = ("-a", program.name, "-p", "Go on.", "-n", "1", "--max-stalls", "0", "--ignore", "exclude")
        with Session(repo.path, *options, env=env) as session:
            first = session.finish(PATIENCE)
        said = ("-m", message) if message else ()
        with start("resume", first.report["id"], *said, cwd=repo.path, env=env) as resumed:
            _, errors = resumed.communicate(timeout=PATIENCE)
        assert resumed.wait() == 0, errors.decode()
        seen = [json.dumps(body) for _, body in model.requests]
    assert [request.count(REMEMBERED) for request in seen] == [0, 1], errors.decode()
    assert not message or message in seen[-1]

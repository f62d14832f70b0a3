"""The JSON envelope of every command that has ``--json``, found by asking Typer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer import BadParameter

from ralph_wrap import errors
from ralph_wrap.interfaces.cli.app import all_loaded, app
from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo
    from tests.support.sessions import Result


def _commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from _commands(found, *path, name)
        else:
            yield (*path, name), found


EVERY = dict(_commands(all_loaded()))
WITH_JSON = [path for path, found in EVERY.items() if any(known.name == "json" for known in found.params)]
WITH_AN_ARGUMENT = [
    path for path in WITH_JSON if any(known.param_type_name == "argument" for known in EVERY[path].params)
]

STATUSES = {
    kind.code: kind.exit_code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.RalphError)
    if not issubclass(kind, errors.AgentError)
}
"""Each ``error.code`` with its exit status."""

_ids = " ".join


def _assert_envelope(result: Result, tool: str) -> dict[str, Any]:
    """Check that one envelope is all there is on stdout, and return it."""
    lines = result.stdout.decode().splitlines()
    assert len(lines) == 1, (result.stdout, result.stderr)
    envelope: dict[str, Any] = json.loads(lines[0])
    assert (envelope["version"], envelope["tool"]) == (1, tool)
    assert envelope["success"] is (result.status == 0)
    if envelope["success"]:
        assert envelope.keys() == {"version", "success", "tool", "data"}
    else:
        assert envelope.keys() - {"data"} == {"version", "success", "tool", "error"}
        assert envelope["error"].keys() == {"code", "message", "hint"}
        assert STATUSES[envelope["error"]["code"]] == result.status
    return envelope


def test_commands_are_found() -> None:
    """Those that are there at least."""
    assert {("ps",), ("doctor",), ("sweep",)} <= {*WITH_JSON}
    assert ("run",) in EVERY.keys() - {*WITH_JSON}


@pytest.mark.parametrize("path", WITH_JSON, ids=_ids)
def test_the_answer_is_in_the_envelope(repo: Repo, path: tuple[str, ...]) -> None:
    """Whether there is one, or a reason why there is none."""
    words = ["0000"] * (path in WITH_AN_ARGUMENT) + ["a message"] * (path == ("tell",))
    envelope = _assert_envelope(command(*path, *words, "--json", cwd=repo.path), " ".join(path))
    assert envelope.get("error", {}).get("code") != "usage", envelope


@pytest.mark.parametrize("path", WITH_JSON, ids=_ids)
def test_a_mistake_is_in_the_envelope(repo: Repo, path: tuple[str, ...]) -> None:
    """An option that is not there, wherever ``--json`` stands; nothing is on stderr."""
    for words in (("--json", "--nonsense"), ("--nonsense", "--json")):
        result = command(*path, *words, cwd=repo.path)
        envelope = _assert_envelope(result, " ".join(path))
        assert (result.status, result.stderr) == (2, "")
        assert envelope["error"]["code"] == "usage"
        assert "--nonsense" in envelope["error"]["message"]
        assert envelope["error"]["hint"] == f"see ralph-wrap {' '.join(path)} --help"


def test_a_missing_value_is_in_the_envelope(repo: Repo) -> None:
    """In one line, too."""
    envelope = _assert_envelope(command("ps", "--json", "--project", cwd=repo.path), "ps")
    assert envelope["error"] == {
        "code": "usage",
        "message": "Option '--project' requires an argument.",
        "hint": "see ralph-wrap ps --help",
    }


@pytest.mark.parametrize("words", [("--merged=yes", "--json"), ("--json", "--merged=yes")], ids=_ids)
def test_a_switch_with_a_value_fails_in_the_envelope(repo: Repo, words: tuple[str, ...]) -> None:
    """Wherever ``--json`` stands."""
    envelope = _assert_envelope(command("drop", *words, cwd=repo.path), "drop")
    assert envelope["error"] == {
        "code": "usage",
        "message": "Option '--merged' does not take a value.",
        "hint": "see ralph-wrap drop --help",
    }


@pytest.mark.parametrize("words", [("review", "--json", "--nonsense"), ("drop", "--json", "--merged=yes")])
def test_the_context_of_a_mistake_does_not_have_json(words: tuple[str, ...]) -> None:
    """So the command line reads the words again; if this test fails, Typer can answer."""
    mistake: Any = BadParameter.__base__
    with pytest.raises(mistake) as caught:
        app(words, standalone_mode=False)
    context = caught.value.ctx
    assert context is None or "json" not in context.params


# Without an argument, restore lists what it could bring back.
@pytest.mark.parametrize("path", [path for path in WITH_AN_ARGUMENT if path != ("restore",)], ids=_ids)
def test_a_missing_argument_is_in_the_envelope(repo: Repo, path: tuple[str, ...]) -> None:
    """Whether Typer misses it or the command itself."""
    result = command(*path, "--json", cwd=repo.path)
    envelope = _assert_envelope(result, " ".join(path))
    assert (result.status, result.stderr, envelope["error"]["code"]) == (2, "", "usage")


@pytest.mark.parametrize("path", WITH_JSON, ids=_ids)
@pytest.mark.parametrize("words", [("--nonsense",), ("--nonsense", "--", "--json")], ids=["", "behind --"])
def test_without_json_a_mistake_is_a_sentence(
    repo: Repo, path: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """On stderr, with the command that has the help."""
    result = command(*path, *words, cwd=repo.path)
    assert (result.status, result.stdout) == (2, b"")
    (printed,) = result.warnings
    assert printed["message"] == "No such option: --nonsense"
    assert printed["hint"] == f"see ralph-wrap {' '.join(path)} --help"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--nonsense", "--json"),
        ("run", "--json"),
        ("nonsense", "--json"),
        ("--json",),
        ("--nonsense", "ps", "--json"),
    ],
)
def test_what_has_no_json_tells_its_mistakes_in_words(repo: Repo, words: tuple[str, ...]) -> None:
    """A session's stdout is its agent's."""
    result = command(*words, cwd=repo.path)
    assert (result.status, result.stdout) == (2, b"")
    (printed,) = result.warnings
    assert printed["hint"] == f"see ralph-wrap {f'{words[0]} ' if words[0] == 'run' else ''}--help"


def test_other_ends_are_as_before(repo: Repo, tmp_path: Path) -> None:
    """Help and version end with 0, a project that is not there with 2, a bare call with the help and 2."""
    for words in (("--version",), ("--help",), ("ps", "--help"), ("ps", "--json", "--help")):
        result = command(*words, cwd=repo.path)
        assert (result.status, result.stderr) == (0, ""), words
        assert result.stdout, words
    assert command("ps", "-C", tmp_path / "absent", cwd=repo.path).status == 2
    bare = command(cwd=repo.path)
    assert (bare.status, b"Usage" in bare.stdout + bare.stderr.encode()) == (2, True)

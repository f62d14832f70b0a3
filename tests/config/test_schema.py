"""The JSON schema of the configuration file accepts all that its reader accepts, and refuses wrong types."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.config import KEYS, Settings, file
from ralph_wrap.config.parsers import DURATION, choice, written
from ralph_wrap.config.schema import schema
from ralph_wrap.config.settings import OnDirty
from ralph_wrap.errors import UsageError
from tests.config.test_config import VALUES
from tests.support.sessions import command

if TYPE_CHECKING:
    from tests.support.repo import Repo

SCHEMA = schema()
_VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

RIGHT = [
    *(f'{option} = "{text}"' for option, (text, _, _, _) in VALUES.items()),
    *(f'{option} = "{text}"' for option, (_, _, text, _) in VALUES.items()),
    *["max_iterations = 7", "delay = 1.5", "keep_worktree = true", "hooks = false", '"grace" = "2s"'],
    *['copy = [".env*", "!.env.x"]', 'copy = ".env*"', "copy = []", 'submodules = "init"', "max_cost = 2.5"],
    *['pool_keep = ["node_modules", "a/b/"]', 'pool_keep = ""', 'pool_keep = "a\\nb"', "pool = 2"],
    *[
        'setup = "npm ci"',
        'check = ""',
        "check_timeout = 0",
        'merge_on_complete = "main"',
        "keep_conversation = 1",
    ],
    *[
        'hooks = "YES"',
        'keep_conversation = "oFF"',
        "until = 3",
        'sparse = ["a", "b"]',
        'keep_dropped = "30d"',
        'max_output = "1.5GiB"',
        "max_output = 0",
        "max_output = 4000000",
    ],
    "",
    '[agents.mine]\ncommand = ["mine", "{prompt}"]\nprompt = "argument"',
    '[agents.mine.env]\nMINE = ""\nGIT_AUTHOR_NAME = "x"',
    '[agents.claude]\nprompt = "file"\noutput = "text"',
    "[agents]",
]
"""Files that are accepted."""

REFUSED = [
    *["zebra = 1", "[zebra]", "grace.x = 1", "grace = [1]", "grace = 2026-01-01", "submodules = true"],
    *["setup = 3", "setup = true", "setup = ['x']", "merge_on_complete = true"],
    *["copy = [1]", "max_iterations = true", "max_iterations = -1", "max_failures = 1.5", "hooks = 2"],
    *[
        'isolation = "full"',
        'on_leak = "ask"',
        "remote_beat = 0",
        "remote_beat = 601",
        "delay = -1",
        "max_output = 3999999",
    ],
    'prompt = "x"\nprompt_file = "y"',
    "agents = 3",
    "[agents]\nmine = 3",
    "[agents.mine]\ncommand = []",
    "[agents.mine]\nspeed = 1",
    "[agents.mine]\noutput = 'xml'",
    "[agents.mine]\nenv = { A = 1 }",
]
"""Files that are refused."""


def _is_read(text: str, root: Path) -> bool:
    path = root / file.CONFIG
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    try:
        values = file.read(root)
    except UsageError:
        return False
    return not {"prompt", "prompt_file"} <= values.keys()  # which config.load refuses


def _is_valid(text: str) -> bool:
    return bool(_VALIDATOR.is_valid(tomllib.loads(text)))


def test_the_schema_is_one() -> None:
    """Of the draft that it names."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$schema"]


def test_every_key_is_in_the_schema() -> None:
    """With what it does."""
    assert [*SCHEMA["properties"]] == [*KEYS]
    assert [key for key, found in SCHEMA["properties"].items() if not found["description"]] == []


@pytest.mark.parametrize("text", RIGHT)
def test_a_configuration_that_is_read_is_valid(text: str, tmp_path: Path) -> None:
    """As text, and in the types of TOML."""
    assert (_is_read(text, tmp_path), _is_valid(text)) == (True, True)


@pytest.mark.parametrize("text", REFUSED)
def test_a_refused_configuration_is_not_valid(text: str, tmp_path: Path) -> None:
    """A wrong value, a wrong type, an unknown key."""
    assert (_is_read(text, tmp_path), _is_valid(text)) == (False, False)


def test_every_default_is_valid_and_means_itself(tmp_path: Path) -> None:
    """As the schema has it, which an editor may write into the file."""
    for key, found in SCHEMA["properties"].items():
        if "default" not in found or key == "agents":
            continue
        text = f"{key} = {json.dumps(found['default'])}\n"
        assert _is_read(text, tmp_path), text
        assert _is_valid(text), text
        assert file.read(tmp_path)[key] == Settings._field_defaults[key]


@given(key=st.sampled_from(sorted({*KEYS} - {"agents", "prompt", "prompt_file"})), data=st.data())
def test_what_the_reader_accepts_is_valid(
    tmp_path_factory: pytest.TempPathFactory, key: str, data: st.DataObject
) -> None:
    """On any value that TOML and JSON write alike."""
    words = [*"019ab.-/ \n", "..", "on", "off", "True", "1.5", "90s", "report", ".git", "a/b", "\0", "ä"]
    texts = st.lists(st.sampled_from(words), max_size=3).map("".join)
    scalars = st.one_of(texts, st.booleans(), st.integers(-2, 2_000_000_000))
    value = data.draw(st.one_of(scalars, st.lists(scalars, max_size=2), st.sampled_from([0.5, -1.5, 2.25])))
    text = f"{key} = {json.dumps(value)}\n"
    root = tmp_path_factory.getbasetemp()
    assert _is_valid(text) or not _is_read(text, root)


def test_the_command_prints_the_schema(repo: Repo) -> None:
    """Alone, for a file that an editor reads; no project is needed."""
    result = command("config", "schema", cwd=repo.path.parent)
    assert (result.status, result.stderr) == (0, "")
    assert json.loads(result.stdout) == SCHEMA


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (5.0, "5s"), (90.0, "90s"), (600.0, "10m"), (3600.0, "1h"), (0.25, "0.25s"), (864e2, "1d")],
)
def test_a_duration_is_written_as_it_is_read(seconds: float, text: str) -> None:
    """In the largest unit that has no fraction."""
    assert written(seconds, DURATION) == text
    assert DURATION.read(text) == seconds


def test_other_values_are_written_as_they_are_read() -> None:
    """A list by lines, a choice by its word."""
    kind = choice(OnDirty)
    assert (written(OnDirty.WIP, kind), kind.read("wip")) == ("wip", OnDirty.WIP)
    assert re.split("\n", written(("a", "b"), kind) or "") == ["a", "b"]

"""Each command of ralph-wrap that a text of the package names: the program takes it as it stands.

The texts are found in the source, so a hint that no other test reaches is checked, too. What stands for an
id, a path or a name there is ``PLACE``.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

import pytest
import typer

from ralph_wrap.interfaces.cli.app import all_loaded
from tests.support.package_modules import PACKAGE
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.repo import Repo

UNKNOWN = cast("type[Exception]", typer.BadParameter.__bases__[0])
"""What the parser raises for an option that does not exist, or has no value."""

_NAMED = re.compile(r"ralph-wrap((?: (?:-{1,2})?[A-Za-z0-9_=./-]+)+)")
_SENTENCES = {
    *("failed", "would", "that", "session", "needs", "keeps", "is", "has", "for", "does", "did", "cannot"),
    *("and", "fetches", "PLACE", "IMAGE", "psPLACE", "could", "knows", "cleans"),
}
"""Words after the name of the program that begin no command: they go on with a sentence, or stand for one."""


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "PLACE" for part in node.values)
    return None


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are part of no other one and no docstring, and calls of command()."""
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if node not in inner and (text := _text(node)):
            yield text
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command":
            words = [_text(word) or "PLACE" for word in node.args if not isinstance(word, ast.Starred)]
            yield " ".join(words)


def _named() -> dict[str, list[str]]:
    """Return the words after each name of the program, and the modules that have them."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for text in _texts(ast.parse(path.read_text())):
            for match in _NAMED.finditer(text):
                found[match[1].strip()].append(str(path.relative_to(PACKAGE)))
    return found


def _parse(found: Any, words: list[str]) -> None:
    """Read the options of a command, and do nothing with them."""
    found.make_parser(typer.Context(found, info_name=found.name)).parse_args(words)


NAMED = _named()


@pytest.mark.parametrize("words", sorted(NAMED))
def test_a_named_command_parses(words: str) -> None:
    """Its options are those of the command, and each has its value; what follows may be a sentence."""
    name, *rest = [word.rstrip(".") for word in words.split()]
    group = all_loaded()
    if name in _SENTENCES or name.startswith("-"):
        return
    found = group.commands.get(name)
    assert found is not None, f"no command {name}, which {NAMED[words]} name"
    while rest and rest[0] in getattr(found, "commands", {}):
        found, rest = found.commands[rest[0]], rest[1:]
    try:
        _parse(found, [*rest, "PLACE"])
    except UNKNOWN as error:
        pytest.fail(f"ralph-wrap {words}: {error}; named in {NAMED[words]}")


def test_the_search_finds_commands() -> None:
    """A text of each kind: plain, with a place in it, and built by the function that quotes."""
    assert {"ps --all", "sweep --adopt PLACE", "rm PLACE"} <= {*NAMED}


def test_an_option_that_does_not_exist_is_seen() -> None:
    """As a negative control."""
    with pytest.raises(UNKNOWN):
        _parse(all_loaded().commands["rm"], ["--adopt", "PLACE"])


REFUSED = (
    *("rm NONE", "resume NONE", "merge NONE", "drop NONE", "apply NONE", "restore NONE", "diff NONE"),
    *("logs NONE", "stop NONE", "wait NONE", "tell NONE hello", "sweep --adopt NONE", "clean --dry-run"),
    *("rm ID", "apply ID", "drop ID", "drop --forever ID", "restore ID", "resume ID --branch x", "stop ID"),
    *("run -n 1", "run --agent nobody", "spawn", "batch NONE.md", "trust --revoke", "merge", "drop", "rm"),
    *("diff ID NONE", "merge ID --into NONE", "review --pr ID", "worktree exit --action remove", "pool"),
    *("worktree cleanup NONE", "fetch", "fetch --remote NONE", "resume --all", "rm --all", "drop --merged"),
    *("config show NONE", "logs", "diff", "restore", "audit --undo", "tell ID hello"),
)
"""What a user may type; ``ID`` is that of a session that has committed, and left something uncommitted."""


def test_no_hint_is_the_command_just_typed(repo: Repo) -> None:
    """And each one that names a command of ralph-wrap names one that the program takes."""
    work = "echo 1 > new; git add new; git commit -qm new; echo 2 > more"
    agent_id = run(repo.path, "-n", "1", "--", "sh", "-c", work).report["id"]
    circles, unknown = [], []
    for line in REFUSED:
        words = line.replace("ID", agent_id).split()
        result = command(*words, cwd=repo.path)
        hints = [hint for event in result.narration for hint in str(event.get("hint", "")).split("\n")]
        for hint in hints:
            for match in re.finditer(r"ralph-wrap [^;,]+", hint):
                named = shlex.split(match[0])[1:]
                circles += [f"{line}: {hint}"] * (named == words)
                unknown += [f"{line}: {hint}"] * (named[0] not in all_loaded().commands)
    assert (circles, unknown) == ([], [])

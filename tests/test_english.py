"""The English of package, tests and documents is plain: short sentences, a named actor, no riddles."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.package_modules import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = PACKAGE.parent
TESTS = Path(__file__).parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "docs").glob("*.py"),
]

LONGEST_SENTENCE = 25
"""Words; a piece of code is one."""

BANNED = {
    "who": r"(?<!\buser )(?<!\busers )(?<!\bperson )(?<!\bpeople )(?<!\breader )\bwho\b",
    "whoever": r"\b(?:whoever|whom)\b",
    "somebody": r"\b(?:somebody|someone)\b",
    "nobody": r"\b(?:nobody|no one)\b",
    "what is": r"(?:^|[.!?:;] )what is\b",
    "told": r"\btold\b",
    "so many": r"\bso many\b",
    "so long": r"\bso long\b",
    "of that": r"\bof that\b",
    "hold against": r"\b(?:hold|holds|held|holding)(?: [\w`.]+){0,4} against\b",
    "brake": r"\bbrakes?\b",
}
"""Words that hide the actor, and everyday words for terms of the field; the user may be *who*."""

BANNED_PARAMETERS = frozenset({"here", "one", "place", "there", "told", "where"})
BANNED_IN_NAMES = frozenset(
    {"nobody", "nobodys", "somebody", "somebodys", "someone", "told", "who", "whoever", "whom"}
)
"""Words of the name of a function or a class."""

_MAY_BREAK_A_RULE = re.compile(
    rf"\b(?:{'|'.join(BANNED_PARAMETERS)})\s*[:,=)]|(?:def|class)\s.*(?:{'|'.join(BANNED_IN_NAMES)})",
    re.IGNORECASE,
)
"""What a source with a wrong name has somewhere; the others need no look at their syntax."""

_MAY_BE_WRONG = re.compile(rf"\b_*(?:{'|'.join(BANNED_PARAMETERS)})_*\b")

_PRAGMA = re.compile(r"#\s*(?:noqa|type:|pragma:|ruff:|mypy:|pylint:|!).*")
_ROW = re.compile(r"\n(?=\s*(?:[-*] |\d+\. |\*{0,2}\w+: ))")


class Passage(NamedTuple):
    """A comment, a docstring or a string of a source file, or a whole document."""

    line: int
    text: str
    is_prose: bool
    """Sentences of a comment or a docstring; a string may be a template or a table."""


# What is in a document, and in a source file


def prose(text: str) -> str:
    """Return a document without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence; an item of a list, a heading and a cell of a table end one."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"``?[^`\n]+``?", "code", prose(text)))
    plain = re.sub(r"^(#+ .*)$", r"\n\1\n", plain, flags=re.MULTILINE)
    blocks = [row for block in re.split(r"\n\s*\n|\|", plain) for row in _ROW.split(block)]
    for block in blocks:
        yield from re.split(r"(?<=[.!?])\)?\s+", re.sub(r"^\s*(?:#+|[-*]|\d+\.)\s+", "", block.strip()))


def _passages(path: Path) -> Iterator[Passage]:
    text = path.read_text()
    if path.suffix == ".py":
        if "#" in text:
            yield from _comments(text)
        yield from _strings(ast.parse(text))
    else:
        yield Passage(1, prose(text), is_prose=True)


def _comments(source: str) -> Iterator[Passage]:
    """Yield the comments; lines of comment below each other are one."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = _PRAGMA.sub("", token.string).strip("# ")
        if token.type != tokenize.COMMENT or not text:
            continue
        (line, _), is_alone = token.start, token.line.lstrip().startswith("#")
        if block and not (is_alone and line == last + 1):
            yield Passage(first, "\n".join(block), is_prose=True)
            block = []
        first, last = (first if block else line), line
        block.append(text)
    if block:
        yield Passage(first, "\n".join(block), is_prose=True)


def _strings(tree: ast.Module) -> Iterator[Passage]:
    """Yield the docstrings, of attributes too, and the other strings that have a space."""
    nodes = [*ast.walk(tree)]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    in_templates = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in in_templates:
            text = node.value
        else:
            continue
        if " " in text:
            yield Passage(node.lineno, text, is_prose=id(node) in docstrings)


# What is wrong with it


def long_sentences(text: str) -> list[str]:
    """Return the sentences that have too many words."""
    return [
        sentence for sentence in sentences(text) if len(re.findall(r"[\w'./-]+", sentence)) > LONGEST_SENTENCE
    ]


def banned_words(text: str) -> list[str]:
    """Return the names of the bans that a text breaks; code in it is free."""
    plain = " ".join(re.sub(r"`[^`\n]+`", "code", text).split())
    return [name for name, pattern in BANNED.items() if re.search(pattern, plain, re.IGNORECASE)]


def _wrong_names_of(source: str) -> list[str]:
    if not _MAY_BREAK_A_RULE.search(source):
        return []
    nodes = [*ast.walk(ast.parse(source))]
    return [*_wrong_parameters(nodes), *_wrong_names(nodes)]


def _wrong_parameters(nodes: Sequence[ast.AST]) -> list[str]:
    arguments = [node for node in nodes if isinstance(node, ast.arg)]
    return [f"{node.lineno}: {node.arg}" for node in arguments if node.arg in BANNED_PARAMETERS]


def _wrong_variables(source: str) -> list[str]:
    """Return variables, attributes and functions with the name of a banned parameter.

    Fields of a class are free: some are keys of JSON answers.
    """
    if not _MAY_BE_WRONG.search(source):
        return []
    nodes = [*ast.walk(ast.parse(source))]
    bodies = [node.body for node in nodes if isinstance(node, ast.ClassDef)]
    fields = {id(field.target) for body in bodies for field in body if isinstance(field, ast.AnnAssign)}
    stored = [
        (node.lineno, node.id if isinstance(node, ast.Name) else node.attr)
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
        if id(node) not in fields
    ]
    stored += [(node.lineno, node.name) for node in nodes if isinstance(node, ast.FunctionDef)]
    return [f"{line}: {name}" for line, name in stored if name.strip("_") in BANNED_PARAMETERS]


def _wrong_names(nodes: Sequence[ast.AST]) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = [node for node in nodes if isinstance(node, kinds)]
    return [
        f"{node.lineno}: {node.name}" for node in defined if BANNED_IN_NAMES & {*node.name.lower().split("_")}
    ]


@cache
def _areas() -> dict[str, list[Path]]:
    """Return each room of the package and of the tests with its modules, and each document."""
    areas: dict[str, list[Path]] = {}
    for path in sorted([*PACKAGE.rglob("*.py"), *TESTS.rglob("*.py")]):
        if path != Path(__file__):  # its examples are wrong on purpose
            room = path.relative_to(ROOT).parts[:-1][:2]
            areas.setdefault("/".join(room), []).append(path)
    return areas | {path.relative_to(ROOT).as_posix(): [path] for path in sorted(DOCUMENTS)}


@cache
def _faults(area: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{passage.line}: {fault}"
        for path in _areas()[area]
        for passage in _passages(path)
        for fault in [
            *banned_words(passage.text),
            *(long_sentences(passage.text) if passage.is_prose else ()),
        ]
    ]


def _name_faults(area: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{fault}"
        for path in _areas()[area]
        if path.suffix == ".py"
        for fault in _wrong_names_of(path.read_text())
    ]


@pytest.mark.parametrize("area", _areas())
def test_english_is_plain(area: str) -> None:
    """Comments, docstrings, strings and documents name their actors, in short sentences."""
    assert _faults(area) == []


@pytest.mark.parametrize("area", _areas())
def test_names_are_plain(area: str) -> None:
    """A parameter says what it is, and a function or a class names its actor."""
    assert _name_faults(area) == []


def test_variables_of_the_package_are_plain() -> None:
    """Tests may say ``there`` for the other side."""
    faults = {path.relative_to(ROOT): _wrong_variables(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {path: found for path, found in faults.items() if found} == {}


# Each check can fail

LONG = " ".join(["word"] * (LONGEST_SENTENCE + 1))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (f"{LONG}.", f"{LONG[5:]}. {LONG[5:]}"),
        (f"- {LONG}", f"- {LONG[5:]}\n- {LONG[5:]}"),
        (f"| {LONG} | b |", f"| {LONG[5:]} | {LONG[5:]} |"),
        (LONG.replace("word word", "word\nword"), f"# {LONG[5:]}\n{LONG[5:]}"),
        (f"Arguments:\n  name: {LONG}", f"Arguments:\n  name: {LONG[10:]}\n  name: {LONG[10:]}"),
        (f"{LONG[5:]} `a b` c", f"{LONG[5:-5]} `a b c d`"),
    ],
)
def test_a_long_sentence_is_seen(wrong: str, right: str) -> None:
    """An item, a row and a cell end a sentence; a line does not."""
    assert long_sentences(wrong) != []
    assert long_sentences(right) == []


@pytest.mark.parametrize(
    ("ban", "wrong", "right"),
    [
        ("who", "Who is not done gets a signal", "the user who started it"),
        ("who", "it asks who\nis there", "it calls `who`"),
        ("whoever", "Whoever has the lock", "The session that has the lock"),
        ("whoever", "for whom it is", "for which it is"),
        ("somebody", "Somebody else has it", "Another process has it"),
        ("somebody", "someone", "one"),
        ("nobody", "nobody's child", "a child without a parent"),
        ("nobody", "no one", "no session"),
        ("what is", "What is there stays", "It prints what is there"),
        ("told", "the user is\ntold", "the session logs it"),
        ("so many", "so many seconds", "this number of seconds"),
        ("so long", "it waits SO long", "it waits this long"),
        ("of that", "the head of that branch", "the head of the branch"),
        ("hold against", "held by its path against the list", "compared with the list"),
        ("brake", "the brakes", "the limits"),
    ],
)
def test_a_banned_word_is_seen(ban: str, wrong: str, right: str) -> None:
    """In any case, and over the end of a line; not in code."""
    assert banned_words(wrong) == [ban]
    assert banned_words(right) == []


@pytest.mark.parametrize("ban", BANNED)
def test_each_ban_has_an_example(ban: str) -> None:
    """No pattern is here that the test above does not try."""
    marks: list[pytest.Mark] = test_a_banned_word_is_seen.pytestmark  # type: ignore[attr-defined]
    assert ban in {example[0] for example in marks[0].args[1]}


SOURCE = '''
"""Module, nobody."""

LIMIT = 3  # trailing, nobody
"""Attribute, nobody."""


def function(path: str) -> str:
    """Function, nobody."""
    # a comment that goes on
    # on its next line, nobody
    return f"message {path}, nobody"  # noqa: ANN401
'''


def test_everything_written_is_read(tmp_path: Path) -> None:
    """Comments, docstrings of modules, attributes and functions, and messages with values."""
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    found = {(passage.line, passage.text, passage.is_prose) for passage in _passages(path)}
    assert found == {
        (2, "Module, nobody.", True),
        (4, "trailing, nobody", True),
        (5, "Attribute, nobody.", True),
        (9, "Function, nobody.", True),
        (10, "a comment that goes on\non its next line, nobody", True),
        (12, "message X, nobody", False),
    }


@pytest.mark.parametrize("name", sorted(BANNED_PARAMETERS))
def test_a_banned_parameter_is_seen(name: str) -> None:
    """Of a function, by position or by name, and of a lambda; not a variable."""
    for source in (f"def f({name}): ...", f"def f(*, {name}=1): ...", f"lambda {name}: 1"):
        assert _wrong_names_of(source) == [f"1: {name}"]
    assert _wrong_names_of(f"{name} = 1") == []


@pytest.mark.parametrize("name", sorted(BANNED_PARAMETERS))
def test_a_banned_variable_is_seen(name: str) -> None:
    """Also an attribute, a function and a variable of a loop; not a field, and not a part of a word."""
    for source in (f"{name} = 1", f"self._{name} = 1", f"def _{name}(): ...", f"[1 for {name} in x]"):
        assert len(_wrong_variables(source)) == 1
    assert _wrong_variables(f"class X:\n    {name}: str") == []
    assert _wrong_variables(f"x.re{name} = print({name})") == []


@pytest.mark.parametrize("word", sorted(BANNED_IN_NAMES))
def test_a_banned_word_in_a_name_is_seen(word: str) -> None:
    """Of a test, a function or a class; as a part of another word it is free."""
    for source in (
        f"def test_{word}_is_there(): ...",
        f"async def _{word}(): ...",
        f"class {word.title()}: ...",
    ):
        assert len(_wrong_names_of(source)) == 1
    assert _wrong_names_of(f"def test_un{word}(): ...") == []

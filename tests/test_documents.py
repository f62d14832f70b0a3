"""What the documents for developers name is there."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.documents import PAGES
from tests.support.package_modules import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = PACKAGE.parent
ARCHITECTURE = ROOT / "docs/development/architecture.md"
DOCUMENTS = {path.name: path for path in (ARCHITECTURE, ROOT / "CONTRIBUTING.md", ROOT / "docs/glossary.md")}

NOT_OF_THE_REPOSITORY = ("/", "ralph/", "refs/", ".git/", ".ralph", ".venv", "origin/")
"""How paths and names begin that are a user's, or are made."""

_FILES = (".py", ".md", ".toml", ".json")
_SUFFIXES = (*_FILES, ".jsonl", ".log")
_PLACEHOLDER = "NAME"


# The parts of a document


def prose(text: str) -> str:
    """Return a document without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(text))


def _sections(text: str) -> dict[str, str]:
    """Return what is below each heading of the second level."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _rows(section: str) -> list[list[str]]:
    """Return the cells of the first table of a section, its head left out."""
    lines = section[section.index("\n|") + 1 :].split("\n\n", 1)[0].strip().split("\n")
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


# Each check returns what is wrong


def _missing_paths(text: str) -> list[str]:
    """Return the paths, and the tests in them, that are not there; a placeholder needs its folder."""
    return [found for found in _code(text) if _is_path(found) and not _is_there(found)]


def _is_path(found: str) -> bool:
    path = found.partition("::")[0]
    if not re.fullmatch(r"[\w./-]+", path) or path.startswith(NOT_OF_THE_REPOSITORY):
        return False
    return "/" in path or path.endswith(_FILES) or path == "Makefile"


def _is_there(found: str) -> bool:
    path, _, test = found.partition("::")
    if test:
        return _is_there(path) and f"\ndef {test}(" in (ROOT / path).read_text()
    if _PLACEHOLDER in path:
        return (ROOT / path[: path.index(_PLACEHOLDER)]).is_dir()
    return (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


def _missing_names(text: str) -> list[str]:
    """Return the modules, functions, classes and constants that are not there."""
    dotted = [found for found in _code(text) if _is_name(found) and not _is_importable(found)]
    classes = [
        found for found in _code(text) if re.fullmatch(r"[A-Z]\w*[a-z]\w*", found) and not _is_path(found)
    ]
    constants = [found for found in _code(text) if re.fullmatch(r"_?[A-Z][A-Z_]+", found)]
    return (
        dotted
        + [found for found in classes if found not in _classes()]
        + [found for found in constants if not re.search(rf"\b{found}\b", _sources())]
    )


def _is_name(found: str) -> bool:
    """Return whether it has the form of a name in the package, and not that of a file's."""
    return bool(re.fullmatch(r"\w+(?:\.\w+)+", found)) and not found.endswith(_SUFFIXES)


def _is_importable(name: str) -> bool:
    """Return whether a name is a module, or in one; the longest module that there is counts."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:end])
        if path.with_suffix(".py").is_file() or path.is_dir():
            found: Any = import_module(".".join(("ralph_wrap", *parts[:end])))
            break
    else:
        return False
    for part in parts[end:]:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@cache
def _classes() -> set[str]:
    """Return the names of all classes of the package and of its tests, and one of the standard library."""
    trees = (ast.parse(path.read_text()) for top in (PACKAGE, ROOT / "tests") for path in top.rglob("*.py"))
    ours = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return ours | {"Enum"}


@cache
def _sources() -> str:
    """Return all code, but for this module, which names what is not there."""
    paths = [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / ".ci/run"]
    return "\n".join(path.read_text() for path in paths if path != Path(__file__))


def _broken_links(text: str, directory: Path) -> list[str]:
    """Return the relative links that lead nowhere, to a file or to a heading of it."""
    links = re.findall(r"\[[^\]]*\]\(([^)]+)\)", prose(text))
    links += re.findall(r"^\[[^\]]+\]: (\S+)$", prose(text), re.MULTILINE)
    return [link for link in links if "://" not in link and not _leads_somewhere(link, text, directory)]


def _leads_somewhere(link: str, text: str, directory: Path) -> bool:
    name, _, heading = link.partition("#")
    path = directory / name
    if not heading:
        return path.is_file()
    if name and not path.is_file():
        return False
    headings = re.findall(r"^#+ (.+)$", path.read_text() if name else text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", words).lower().replace(" ", "-") for words in headings}
    return heading in slugs


def _wrong_rooms(text: str) -> list[str]:
    """Return what the map of the rooms lacks, has in another place, or names without a file."""
    rows = [(folder.strip("`"), named) for folder, _, named in _rows(_sections(text)["The rooms"])]
    folders = [folder for folder, _ in rows]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = contracts[0]["layers"]
    order = [] if folders == layers[1:] else [f"the order is {folders}"]
    named = [f"{folder}/{name}" for folder, names in rows for name in re.findall(r"`([^`]+)`", names)]
    there = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*")}
    return order + [name for name in named if name not in there]


CHECKS: dict[str, Callable[[str], list[str]]] = {
    "paths": _missing_paths,
    "names": _missing_names,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_is_right(document: str, check: str) -> None:
    """What it names is there."""
    assert CHECKS[check](DOCUMENTS[document].read_text()) == []


@pytest.mark.parametrize("path", [ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Relative ones, to a file and to a heading of it."""
    assert _broken_links(path.read_text(), path.parent) == []


def test_the_rooms_are_the_folders() -> None:
    """Every layer is on the map, from the top to the bottom, and so is what each of them names."""
    assert _wrong_rooms(ARCHITECTURE.read_text()) == []


def test_the_walk_names_code() -> None:
    """Each step of it, so that the check of names has something to check."""
    walk = _sections(ARCHITECTURE.read_text())["One way through: `ralph-wrap run`"]
    steps = re.split(r"^\d+\. ", walk, flags=re.MULTILINE)[1:]
    assert len(steps) > 1
    assert [step for step in steps if not any(map(_is_name, _code(step)))] == []


def test_each_term_has_a_name_or_none() -> None:
    """A row of the glossary has a term, its meaning, and one name in the code or nothing."""
    sections = _sections(DOCUMENTS["glossary.md"].read_text())
    rows = [row for section in sections.values() for row in _rows(section)]
    assert [row for row in rows if len(row) != 3 or not row[0] or not row[1].endswith(".")] == []
    assert [row for row in rows if row[2] and not _is_name(row[2].strip("`"))] == []
    terms = [row[0] for row in rows]
    assert len(terms) == len({*terms})


# Each check can fail


@pytest.mark.parametrize(
    ("check", "wrong", "right"),
    [
        ("paths", "see `tests/test_absent.py`", "see `tests/config/test_config.py`"),
        ("paths", "see `absent.md`", "see `README.md`"),
        ("paths", "see `tests/absent/`", "see `tests/crash/`"),
        ("paths", "see `ralph_wrap/absent/NAME.py`", "see `ralph_wrap/agents/NAME.py`"),
        ("paths", "see `.ci/absent`", "see `.ci/run`"),
        (
            "paths",
            "`tests/config/test_config.py::test_absent`",
            "`tests/test_documents.py::test_links_lead_somewhere`",
        ),
        ("names", "call `config.absent`", "call `config.load`"),
        ("names", "call `absent.load`", "see `events.jsonl`"),
        ("names", "call `session.absent.Session`", "call `session.session.Session.run`"),
        ("names", "a `SessionAbsent`", "a `SessionReport`"),
        ("names", "a line of `ABSENT_WORDS`", "a line of `ROWS`"),
    ],
)
def test_a_check_can_fail(check: str, wrong: str, right: str) -> None:
    """It sees what is wrong, and nothing where all is right."""
    assert CHECKS[check](wrong) != []
    assert CHECKS[check](right) == []


@pytest.mark.parametrize("link", ["absent.md", "README.md#absent", "#absent"])
def test_a_broken_link_is_seen(link: str) -> None:
    """To no file, or to no heading."""
    right = "[a](README.md), [b](README.md#why), [c](#here), [d](https://example.invalid/absent)"
    for wrong in (f"[e]({link})", f"[e][1]\n\n[1]: {link}"):
        assert _broken_links(f"# Here\n{right} {wrong}", ROOT) == [link]


def test_a_wrong_map_is_seen() -> None:
    """A folder that is missing, one in another place, and a module that is not there."""
    text = ARCHITECTURE.read_text()
    lines = text.split("\n")
    state = next(number for number, line in enumerate(lines) if line.startswith("| `state` |"))
    swapped = [*lines[: state - 1], lines[state], lines[state - 1], *lines[state + 1 :]]
    assert _wrong_rooms("\n".join(lines[:state] + lines[state + 1 :])) != []
    assert _wrong_rooms("\n".join(swapped)) != []
    assert _wrong_rooms(text.replace("`registry`", "`absent`", 1)) == ["state/absent"]

"""A file of tasks, each for a session of its own: a Markdown list with boxes, or JSON lines.

In Markdown, a task is an item of a list with a box, and what is indented below it is its detail::

    - [ ] Check the password
      An empty one is refused, too.
    - [x] Add a link to the help

Everything else is prose. An item with a box in the detail of a task is a part of the detail. In JSON
lines, each line is an object::

    {"title": "Check the password", "detail": "An empty one is refused, too.", "done": false}

A task may name its own model: by ``"model"``, or in Markdown by ``model: NAME`` as the first line of its
detail.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from ralph_wrap.config import prompt_file
from ralph_wrap.errors import NotFoundError, UsageError
from ralph_wrap.system.document import from_json

PLACE = "{task}"
"""Stands for the task in the template of its prompt."""

_MARKDOWN_SHAPE = "write a task as: - [ ] title"
_JSON_SHAPE = 'the shape is {"title": "…", "detail": "…", "done": false}'
_FIELDS = {"title": str, "detail": str, "done": bool, "model": str}
_WORDS = {str: "a text", bool: "true or false"}

_MODEL = re.compile(r"model: *(\S+) *(?:\n+|\Z)")

_TAB = 4  # columns (CommonMark)
_DIGITS = 12  # of a key
_ITEM = r"( *)(?:[-*+]|\d{1,9}[.)])"
_TASK = re.compile(_ITEM + r" +\[([ xX])\](?: +(.*))?")
_NO_TASK = re.compile(_ITEM + r" *\[[ xX]?\](?![(\[:])")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # what JSON can name, but no argument can hold


class Task(NamedTuple):
    """A task of a file.

    Attributes:
        key: names the task as long as its text stays the same, wherever it stands, and whether it is done.
        title: its first line.
        detail: its other lines; empty if there are none.
        line: number of its first line in the file.
        is_done: the file says that it is done already.
        model: the model of its agent; empty for that of the batch. It does not change the key.

    """

    key: str
    title: str
    detail: str
    line: int
    is_done: bool
    model: str = ""

    @property
    def text(self) -> str:
        """The whole task."""
        return f"{self.title}\n\n{self.detail}" if self.detail else self.title


def read_tasks(path: Path) -> list[Task]:
    """Return the tasks of a file, in its order.

    Raises:
        NotFoundError: there is no such file.
        UsageError: the file cannot be read, has a line that cannot be a task, or has no task.

    """
    try:
        content = prompt_file.read(path)
    except FileNotFoundError:
        raise NotFoundError(f"there is no task file {path}", "name a file that exists") from None
    except OSError as error:
        raise UsageError(
            f"task file {path} cannot be read: {error.strerror}", "name a file that exists"
        ) from None
    return parse_tasks(content, str(path))


def parse_tasks(content: bytes, name: str) -> list[Task]:
    """Return the tasks in the content of a file.

    Arguments:
        content: of the file.
        name: of the file, for messages.

    Raises:
        UsageError: as for :func:`read_tasks`.

    """
    lines = [_decoded(line, f"{name}:{number}") for number, line in enumerate(content.split(b"\n"), 1)]
    lines[0] = lines[0].removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")  # some editors begin a file with it
    first = next((line for line in lines if line.strip()), "")
    is_json = first.startswith("{")
    tasks = _with_keys(_json_tasks(lines, name) if is_json else _markdown_tasks(lines, name), name)
    if not tasks:
        raise UsageError(f"task file {name} has no task", _MARKDOWN_SHAPE)
    return tasks


def with_task(template: str, task: Task) -> str:
    """Return the prompt for a task.

    Raises:
        UsageError: the template has no place for a task: each session would get the same prompt.

    """
    if PLACE not in template:
        raise UsageError(
            f"the prompt has no {PLACE}, so no session would learn its task",
            f"add {PLACE} to it, or type another prompt: -p TEXT",
        )
    return template.replace(PLACE, task.text)


def _decoded(line: bytes, position: str) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise UsageError(f"{position}: this line is not UTF-8", "save the file as UTF-8") from None


def _with_keys(tasks: Iterable[Task], name: str) -> list[Task]:
    """Give each task its key: a hash of its text, and a number from the second task with the same text on."""
    seen: Counter[str] = Counter()
    keyed = []
    for task in tasks:
        if _NO_TEXT.search(task.text):
            raise UsageError(
                f"{name}:{task.line}: the task has a character that no program can be given",
                "remove the zero byte or the half of a surrogate pair",
            )
        text = json.dumps([task.title, task.detail]).encode()
        digest = hashlib.sha256(text).hexdigest()[:_DIGITS]
        seen[digest] += 1
        keyed.append(task._replace(key=digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"))
    return keyed


def _json_tasks(lines: list[str], name: str) -> Iterator[Task]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        position = f"{name}:{number}"
        try:
            fields = from_json(line.encode())
        except ValueError as error:
            raise UsageError(f"{position}: no valid JSON: {error}", _JSON_SHAPE) from None
        _check(fields, position)
        fields = {key: value for key, value in fields.items() if value is not None}
        title, _, rest = fields["title"].strip().partition("\n")
        detail = "\n".join(text for text in (rest.strip("\n"), fields.get("detail", "").strip("\n")) if text)
        yield Task(
            "", title.rstrip(), detail.rstrip(), number, fields.get("done", False), fields.get("model", "")
        )


def _check(fields: Any, position: str) -> None:
    if not isinstance(fields, dict):
        raise UsageError(f"{position}: an object is expected", _JSON_SHAPE)
    for key, value in fields.items():
        if key not in _FIELDS:
            raise UsageError(f"{position}: {key}: unknown key", f"known: {', '.join(_FIELDS)}")
        if value is None and key != "title":  # as other programs write that there is none
            continue
        if not isinstance(value, _FIELDS[key]):
            raise UsageError(f"{position}: {key}: {_WORDS[_FIELDS[key]]} is expected", _JSON_SHAPE)
    if not fields.get("title", "").strip():
        raise UsageError(f"{position}: the task has no title", _JSON_SHAPE)


def _markdown_tasks(lines: list[str], name: str) -> Iterator[Task]:
    """Return the items that have a box, unless they are in the detail of another one.

    What is an item, and where it ends, CommonMark says: https://spec.commonmark.org/0.31.2/#list-items
    """
    # A single carriage return would end a line for the parser, and move the numbers of all others.
    tokens = MarkdownIt("commonmark").parse("\n".join(lines).replace("\r", " "))
    end = 0  # the line after the last task
    for token in tokens:
        if token.map is None or token.map[0] < end:
            continue
        start = token.map[0]
        line = lines[start].expandtabs(_TAB).rstrip()
        if token.type == "list_item_open" and (found := _TASK.fullmatch(line)):
            title = (found[3] or "").strip()
            if not title:
                raise UsageError(f"{name}:{start + 1}: the task has no title", _MARKDOWN_SHAPE)
            end = token.map[1]
            detail = _detail(lines[start + 1 : end])
            model = _MODEL.match(detail)
            rest = detail[model.end() :] if model else detail
            yield Task("", title, rest, start + 1, found[2] != " ", model[1] if model else "")
        elif token.type in {"inline", "code_block"}:
            _require_no_box(lines, range(*token.map), name)


def _require_no_box(lines: list[str], prose: Iterable[int], name: str) -> None:
    """Check that no line of prose or of indented code looks like a task: the user would miss it later."""
    for number in prose:
        line = lines[number].expandtabs(_TAB)
        if _NO_TASK.match(line) or _TASK.fullmatch(line.rstrip()):
            raise UsageError(f"{name}:{number + 1}: this is no task", _MARKDOWN_SHAPE)


def _detail(lines: list[str]) -> str:
    """Return lines without the indentation that all of them have."""
    expanded = [line.expandtabs(_TAB).rstrip() for line in lines]
    indented = [len(line) - len(line.lstrip()) for line in expanded if line.startswith(" ")]
    common = min(indented, default=0)
    return "\n".join(line[common:] if line.startswith(" ") else line for line in expanded).strip("\n")

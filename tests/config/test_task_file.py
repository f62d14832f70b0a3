"""What a file of tasks means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralph_wrap.config.task_file import Task, parse_tasks, read_tasks, with_task
from ralph_wrap.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def _parsed(text: str) -> list[tuple[str, str, int, bool]]:
    tasks = parse_tasks(text.encode(), "T.md")
    return [(task.title, task.detail, task.line, task.is_done) for task in tasks]


MARKDOWN = {
    "one": ("- [ ] a", [("a", "", 1, False)]),
    "done": ("- [x] a\n- [X] b", [("a", "", 1, True), ("b", "", 2, True)]),
    "marks": (
        "* [ ] a\n+ [ ] b\n1. [ ] c\n2) [ ] d",
        [(name, "", n, False) for n, name in enumerate("abcd", 1)],
    ),
    "prose": ("# Plan\n\ntext\n- item\n- [link](x)\n- [ref]: x\n- [ ] a\n", [("a", "", 7, False)]),
    "detail": ("- [ ] a\n  one\n\n  two\n- [ ] b", [("a", "one\n\ntwo", 1, False), ("b", "", 5, False)]),
    "detail keeps its shape": ("- [ ] a\n    def x():\n        y\n", [("a", "def x():\n    y", 1, False)]),
    "tabs": ("- [ ] a\n\tone\n\t\ttwo", [("a", "one\n    two", 1, False)]),
    "an item below belongs to it": ("- [ ] a\n  - [ ] b\n  - [x] c", [("a", "- [ ] b\n- [x] c", 1, False)]),
    "below a plain item": ("- group\n  - [ ] a\n  - [ ] b", [("a", "", 2, False), ("b", "", 3, False)]),
    "the paragraph goes on": ("- [ ] a\nand b\n\nprose", [("a", "and b", 1, False)]),
    "a heading of the detail": ("- [ ] a\n  ## b\n  c", [("a", "## b\nc", 1, False)]),
    "what stands too far left": ("1. [ ] a\n\n b", [("a", "", 1, False)]),
    "a heading ends it": ("- [ ] a\n# Later\n  text", [("a", "", 1, False)]),
    "code is no task": ("```\n- [ ] no\n```\n- [ ] a", [("a", "", 4, False)]),
    "a longer fence": ("````\n```\n- [ ] no\n````\n- [ ] a", [("a", "", 5, False)]),
    "a comment is no task": ("<!--\n- [ ] no\n-->\n<!-- - [ ] no -->\n- [ ] a", [("a", "", 5, False)]),
    "code in the detail": ("- [ ] a\n  ```\n  - [ ] no\n  ```", [("a", "```\n- [ ] no\n```", 1, False)]),
    "line ends of Windows": ("\ufeff- [ ] a\r\n  b\r\n", [("a", "b", 1, False)]),
    "boxes with another meaning": ("- [ ] a\n- [-] no\n- [~] no", [("a", "", 1, False)]),
}


@pytest.mark.parametrize("name", MARKDOWN)
def test_a_markdown_list_has_tasks(name: str) -> None:
    """As a reader of the rendered page sees them."""
    text, expected = MARKDOWN[name]
    assert _parsed(text) == expected


def test_json_lines_have_tasks() -> None:
    """A title of several lines begins the detail."""
    text = '\n{"title": "a", "detail": "b\\nc"}\n{"title": "d\\ne", "detail": "f", "done": true}\n'
    assert _parsed(text) == [("a", "b\nc", 2, False), ("d", "e\nf", 3, True)]


WRONG = {
    "- [ ] a\n- [] b": "T.md:2: this is no task",
    "- [ ] a\n- [ ]b": "T.md:2: this is no task",
    "-[x] a": "T.md:1: this is no task",
    "text\n2. [ ] a": "T.md:2: this is no task",
    "- [ ] a\n\n# More\n\n    - [ ] b": "T.md:5: this is no task",
    "text\n- [ ]  ": "T.md:2: the task has no title",
    "- [ ]": "T.md:1: the task has no title",
    "": "task file T.md has no task",
    "- a\n- b": "task file T.md has no task",
    "```\n- [ ] a": "task file T.md has no task",
    '{"title": "a"}\nb': "T.md:2: no valid JSON: Expecting value: line 1 column 1 (char 0)",
    '{"title": "a"}\n[]': "T.md:2: an object is expected",
    '{"title": "a", "id": 1}': "T.md:1: id: unknown key",
    '{"title": 1}': "T.md:1: title: a text is expected",
    '{"title": "a", "done": 1}': "T.md:1: done: true or false is expected",
    '{"detail": "a"}': "T.md:1: the task has no title",
    '{"title": " \\n "}': "T.md:1: the task has no title",
    '{"title": "a\\u0000"}': "T.md:1: the task has a character that no program can be given",
    '{"title": "a", "detail": "\\ud800"}': "T.md:1: the task has a character that no program can be given",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_line_that_is_no_task_is_named(text: str) -> None:
    """The user must not learn hours later that a task was left out."""
    with pytest.raises(UsageError) as error:
        parse_tasks(text.encode(), "T.md")
    assert error.value.message == WRONG[text]
    assert error.value.hint


def test_a_line_that_is_not_utf_8_is_named() -> None:
    """By its number."""
    with pytest.raises(UsageError, match=r"T\.md:2: this line is not UTF-8"):
        parse_tasks(b"- [ ] a\n- [ ] \xff", "T.md")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With the reason."""
    with pytest.raises(NotFoundError, match="there is no task file"):
        read_tasks(tmp_path / "no.md")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_tasks(tmp_path)


def test_null_is_as_good_as_absent() -> None:
    """Other programs write it, such as gh for an issue without a text; a title must be there."""
    absent = parse_tasks(b'{"title": "a"}', "T.jsonl")
    assert parse_tasks(b'{"title": "a", "detail": null, "done": null}', "T.jsonl") == absent
    with pytest.raises(UsageError, match="title: a text is expected"):
        parse_tasks(b'{"title": null}', "T.jsonl")


def _keys(text: str) -> dict[str, str]:
    return {task.title: task.key for task in parse_tasks(text.encode(), "T.md")}


def test_a_key_survives_edits_elsewhere() -> None:
    """Tasks are moved, ticked, added and removed while a batch runs."""
    before = _keys("- [ ] a\n- [ ] b\n  more\n")
    after = _keys("# Plan\n\n- [ ] new\n* [x] b\n    more\n\n- [ ] a\n")
    assert {title: after[title] for title in "ab"} == before


def test_tasks_with_the_same_text_are_distinct() -> None:
    """Each of them is done once. The text of the detail counts."""
    tasks = parse_tasks(b"- [x] a\n- [ ] a\n- [ ] a\n  b\n- [ ] a", "T.md")
    keys = [task.key for task in tasks]
    assert len({*keys}) == 4
    assert keys[1] == f"{keys[0]}-2"
    assert keys[3] == f"{keys[0]}-3"


WORDS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Z")), min_size=1, max_size=10)


@given(
    st.lists(
        st.tuples(WORDS, st.lists(WORDS.filter(lambda word: word[0] not in "`~<"), max_size=3), st.booleans())
    )
)
def test_any_list_is_read_back(tasks: list[tuple[str, list[str], bool]]) -> None:
    """Whatever characters titles and details have."""
    text = "".join(
        f"- [{'x' if done else ' '}] {title}\n" + "".join(f"  {line}\n" for line in lines)
        for title, lines, done in tasks
    )
    if not tasks:
        return
    found = parse_tasks(text.encode(), "T.md")
    assert [(task.title, task.detail, task.is_done) for task in found] == [
        (title, "\n".join(lines), done) for title, lines, done in tasks
    ]


@given(st.binary(max_size=200))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    """No content raises another error."""
    try:
        tasks = parse_tasks(content, "T.md")
    except UsageError:
        return
    assert tasks


def test_a_template_gets_the_task() -> None:
    """At each place, and nothing else in braces is one."""
    task = Task("k", "a", "b {task}", 1, False)
    assert with_task("{x} {task}. {task}", task) == "{x} a\n\nb {task}. a\n\nb {task}"


def test_a_template_without_a_place_is_refused() -> None:
    """Each session would do the same."""
    with pytest.raises(UsageError, match=r"the prompt has no \{task\}"):
        with_task("Do it.", Task("k", "a", "", 1, False))

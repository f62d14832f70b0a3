"""What counts as the promise of an agent, and what does not."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ralph_wrap.loop.promise import Promise, PromiseFinder
from tests.support.agent_script import PROMISE, TRUSTED, result_line
from tests.support.sessions import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.repo import Repo

KEPT, SEEN, ABSENT = (
    Promise(kept=True, seen=True),
    Promise(kept=False, seen=True),
    Promise(kept=False, seen=False),
)


def _search(until: str, pieces: Sequence[bytes]) -> Promise:
    finder = PromiseFinder(until)
    for piece in pieces:
        finder.feed(piece)
    return finder.finish()


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        "  {}\t\r",
        "words\n{}\nwords",
        "one\r\n{}\r\ntwo\r\n",
        "{}.",
        "{}!",
        "{}…",
        "**{}**",
        "**{}**.",
        "**{}.**",
        "__{}__",
        "~~*{}*~~",
        "`{}`",
        "``{}``.",
        "```\n{}\n```",
        "### {}",
        "- {}",
        "\x1b[32m{}\x1b[0m",
        "\x1b[1;38;5;12m**{}**\x1b[0m.\x1b[K",
        "\x1b[32mAll tests pass. \x1b[1m{}\x1b[0m",
        "* **{}**",
        "All tests pass. {}",
        "All tests pass! {}",
        "Is it done? {}",
        "All tests pass. **{}**.",
        "All tests pass. `{}`\n\n",
        "**All tests pass.** {}",
        'It prints "done." {}',
        "(All of them.) {}",
        "First line\nAll tests pass. {}\n```\n",
        "1. {}",
        "すべて終わりました。 {}",
    ],
)
@pytest.mark.parametrize("until", [PROMISE, "DONE", "All done.", "**ready**", "fertig für heute"])
def test_what_keeps_the_promise(answer: str, until: str) -> None:
    """A line of its own, or the last sentence of the last line; marks and a full stop do not matter."""
    assert _search(until, [answer.format(until).encode()]) == KEPT


@pytest.mark.parametrize(
    "answer",
    [
        "I cannot say {} yet",
        "I cannot say {} yet.",
        "I cannot say {}.",
        "I cannot say **{}**.",
        "I cannot say: {}",
        "I cannot say\t{}",
        "It is done, {}",
        "All tests pass. {} and more",
        "All tests pass. {} comes later.",
        "All tests pass. {}\nBut the linter fails.",
        "{}?",
        "> {}",
        ">{}",
        "> > **{}**",
        "+{}",
        "+ {}",
        "\x1b[32m+{}\x1b[m",
        "> All tests pass. {}",
        "+All tests pass. {}",
        "All tests pass. Not {}",
        "As you said, e.g. {}",
        '"{}"',
        "x{}",
        "{}x",
    ],
)
@pytest.mark.parametrize("until", [PROMISE, "DONE", "All done."])
def test_what_only_mentions_the_promise(answer: str, until: str) -> None:
    """In the middle of a sentence, as a part of one, or before the last line."""
    assert _search(until, [answer.format(until, until).encode()]) == SEEN


@pytest.mark.parametrize(
    ("until", "answer", "found"),
    [
        ("DONE", "done", ABSENT),
        ("DONE", "", ABSENT),
        ("DONE", "See file.DONE", SEEN),
        (PROMISE, f"All tests pass.{PROMISE}", KEPT),
        (PROMISE, "<promise>\nCOMPLETE</promise>", ABSENT),
        (" DONE\n", "DONE", KEPT),
        ("ü", "ü", KEPT),
        ("", "", ABSENT),
        ("", "\n \n", ABSENT),
        (" ", "\n \n", ABSENT),
        ("one\ntwo", "one\ntwo", SEEN),
    ],
)
def test_texts_of_their_own(until: str, answer: str, found: Promise) -> None:
    """A word needs white space before it; an empty text is never found."""
    assert _search(until, [answer.encode()]) == found


def test_a_text_that_is_not_utf_8() -> None:
    """As the command line has it, and as a program prints it."""
    assert _search("\udcff", [b"\xff"]) == KEPT


WANTED = b"DONE 1"
BLANK = st.text(" \t\r", max_size=3).map(str.encode) | st.just(b" " * 10_000)
MARKS = st.sampled_from([b"", b"**", b"`", b"> "])
WORDS = st.sampled_from(
    [WANTED, b"DONE", b"DONE 1 1", b"DONE  1", b"", b"All is well. DONE 1", b"Not DONE 1"]
)
END = st.sampled_from([b"", b".", b"!"])
LINE = st.tuples(BLANK, MARKS, WORDS, END, MARKS, BLANK).map(b"".join)


@given(st.lists(LINE | st.binary(max_size=10)), st.lists(st.integers(0, 30_000)))
@example([WANTED + b" " * 10_000 + b"x"], [5000])
@example([b" " * 10_000 + WANTED], [5000])
@example([b"x" * 10_000 + b". " + WANTED], [9000])
@example([b"x" * 10_000 + WANTED], [9000])
def test_cuts_change_nothing(lines: list[bytes], cuts: list[int]) -> None:
    """The result is the same, however the bytes of an answer arrive."""
    stream = b"\n".join(lines)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(edges)]
    whole = _search(WANTED.decode(), [stream])
    assert _search(WANTED.decode(), pieces) == whole
    assert whole.seen == (WANTED in stream)
    assert whole.kept or not any(line.strip() == WANTED for line in lines)


@given(st.text(), st.text())
def test_any_text_is_read(until: str, answer: str) -> None:
    """A promise that is not in the answer is not kept."""
    found = _search(until, [answer.encode()])
    assert found.seen == bool(until.strip() and until.strip() in answer)
    assert found.seen or not found.kept


PROMPT = b"Do the first open task.\nIf none is open, answer:\n\n  DONE\n\nDo not guess. DONE"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (PROMPT, False),
        (b"user:\n" + PROMPT + b"\nagent: three tasks are open\n", False),
        (b"> If none is open, answer:\nDONE\n", False),
        (b"Do not guess. DONE", False),
        (PROMPT + b"\nagent: none is open\nDONE\n", True),
        (PROMPT + b"\nagent: none is open. DONE", True),
        (b"DONE", True),
        (b"If none was open, answer\nDONE", True),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_line_that_repeats_the_prompt_is_no_answer(answer: bytes, size: int, *, kept: bool) -> None:
    """An agent of plain text may show its prompt; the same line as an answer of its own counts."""
    finder = PromiseFinder("DONE", PROMPT)
    for begin in range(0, len(answer), size):
        finder.feed(answer[begin : begin + size])
    assert finder.finish() == Promise(kept=kept, seen=True)


def test_a_prompt_that_begins_with_the_promise_hides_no_answer() -> None:
    """There is no line before it that tells the two apart."""
    finder = PromiseFinder("DONE", b"DONE\nis what you answer if no task is open.")
    finder.feed(b"DONE\n")
    assert finder.finish() == KEPT


def test_each_iteration_is_searched_by_itself() -> None:
    """Half a line at the end of one is not completed by the next, and a promise is kept once."""
    finder = PromiseFinder("DONE")
    found = []
    for piece in (b"DO", b"NE\n", b"DONE\n", b""):
        finder.feed(piece)
        found.append(finder.finish().kept)
    assert found == [False, False, True, False]


@pytest.mark.parametrize("piece", [b"x", b" ", b"*", b"DONE ", b"DONE x\n", b"\n"])
def test_an_endless_answer_takes_no_memory(piece: bytes) -> None:
    """16 MB without a line end, or 2 MB of short lines, which take much longer."""
    finder = PromiseFinder("DONE")
    block = piece * (65536 // len(piece))
    size = 2_000_000 if piece.endswith(b"\n") else 16_000_000
    tracemalloc.start()
    try:
        for _ in range(size // len(block)):
            finder.feed(block)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert not finder.finish().kept


# In sessions


def _claude(tmp_path: Path, answer: str) -> dict[str, str]:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{result_line(answer)}")
    program.chmod(0o755)
    return {**TRUSTED, "PATH": f"{program.parent}:/usr/bin:/bin"}


def test_a_promise_as_the_last_sentence_ends_a_loop(repo: Repo, tmp_path: Path) -> None:
    """After the first iteration, with a format as with plain text."""
    answer = f"All tests pass. **{PROMISE}**."
    known = run(repo.path, "-a", "claude", "-p", "do it", "-n", "2", env=_claude(tmp_path, answer))
    plain = run(repo.path, "-n", "2", "--", "echo", answer)
    assert [known.ending, plain.ending] == [("promise", 1, 0)] * 2


def test_a_promise_elsewhere_is_warned_about_once(repo: Repo, tmp_path: Path) -> None:
    """The loop goes on, and the hint says what the prompt must ask for."""
    answer = f"I cannot say {PROMISE} yet"
    result = run(repo.path, "-a", "claude", "-p", "do it", "-n", "3", env=_claude(tmp_path, answer))
    assert result.ending == ("max-iterations", 3, 0)
    where = "but not on a line of its own, or only where it repeats the prompt"
    assert [(printed["event"], printed["message"]) for printed in result.warnings] == [
        ("promise.ignored", f"the answer has {PROMISE}, {where}: that does not end the loop")
    ]
    assert "on a line of its own" in result.warnings[0]["hint"]

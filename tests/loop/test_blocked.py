"""An agent that needs a person says so: the loop ends with its question."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.loop.answer import AnswerReader, question
from tests.support.sessions import command, run

if TYPE_CHECKING:
    from tests.support.repo import Repo

MARK = "<promise>BLOCKED</promise>"
SH = ("--", "sh", "-c")
ASK = f"printf 'I looked.\\n\\n{MARK}\\nWhich database:\\nthe old or the new one?\\n'"


def test_the_loop_ends_with_its_question(repo: Repo) -> None:
    """With a status of its own; what the agent has done is saved as always."""
    result = run(repo.path, *SH, f"echo x > x; {ASK}")
    assert result.ending == ("blocked", 1, 75)
    assert result.report["question"] == "Which database:\nthe old or the new one?"
    assert repo.show(f"{result.report['saved']}:x") == b"x\n"


def test_the_exit_report_has_the_question_and_the_answer(repo: Repo) -> None:
    """The command to answer it, of which only the text is missing."""
    result = run(repo.path, *SH, ASK, env={"RALPH_WRAP_LOG_FORMAT": "text"})
    assert "session ended: blocked after 1 iteration (exit status 75)" in result.stderr
    lines = [line.split(maxsplit=1) for line in result.stderr.splitlines()]
    assert ["question", "Which database:"] in lines
    assert f'ralph-wrap resume {result.report["id"]} -m "…"' in result.stderr


def test_an_answer_goes_on(repo: Repo) -> None:
    """The agent reads it before the prompt."""
    agent = f"cat > given; grep -q new given && echo '<promise>COMPLETE</promise>' || {ASK}"
    first = run(repo.path, "-p", "Do it.", *SH, agent)
    assert first.ending == ("blocked", 1, 75)
    answered = command("resume", first.report["id"], "-m", "The new one.", cwd=repo.path)
    assert answered.status == 0, answered.stderr


def test_another_text(repo: Repo) -> None:
    """As for the promise; an empty one is none."""
    assert run(repo.path, "--blocked", "HELP", *SH, "echo HELP").ending == ("blocked", 1, 75)
    assert run(repo.path, "-n", "1", "--blocked", "", *SH, ASK).ending == ("max-iterations", 1, 0)


def test_it_cannot_be_the_promise(repo: Repo) -> None:
    """One text says one thing."""
    result = run(repo.path, "--blocked", "DONE", "--until", " DONE", *SH, "true")
    assert result.status == 2
    assert "--until and --blocked are the same text: DONE" in result.stderr


def test_who_asks_has_not_finished(repo: Repo) -> None:
    """Also with a promise in the same answer, which no gate has to check."""
    both = f"echo '<promise>COMPLETE</promise>'; {ASK}"
    result = run(repo.path, "--verify", "true", *SH, both)
    assert result.ending == ("blocked", 1, 75)
    assert "verify.started" not in result.names


def test_an_agent_that_fails_asks_nothing(repo: Repo) -> None:
    """As it keeps no promise."""
    result = run(repo.path, "-n", "1", *SH, f"{ASK}; exit 3")
    assert result.ending == ("max-iterations", 1, 3)
    assert result.report["question"] is None


def test_a_prompt_that_explains_it_asks_nothing(repo: Repo) -> None:
    """Nor does an agent that repeats it."""
    prompt = f"If you need me, answer:\n{MARK}\n"
    assert run(repo.path, "-n", "1", "-p", prompt, *SH, "cat").ending == ("max-iterations", 1, 0)


def test_the_final_answer_of_an_agent_counts(repo: Repo) -> None:
    """Of an agent with a format; what its tools print does not."""
    lines = [
        {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": f"{MARK}\nNo."}]}},
        {"type": "result", "subtype": "success", "is_error": False, "result": f"{MARK}\n\nMay I?"},
    ]
    (repo.path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tool = repo.path.parent / "bin" / "claude"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\ncat >/dev/null; cat {repo.path}/lines\n")
    tool.chmod(0o755)
    result = run(repo.path, "-a", "claude", "-p", "x", env={"PATH": f"{tool.parent}:/usr/bin:/bin"})
    assert result.ending == ("blocked", 1, 75)
    assert result.report["question"] == "May I?"


def test_lists_show_who_waits(repo: Repo) -> None:
    """With the question, in ps and in review; and the wait for it ends as the session did."""
    result = run(repo.path, *SH, f"git commit -q --allow-empty -m x; {ASK}")
    asked = "Which database: the old or the new one?"
    for words in (("ps", "--all"), ("review",)):
        shown = command(*words, cwd=repo.path).stdout.decode()
        assert "QUESTION" in shown
        assert asked in shown
        assert "blocked" in shown
        [row] = json.loads(command(*words, "--json", cwd=repo.path).stdout)["data"]
        assert row["question"] == result.report["question"]
    assert command("wait", result.report["id"], cwd=repo.path).status == 75


def test_resume_all_leaves_it(repo: Repo) -> None:
    """Without an answer it would ask again; the command that answers is named."""
    first = run(repo.path, *SH, ASK)
    resumed = command("resume", "--all", cwd=repo.path)
    assert resumed.status == 0, resumed.stderr
    [warning] = resumed.narration
    assert warning["hint"] == f'to go on with it: ralph-wrap resume {first.report["id"]} -m "…"'
    assert len([*(repo.path / ".ralph/run/sessions").iterdir()]) == 1


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        (f"{MARK}", ""),
        (f"{MARK}\nMay I?", "May I?"),
        (f"**{MARK}**.\n\n- May I?\n- Or not.\n", "- May I?\n- Or not."),
        (f"First.\n\nMay I\ndo it?\n\n{MARK}\n", "May I\ndo it?"),
        (f"First.\n\nMay I? {MARK}", "May I?"),
        (f"May I?\n{MARK}", "May I?"),
        (f"\x1b[1mMay I?\x1b[0m\n\n{MARK}\n", "May I?"),
        (f"{MARK}\nold\n{MARK}\nnew\n", "new"),
        (f"{MARK}\n{'x' * 3000}", f"{'x' * 1999}…"),
        ("without", ""),
    ],
)
def test_the_question(answer: str, asked: str) -> None:
    """What comes after the mark; if nothing does, the last paragraph before it."""
    assert question(answer, MARK) == asked


def test_a_long_answer_takes_no_more_memory() -> None:
    """Plain text is an answer until its end: the question is looked for in the last part of it."""
    reader = AnswerReader("DONE", MARK)
    for _ in range(100):
        reader.feed(b"x" * 10_000 + b"\n")
    reader.feed(f"{MARK}\nMay I?\n".encode())
    assert reader.finish() == ((False, False), True, "May I?")
    assert not reader.finish().blocked

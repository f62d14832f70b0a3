"""What a person types and reads, as text that is the same in each run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.sessions import command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.sessions import Result

UPDATE = "UPDATE_GOLDEN"
"""The variable that has :func:`check` write the files: ``UPDATE_GOLDEN=1 pytest tests/golden``."""

READER = {"RALPH_WRAP_LOG_FORMAT": "text", "COLUMNS": "100", "TERMINAL_WIDTH": "100"}
"""What has a command write for a person, as wide as 100 columns."""

_STAMP = r"\d{8}T\d{6}Z"
_OID = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{12}|[0-9a-f]{7})\b")
_SESSION = re.compile(rf"\b{_STAMP}(?=-[0-9a-f]{{4}}\b)")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?")
_DURATION = re.compile(r"\b\d+(?:\.\d+)?(?: ms|m?s)\b")
_SECONDS = re.compile(r'"(age|seconds)": \d+(?:\.\d+)?')
_SIZE = re.compile(r'"size": \d+')
_PID = re.compile(r"\b(pid|process) \d+")


class Transcript:
    """Commands and what they printed, with ids, times and paths replaced.

    An agent id becomes ``id01``, ``id02`` and so on, in the order in which they were made known, so columns
    stay where they are. An object id becomes as many ``#``.

    Arguments:
        project: where commands are typed, and what is printed as ``/project``.

    """

    def __init__(self, project: Path) -> None:
        self._project = project
        self._agents: list[str] = []
        self._parts: list[str] = []
        self._paths = {os.fspath(project): "/project", os.fspath(project.parent): "/tmp"}

    def type(self, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Result:
        """Run a command, and note it with its output and its exit status."""
        result = command(*words, cwd=cwd or self._project, env={**READER, **(env or {})})
        self.note(words, result)
        return result

    def note(self, words: tuple[str, ...], result: Result) -> None:
        """Note a command that has ended: standard output, standard error, status."""
        printed = result.stdout.decode(errors="replace") + result.stderr

        def order(session: str) -> tuple[str, int]:
            return session[:-4], printed.find(session[-4:])  # two that started in one second: as printed

        for session in sorted((path.name for path in self._project.glob(".ralph/run/sessions/*")), key=order):
            if session[-4:] not in self._agents:
                self._agents.append(session[-4:])
        shown = " ".join(word if re.fullmatch(r"[\w./=:@+-]+", word) else f"'{word}'" for word in words)
        self._parts.append(f"$ ralph-wrap {shown}\n")
        self._parts += [text for text in (result.stdout.decode(errors="replace"), result.stderr) if text]
        self._parts.append(f"[exit status {result.status}]\n\n")

    @property
    def text(self) -> str:
        """All that was noted."""
        text = "".join(self._parts)
        for path, name in self._paths.items():
            text = text.replace(path, name)
        text = _SESSION.sub("20260102T030405Z", text)
        for number, agent in enumerate(self._agents, 1):
            text = re.sub(rf"(?<![0-9a-f]){agent}(?![0-9a-f])", f"id{number:02}", text)
        text = _TIME.sub("<time>", text)
        text = _SECONDS.sub(r'"\1": <seconds>', text)
        text = _SIZE.sub('"size": <size>', text)
        text = _PID.sub(r"\1 <pid>", text)
        text = _DURATION.sub("<duration>", text)
        return _OID.sub(lambda found: "#" * len(found[0]), text)


def check(path: Path, text: str) -> None:
    """Fail unless a file has a text; with ``UPDATE_GOLDEN=1`` write it."""
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"if this is right: {UPDATE}=1 pytest tests/golden"

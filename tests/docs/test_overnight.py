"""The page *Overnight*: its ten lines and its commands as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.docs.documents import DOCS, blocks
from tests.docs.test_services import POSTGRESQL, databases, postgresql
from tests.support.agent_script import PROMISE, result_line
from tests.support.needs import needs, program
from tests.support.processes import left
from tests.support.sessions import PROGRAM
from tests.support.wait import CAP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.repo import Repo

__all__ = ("postgresql",)  # a fixture

CONFIG, START, ANSWER = (block.text for block in blocks(DOCS / "overnight.md"))
QUESTION = "<promise>BLOCKED</promise>\nKeep the old column?"

# Does half of the work and says that it is done; asks when it hears that the tests fail; does the rest.
AGENT = f"""#!/bin/sh
prompt=$(cat); printf '%s\\n' "$prompt" >> "$RALPH_PROJECT/../prompts"
psql -q -d "app_$RALPH_AGENT_ID" -c 'create table if not exists t (x int)' || exit 3
case $prompt in
*"Keep the old column until June."*) echo rest >> work; git add work; git commit -qm rest
{result_line(PROMISE)};;
*"the rest is missing"*)
{result_line(QUESTION)};;
*) echo half > work
{result_line(PROMISE)};;
esac
"""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.got.append((self.headers["Title"], body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def messages() -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Run a server for notifications; return its port, and what it gets: title and text."""
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    got: list[tuple[str, str]] = []
    server.got = got  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, got
    server.shutdown()
    thread.join()
    server.server_close()


def running(home: Path) -> list[str]:
    """Return what runs of the sessions; the server of the databases does not belong to them."""
    return [line for line in left(home).values() if "/bin/postgres" not in line and "postgres: " not in line]


def test_it_is_ten_lines() -> None:
    """No more is needed."""
    assert len(CONFIG.splitlines()) == 10


@needs(POSTGRESQL, program("curl", "curl"))
@pytest.mark.usefixtures("postgresql")
@pytest.mark.timeout(300)
def test_the_night(
    repo: Repo,
    home: Path,
    messages: tuple[int, list[tuple[str, str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gate refuses half of the work, the agent asks, a person hears it and answers; nothing is left."""
    port, got = messages
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "claude").write_text(AGENT)
    (programs / "claude").chmod(0o755)
    (programs / "ralph-wrap").symlink_to(PROGRAM)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    repo.write(".gitignore", ".ralph/\n")
    repo.write("Makefile", "test:\n\t@grep -q rest work || { echo the rest is missing; exit 1; }\n")
    repo.write("PROMPT.md", "Do the work.\n")
    repo.commit("a project")
    repo.write(".ralph/config.toml", CONFIG.replace("https://ntfy.example.com", f"http://127.0.0.1:{port}"))

    def paste(text: str) -> int:
        line = ("bash", "-euo", "pipefail", "-c", text)
        done = subprocess.run(line, cwd=repo.path, timeout=CAP * 3, stdin=subprocess.DEVNULL, check=False)
        return done.returncode

    assert paste(f"{START}wait $!") == 75, (home / "night.log").read_text()
    [report] = [json.loads(path.read_text()) for path in repo.path.glob(".ralph/run/sessions/*/report.json")]
    assert (report["ended_by"], report["question"]) == ("blocked", "Keep the old column?")
    assert report["leaks"] == []
    assert (report["verify"]["result"], report["teardown"]["result"]) == ("not run", "passed")
    assert [event for event, _ in got] == ["blocked"]
    assert got[0][1].endswith("blocked after 2 iterations: Keep the old column?")
    assert (databases(), running(home)) == ([], [])
    assert "BLOCKED" in (repo.path.parent / "prompts").read_text()

    assert paste(re.sub("a3f2", report["id"], ANSWER)) == 0
    assert [event for event, _ in got] == ["blocked", "done"]
    assert repo.git("show", f"ralph/{report['id']}:work") == "half\nrest"
    assert (databases(), running(home)) == ([], [])

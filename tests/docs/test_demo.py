"""The demo shows what it says, and the picture in README shows the demo."""

from __future__ import annotations

import os
import re
import subprocess
from html import unescape
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.support.processes import end_all
from tests.support.repo import Repo
from tests.support.sessions import PROGRAM

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "docs" / "demo.sh"
PICTURE = ROOT / "docs" / "assets" / "demo.svg"
LARGEST = 300_000  # bytes; a reader of README loads it


@pytest.mark.parametrize("place", ["of the checkout", "on PATH"])
def test_the_demo_interrupts_resumes_and_lands(tmp_path: Path, home: Path, place: str) -> None:
    """The interrupted half of a file is back, both branches land, and the last command opens the page.

    Its user can type that command, whether ralph-wrap is installed or only in the checkout.
    """
    path = os.environ["PATH"].split(os.pathsep)
    bare = [entry for entry in path if not Path(entry, "ralph-wrap").exists()]
    if place == "on PATH":
        bare.insert(0, os.fspath(Path(PROGRAM).parent))
    environ = {**os.environ, "DEMO_PAUSE": "0", "TMPDIR": os.fspath(tmp_path), "PATH": os.pathsep.join(bare)}
    done = subprocess.run((DEMO,), env=environ, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    [repository] = [path for path in tmp_path.iterdir() if path.name.startswith("ralph-demo.")]
    repo = Repo(repository)
    subjects = repo.git("log", "--format=%s", "main").splitlines()
    assert {"The lexer", "The parser", "Tests of the lexer", "Tests of the parser"} <= {*subjects}
    for name in ("lexer", "parser"):
        assert (repository / f"{name}.py").read_text() == f"def {name}(text):\n    return text.split()\n"
    assert "saved      ralph/" in done.stderr
    assert "saved work is back in" in done.stderr
    commands = re.findall(r"^\$ (.*)$", done.stdout, re.MULTILINE)
    assert [command.split()[1] for command in commands[:5]] == ["spawn", "run", "resume", "review", "merge"]
    with subprocess.Popen(("sh", "-c", f"exec 2>&1; {commands[-1]}"), env=environ, stdout=PIPE) as web:
        assert web.stdout is not None
        try:
            assert web.stdout.readline().startswith(b"http://127.0.0.1:")
        finally:
            end_all(home)


def test_the_picture_is_a_recording_of_this_demo() -> None:
    """Each line of the script that a reader sees is in it: `make picture` records again."""
    drawn = re.findall(r"<text [^>]*>(.*?)</text>", PICTURE.read_text())
    lines = [unescape(re.sub(r"<[^>]*>", " ", line)) for line in drawn]
    words = {" ".join(line.split()) for line in lines}
    script = DEMO.read_text()
    steps = [
        text
        for line in re.findall(r"^step (.*)$", script, re.MULTILINE)
        for text in re.findall(r'"(.*?)"', line)
    ]
    commands = re.findall(r'^(?:show|interrupted) "(.*)"$', script, re.MULTILINE)
    assert len(steps) > 5
    assert len(commands) > 5
    assert {f"# {step}" for step in steps} - words == set()
    assert {f"$ {command}" for command in commands} - words == set()
    assert PICTURE.stat().st_size < LARGEST

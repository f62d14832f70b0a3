"""Agents in a sandbox: a clone, their own files in the user's home, and the terminal."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.agent_script import PROMISE, TRUSTED, limited, result_line
from tests.support.sandboxes import PYTHON
from tests.support.sessions import PROGRAM, run
from tests.support.terminal import CTRL_C, Terminal

if TYPE_CHECKING:
    from tests.support.repo import Repo

FORGED_OBJECT = 'echo x > "$RALPH_PROJECT/.git/objects/forged" 2>/dev/null && echo forged'


@pytest.mark.parametrize(("isolation", "printed"), [("require", b"forged\n"), ("clone", b"")])
def test_only_a_clone_keeps_the_objects_of_the_project(
    repo: Repo, bwrap: str, isolation: str, printed: bytes
) -> None:
    """In both, the agent commits, and the session saves the rest."""
    body = f"{FORGED_OBJECT}; echo one > one; git add one; git commit -qm one; git gc -q; echo two > two"
    options = ("-n", "1", "--isolation", isolation, "--sandbox", bwrap)
    result = run(repo.path, *options, "--", "sh", "-c", body)
    assert (result.ending[:2], result.stdout) == (("max-iterations", 1), printed), result.stderr
    branch = result.report["branch"]
    assert (repo.show(f"{branch}:one"), repo.show(f"{branch}-wip:two")) == (b"one\n", b"two\n")


CLAUDE = """#!/bin/sh
cat ~/.claude/settings.json
for file in settings.json .credentials.json projects/new new shell-snapshots/new; do
    echo changed > ~/.claude/$file || echo "cannot write $file"
done 2>/dev/null
ls ~/.claude/shell-snapshots
echo changed > ~/.claude.json && cat ~/.claude.json
"""


def test_an_agent_changes_only_what_its_other_runs_do_not_execute(repo: Repo, home: Path, bwrap: str) -> None:
    """It reads its settings; its login and conversations last; the rest goes with the sandbox."""
    program = home / "bin/claude"
    files = {
        "settings.json": "old",
        ".credentials.json": "old",
        "projects/old": "old",
        "shell-snapshots/old": "old",
    }
    for name, content in files.items():
        path = home / ".claude" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    (home / ".claude.json").write_text("old\n")
    program.parent.mkdir()
    program.write_text(CLAUDE)
    program.chmod(0o755)
    result = run(repo.path, "-n", "1", "--sandbox", bwrap, "--", program)
    assert result.stdout.decode().splitlines() == ["old", "cannot write settings.json", "new", "changed"]
    found = {
        path.relative_to(home).as_posix(): path.read_text().strip()
        for top in (home / ".claude", home / ".claude.json")
        for path in (top, *top.rglob("*"))
        if path.is_file()
    }
    assert found == {
        ".claude/settings.json": "old",
        ".claude/.credentials.json": "changed",
        ".claude/projects/old": "old",
        ".claude/projects/new": "changed",
        ".claude/shell-snapshots/old": "old",
        ".claude.json": "old",
    }


def test_a_fallback_keeps_its_own_files_too(repo: Repo, home: Path, bwrap: str) -> None:
    """Its login and conversations last, as those of the first agent do."""
    (home / "bin").mkdir()
    bodies = {
        "claude": f"echo new > ~/.claude/projects/new\n{limited(3600)}exit 1\n",
        "codex": f"echo new > ~/.codex/sessions/new; echo new > ~/.codex/new\n{result_line(PROMISE)}",
    }
    for name, body in bodies.items():
        program = home / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}")
        program.chmod(0o755)
    repo.write(
        ".ralph/config.toml",
        "".join(f"[agents.{name}]\ncommand = ['{home}/bin/{name}']\noutput = 'claude'\n" for name in bodies),
    )
    options = ("-a", "claude", "--fallback", "codex", "-p", "x", "-n", "1", "--sandbox", bwrap)
    result = run(repo.path, *options, env=TRUSTED)
    assert result.ending == ("promise", 1, 0), result.stderr
    assert (home / ".claude/projects/new").exists()
    assert [path.name for path in (home / ".codex").rglob("new")] == ["new"]
    assert (home / ".codex/sessions/new").exists()


TYPE = (
    "import fcntl, os\n"
    "try:\n"
    "    fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')\n"  # TIOCSTI
    "    print('\\ntyped')\n"
    "except OSError: print('refused')\n"
)
OF_THE_KERNEL = Path("/proc/sys/dev/tty/legacy_tiocsti")


@pytest.mark.parametrize("prompt", [(), ("-p", "do it")])
@pytest.mark.parametrize("mode", ["off", "bwrap", "landlock"])
def test_only_a_sandbox_keeps_the_agent_from_typing(
    repo: Repo, mode: str, prompt: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """The user's shell would execute what it types. Without a prompt it has the terminal itself."""
    if mode != "off":
        request.getfixturevalue(mode)
    kernel_allows = not OF_THE_KERNEL.exists() or OF_THE_KERNEL.read_text() == "1\n"
    agent = ("sh", "-c", f"echo; {PYTHON} -c {shlex.quote(TYPE)}")
    line = (PROGRAM, "run", "-n", "1", "--sandbox", mode, *prompt, "--", *agent)
    with Terminal(*line, cwd=repo.path) as terminal:
        terminal.wait_for("typed" if mode == "off" and kernel_allows else "refused")
        assert terminal.finish() == 0


def test_ctrl_c_reaches_an_agent_that_has_the_terminal(repo: Repo, bwrap: str) -> None:
    """The program around it does not end first, so the agent can answer."""
    body = "trap 'echo bye > last; exit 130' INT; echo; echo ready; while :; do read -r line; done"
    with Terminal(PROGRAM, "run", "--sandbox", bwrap, "--", "sh", "-c", body, cwd=repo.path) as terminal:
        terminal.wait_for("ready")
        terminal.type(CTRL_C)
        assert terminal.finish() == 130
    [saved] = [branch for branch in repo.branches() if branch.endswith("-wip")]
    assert repo.show(f"{saved}:last") == b"bye\n"

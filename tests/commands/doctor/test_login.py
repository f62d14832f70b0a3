"""Whether an agent that is installed has a login, for the user that a session becomes."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralph_wrap.agents import NAMES, known
from ralph_wrap.agents.login import login_files
from ralph_wrap.commands.doctor import DoctorCheck, examine
from tests.commands.doctor.world import checked, with_environ
from tests.support.needs import needs_other_users
from tests.support.repo import make_repo
from tests.support.sessions import command

if TYPE_CHECKING:
    from tests.support.repo import Repo

# Python 3.12 warns of a fork beside threads, which the test runner has and the program has not.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

OWNER = 12345  # user and group id

SECRET = "sk-do-not-show-7391"  # noqa: S105 -- no secret


def of_login(repo: Repo, host: Path, name: str, /, **environ: str) -> DoctorCheck:
    """Return the check of the login of an agent that is installed, with no other variable of a login."""
    program = repo.path.parent / "bin" / name
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    ours = with_environ(PATH=path, HOME=str(repo.path.parent / "home"), **environ)
    variables = {variable for agent in map(known, NAMES) for variable in agent.login.variables}
    environ = {key: value for key, value in ours.items() if key in environ or key not in variables}
    return checked(examine(repo.path, environ, host), f"login {name}")


@pytest.mark.parametrize("name", NAMES)
def test_no_login_is_a_note_with_its_places_and_the_command(repo: Repo, host: Path, name: str) -> None:
    """It names each variable and file, and what logs a user in; it is no failure."""
    check = of_login(repo, host, name)
    agent = known(name)
    assert check.verdict == "note"
    files = login_files(agent, with_environ(HOME=str(repo.path.parent / "home")))
    places = [*agent.login.variables, *map(str, files)]
    assert check.found == f"none is found: {', '.join(places)}"
    assert check.fix.startswith(agent.login.command)


@pytest.mark.parametrize("name", [name for name in NAMES if known(name).login.variables])
def test_a_variable_is_a_login_and_its_value_is_not_shown(repo: Repo, host: Path, name: str) -> None:
    """The name of the variable is all that is said."""
    variable = known(name).login.variables[-1]
    check = of_login(repo, host, name, **{variable: SECRET})
    assert (check.verdict, check.found) == ("ok", variable)
    assert not any(SECRET[start : start + 4] in str(check) for start in range(len(SECRET) - 3))


@pytest.mark.parametrize(
    ("name", "variable", "file"),
    [
        ("claude", "HOME", ".claude/.credentials.json"),
        ("claude", "CLAUDE_CONFIG_DIR", ".credentials.json"),
        ("codex", "HOME", ".codex/auth.json"),
        ("codex", "CODEX_HOME", "auth.json"),
        ("opencode", "HOME", ".local/share/opencode/auth.json"),
        ("opencode", "XDG_DATA_HOME", "opencode/auth.json"),
        ("gemini", "HOME", ".gemini/oauth_creds.json"),
        ("gemini", "HOME", ".gemini/.env"),
        ("aider", "HOME", ".aider.conf.yml"),
    ],
)
def test_a_file_is_a_login_where_the_agent_looks_for_it(
    repo: Repo, host: Path, name: str, variable: str, file: str
) -> None:
    """It is below HOME, or where the agent's own variable or that of XDG leads."""
    top = repo.path.parent / ("home" if variable == "HOME" else "elsewhere")
    path = top / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"token": "{SECRET}"}}')
    given = {} if variable == "HOME" else {variable: str(top)}
    check = of_login(repo, host, name, **given)
    assert (check.verdict, check.found) == ("ok", str(path))


@pytest.mark.parametrize("content", ["", "{}\n"])
def test_a_file_without_content_is_no_login(repo: Repo, host: Path, content: str) -> None:
    """An agent leaves it behind when its user logs out."""
    path = repo.path.parent / "home/.codex/auth.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert of_login(repo, host, "codex").verdict == "note"


def test_the_variables_of_the_configuration_count(repo: Repo, host: Path) -> None:
    """The agent's table can lead it to another login."""
    path = repo.write("../elsewhere/auth.json", '{"tokens": {}}')
    repo.write(".ralph/config.toml", f'[agents.codex]\nenv = {{ CODEX_HOME = "{path.parent}" }}\n')
    assert of_login(repo, host, "codex").found == str(path)


@needs_other_users
@pytest.mark.parametrize(
    ("mode", "verdict", "found"), [(0o600, "note", "{} cannot be read by this user"), (0o644, "ok", "{}")]
)
def test_the_login_is_that_of_the_user_that_a_session_becomes(mode: int, verdict: str, found: str) -> None:
    """Root looks as the project's owner, in the home of a session: a file for root alone is no login."""
    with tempfile.TemporaryDirectory(prefix="test-login-", dir="/tmp") as name:
        top = Path(name)
        make_repo(top / "project")
        program = top / "bin/codex"
        path = top / ".codex/auth.json"
        for file in (program, path):
            file.parent.mkdir()
            file.write_text('{"tokens": {}}')
        program.chmod(0o755)
        subprocess.run(("chown", "-R", f"{OWNER}:{OWNER}", top), check=True)
        if mode == 0o600:
            os.chown(path, 0, 0)
        path.chmod(mode)
        environ = {"HOME": name, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        done = command("doctor", "--json", cwd=top / "project", env={**os.environ, **environ})
        rows = {row["check"]: row for row in json.loads(done.stdout)["data"]}
        row = rows["login codex"]
        assert (row["found"], bool(row["fix"])) == (found.format(path), verdict == "note")

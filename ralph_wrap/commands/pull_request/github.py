"""GitHub through its command line gh(1), which never asks a question on the terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.git import decode, environment_with_config
from ralph_wrap.system.process import CompletedCommand, RunningCommand

_PATIENCE = 120.0  # seconds for each answer
_HOST = "github.com"
_ADDRESS = re.compile(  # git-push(1), *GIT URLS*
    r"(?:(?P<scheme>https?)://|ssh://|git://)?(?:[^@/]*@)?(?P<host>[^@/:]+)(?::[0-9]+(?=/))?[:/]/?"
    r"(?P<owner>[A-Za-z0-9_-]+)/(?P<name>[A-Za-z0-9._-]+?)(?:\.git)?/?"
)
_TERMINAL_ONLY = {"GH_FORCE_TTY", "CLICOLOR_FORCE"}  # gh-environment(7): they add colours to the JSON


class GitHubRepository(NamedTuple):
    """A repository on GitHub: its address and its owner."""

    url: str
    owner: str


class PullRequest(NamedTuple):
    """A pull request: its address, and the owner of the repository with its branch."""

    url: str
    head_owner: str


def is_installed(environ: Mapping[str, str]) -> bool:
    """Return whether gh is on the PATH."""
    return shutil.which("gh", path=environ.get("PATH", os.defpath)) is not None


def page_to_open(address: str, base: str, branch: str, environ: Mapping[str, str]) -> str | None:
    """Return the address of the page on which a person opens a pull request; ``None`` outside of GitHub.

    Arguments:
        address: of the remote with the branch.
        base: the branch that it is for.
        branch: short name of the branch.
        environ: it may name another host, in ``GH_HOST`` (gh-environment(7)).

    """
    found = _ADDRESS.fullmatch(address)
    if found is None or found["host"] not in {_HOST, environ.get("GH_HOST")}:
        return None
    repository = f"{found['scheme'] or 'https'}://{found['host']}/{found['owner']}/{found['name']}"
    return f"{repository}/compare/{quote(base)}...{quote(branch)}?expand=1"


def repository(directory: Path, environ: Mapping[str, str]) -> GitHubRepository:
    """Return the repository for pull requests of a checkout: ``GH_REPO``, else the default of gh.

    Raises:
        UsageError: gh is not installed.
        RalphError: gh failed; the message has its output.

    """
    wanted = environ.get("GH_REPO")
    answer = _json_answer(
        directory, environ, "repo", "view", *([wanted] if wanted else []), "--json=url,owner"
    )
    try:
        return GitHubRepository(str(answer["url"]), str(answer["owner"]["login"]))
    except (TypeError, KeyError):
        raise RalphError("gh repo view has printed JSON of an unknown form") from None


def open_pulls(
    directory: Path, environ: Mapping[str, str], home: GitHubRepository, branch: str, base: str
) -> list[PullRequest]:
    """Return the open pull requests for all branches of a name, those of forks included.

    Arguments:
        branch: short name of the branches.
        base: the branch that they are for.

    Raises:
        RalphError: gh failed; the message has its output.

    """
    about = (f"--repo={home.url}", f"--head={branch}", f"--base={base}", "--state=open")
    answer = _json_answer(directory, environ, "pr", "list", *about, "--json=url,headRepositoryOwner")
    try:
        return [PullRequest(str(pull["url"]), str(pull["headRepositoryOwner"]["login"])) for pull in answer]
    except (TypeError, KeyError):
        raise RalphError("gh pr list has printed JSON of an unknown form") from None


def create_pull(
    directory: Path,
    environ: Mapping[str, str],
    home: GitHubRepository,
    *,
    head: str,
    base: str,
    title: str,
    body: str,
) -> str:
    """Open a pull request for a pushed branch, and return its address.

    Arguments:
        head: short name of the branch, after ``OWNER:`` if it is in a fork.
        base: the branch that it is for.
        body: Markdown.

    Raises:
        RalphError: GitHub refused; the message has its output.

    """
    about = (f"--repo={home.url}", f"--head={head}", f"--base={base}", f"--title={title}")
    done = _run(directory, environ, "pr", "create", *about, "--body-file=-", stdin=body.encode())
    url = decode(done.stdout).strip()
    if not re.fullmatch(r"https?://\S+", url):
        raise RalphError("gh pr create has printed no address", "gh pr list")
    return url


def _json_answer(directory: Path, environ: Mapping[str, str], *words: str) -> Any:
    try:
        return json.loads(_run(directory, environ, *words).stdout)
    except ValueError:
        raise RalphError(f"gh {' '.join(words[:2])} has printed no JSON") from None


def _run(
    directory: Path, environ: Mapping[str, str], *words: str, stdin: bytes | None = None
) -> CompletedCommand:
    command = f"gh {' '.join(words[:2])}"
    env = _environment(environ)
    try:
        with RunningCommand(
            ("gh", *words), cwd=directory, env=env, stdin=stdin, with_terminal=False
        ) as running:
            done = running.wait(_PATIENCE)
    except FileNotFoundError:
        raise UsageError(
            "gh, GitHub's command line, is not installed", "install it: https://cli.github.com"
        ) from None
    except TimeoutError:
        raise RalphError(f"{command}: still running after {_PATIENCE:.0f} s", "try again") from None
    except OSError as error:
        raise RalphError(f"cannot run gh: {error.strerror}", "check the PATH") from None
    if done.status != 0:
        lines = [line.strip() for line in decode(done.stderr).splitlines() if line.strip()]
        reason = "; ".join(line for line in lines if not line.startswith("Warning: "))
        raise RalphError(f"{command}: {reason or f'status {done.status}'}", "gh auth status")
    return done


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    env = {name: value for name, value in environ.items() if name not in _TERMINAL_ONLY}
    # gh runs git, and an agent can write git's configuration of the repository.
    for key, value in {"core.fsmonitor": "false", "core.hooksPath": "/dev/null"}.items():
        env = environment_with_config(env, key, value)
    return env | {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GIT_TERMINAL_PROMPT": "0"}

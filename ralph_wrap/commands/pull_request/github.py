"""GitHub, as its command line gh(1) answers for it; nothing is ever asked on a terminal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap import git
from ralph_wrap.errors import RalphError, UsageError
from ralph_wrap.system.process import Running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ralph_wrap.system.process import Completed

_PATIENCE = 120.0  # seconds for each answer
_TERMINAL_ONLY = {"GH_FORCE_TTY", "CLICOLOR_FORCE"}  # gh-environment(7): colours in what we read


class Home(NamedTuple):
    """A repository on GitHub: its address, and whose it is."""

    url: str
    owner: str


class Pull(NamedTuple):
    """A pull request: its address, and who owns the repository that its branch is in."""

    url: str
    head_owner: str


def repository(here: Path, environ: Mapping[str, str]) -> Home:
    """Return where pull requests of a checkout belong: ``GH_REPO``, else what gh takes for it.

    Raises:
        UsageError: there is no gh.
        RalphError: it does not tell; the message has its words.

    """
    wanted = environ.get("GH_REPO")
    answer = _asked(here, environ, "repo", "view", *([wanted] if wanted else []), "--json=url,owner")
    try:
        return Home(str(answer["url"]), str(answer["owner"]["login"]))
    except (TypeError, KeyError):
        raise RalphError("gh repo view has given an answer that is not understood") from None


def open_pulls(here: Path, environ: Mapping[str, str], home: Home, branch: str, base: str) -> list[Pull]:
    """Return the open pull requests for branches of a name; forks may have one, too.

    Arguments:
        base: what they are to land on.

    Raises:
        RalphError: gh does not tell; the message has its words.

    """
    about = (f"--repo={home.url}", f"--head={branch}", f"--base={base}", "--state=open")
    answer = _asked(here, environ, "pr", "list", *about, "--json=url,headRepositoryOwner")
    try:
        return [Pull(str(one["url"]), str(one["headRepositoryOwner"]["login"])) for one in answer]
    except (TypeError, KeyError):
        raise RalphError("gh pr list has given an answer that is not understood") from None


def create_pull(
    here: Path, environ: Mapping[str, str], home: Home, *, head: str, base: str, title: str, body: str
) -> str:
    """Open a pull request for a branch that has been pushed, and return its address.

    Arguments:
        head: short name of the branch, behind ``OWNER:`` if it is in a fork.
        base: what it is to land on.
        body: Markdown.

    Raises:
        RalphError: GitHub refused; the message has its words.

    """
    about = (f"--repo={home.url}", f"--head={head}", f"--base={base}", f"--title={title}")
    done = _run(here, environ, "pr", "create", *about, "--body-file=-", stdin=body.encode())
    url = git.text(done.stdout).strip()
    if not re.fullmatch(r"https?://\S+", url):
        raise RalphError("gh pr create has given no address", "gh pr list")
    return url


def _asked(here: Path, environ: Mapping[str, str], *words: str) -> Any:
    try:
        return json.loads(_run(here, environ, *words).stdout)
    except ValueError:
        raise RalphError(f"gh {' '.join(words[:2])} has given an answer that is not JSON") from None


def _run(here: Path, environ: Mapping[str, str], *words: str, stdin: bytes | None = None) -> Completed:
    what = f"gh {' '.join(words[:2])}"
    env = _environment(environ)
    try:
        with Running(("gh", *words), cwd=here, env=env, stdin=stdin, with_terminal=False) as running:
            done = running.wait(_PATIENCE)
    except FileNotFoundError:
        raise UsageError("gh, GitHub's command line, is not installed", "https://cli.github.com") from None
    except TimeoutError:
        raise RalphError(f"{what}: no end after {_PATIENCE:.0f} s", "try again") from None
    except OSError as error:
        raise RalphError(f"gh cannot be run: {error.strerror}", "check the PATH") from None
    if done.status != 0:
        said = [line.strip() for line in git.text(done.stderr).splitlines() if line.strip()]
        reason = "; ".join(line for line in said if not line.startswith("Warning: "))
        raise RalphError(f"{what}: {reason or f'status {done.status}'}", "gh auth status")
    return done


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    env = {name: value for name, value in git.environment(environ).items() if name not in _TERMINAL_ONLY}
    # gh runs git, and an agent can write the configuration that this one follows.
    for key, value in {"core.fsmonitor": "false", "core.hooksPath": "/dev/null"}.items():
        env = git.with_config(env, key, value)
    return env | {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GIT_TERMINAL_PROMPT": "0"}

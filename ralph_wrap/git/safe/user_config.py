"""The user's own configuration, where its includes have conditions (git-config(1), *Conditional includes*).

``includeIf "gitdir:~/work/"`` gives the repositories below a directory another name, key or tool. Git
compares the pattern with its git directory. In a shadow git directory it would not match. So git itself reads
the user's configuration in the real repository, and the shadow git directory gets what it found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ralph_wrap.git.command import Git, decode, run_git
from ralph_wrap.git.safe.entries import ConfigEntry
from ralph_wrap.system import files

_LARGEST = 1 << 20  # bytes
_SCOPES = frozenset({"system", "global"})
_INCLUDE = b"[include"
NO_USER_CONFIG = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""With these variables git reads no configuration of the user: the git directory has it all."""


def user_entries(git: Git) -> list[ConfigEntry]:
    """Return all entries of the user's configuration if it includes other files, else none.

    Arguments:
        git: in the checkout of the repository, with its git directory.

    Raises:
        GitError: git does not end.

    """
    if not any(_includes(path) for path in _user_files(git.env)):
        return []
    # Git before 2.26 has no scopes: there the conditions match in the repository alone.
    answer = run_git(git, "config", "--list", "-z", "--show-scope", accept=range(256))
    words = decode(answer.stdout).split("\0") if answer.status == 0 else []
    return list(_parse(words))


def _parse(words: list[str]) -> Iterator[ConfigEntry]:
    for scope, entry in zip(words[:-1:2], words[1::2], strict=False):
        key, newline, value = entry.partition("\n")
        if scope in _SCOPES and not key.startswith(("include.", "includeif.")):
            yield ConfigEntry(key, value if newline else None)


def _includes(path: Path) -> bool:
    try:
        return _INCLUDE in files.read_beginning(path.resolve(), _LARGEST).lower()
    except (OSError, RuntimeError):
        return False


def _user_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files of the user's configuration; git itself knows better where the system has its own."""
    if environ.get("GIT_CONFIG_NOSYSTEM", "0") in {"", "0", "false", "no", "off"}:
        yield Path(environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")
    if named := environ.get("GIT_CONFIG_GLOBAL"):  # git before 2.32 does not know it, and reads the other two
        yield Path(named)
    home = environ.get("HOME") or "/"
    yield Path(home, ".gitconfig")
    yield Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git/config")

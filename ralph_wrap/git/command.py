"""The door to git: the environment, the start and the end of each git command.

An agent may have written to the repository. So what is here holds for each command, whatever the repository's
configuration and files say (gitrepository-layout(5), git-config(1)).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap.errors import BlockingFileError, GitError
from ralph_wrap.git.safe import blocking_files, limited
from ralph_wrap.git.safe.common_dir import SafeCommonDirs
from ralph_wrap.system import process, process_table
from ralph_wrap.system.cancel import CancelToken
from ralph_wrap.system.dialogue import Dialogue
from ralph_wrap.system.files import lock_holder

OF_A_REPOSITORY = frozenset(
    (
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    )
)
"""The variables that belong to one repository: ``git rev-parse --local-env-vars`` of git 2.30 to 2.55.

``GIT_CONFIG_COUNT`` is on that list, too, and is none of these: containers pass ``safe.directory`` by it.
"""

# To our own git, any other variable that begins with GIT_ could mean another answer.
_KEPT_EXACTLY = {
    "GIT_ALLOW_PROTOCOL": "how remotes are reached",
    "GIT_ASKPASS": "credentials for fetches and pushes",
    "GIT_CEILING_DIRECTORIES": "where the user stops the search for a repository",
    "GIT_CONFIG_COUNT": "safe.directory, which containers pass this way",
    "GIT_CONFIG_GLOBAL": "the user's own configuration file",
    "GIT_CONFIG_NOSYSTEM": "the user's choice of configuration",
    "GIT_CONFIG_SYSTEM": "the user's choice of configuration",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM": "a project whose .git is on another mount",
    "GIT_EDITOR": "how the agent is kept from opening an editor",
    "GIT_EXEC_PATH": "where a relocated git finds itself",
    "GIT_LFS_SKIP_SMUDGE": "the user's choice whether a checkout downloads large files",
    "GIT_SEQUENCE_EDITOR": "as GIT_EDITOR",
    "GIT_SSH": "how remotes are reached",
    "GIT_SSH_COMMAND": "how remotes are reached",
    "GIT_SSH_VARIANT": "how remotes are reached",
    "GIT_TEMPLATE_DIR": "what the agent's own git init uses",
    "GIT_TERMINAL_PROMPT": "how the agent is kept from asking",
}
_KEPT_PREFIXES = {
    "GIT_AUTHOR_": "the author of the agent's commits",
    "GIT_COMMITTER_": "the committer of the agent's commits",
    "GIT_CONFIG_KEY_": "belongs to GIT_CONFIG_COUNT",
    "GIT_CONFIG_VALUE_": "belongs to GIT_CONFIG_COUNT",
    "GIT_HTTP_": "how remotes are reached",
    "GIT_PROXY_SSL_": "how remotes are reached",
    "GIT_SSL_": "how remotes are reached",
    "GIT_TRACE": "debugging",
}
# What the program of GIT_ASKPASS, or a credential helper, reads: GIT_USERNAME, GIT_PASSWORD, GIT_TOKEN.
_CREDENTIAL = re.compile(r"GIT_\w*(USER|LOGIN|PASS|TOKEN|SECRET|CRED)")

_ALWAYS = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "core.splitIndex=false"),
    *("-c", "splitIndex.sharedIndexExpire=never"),
    *("-c", "core.commitGraph=false"),  # git believes what a forged commit graph says about parents
    *("-c", "i18n.logOutputEncoding=UTF-8"),  # what we read; in UTF-16 there is no newline that we know
    *("-c", "i18n.commitEncoding=UTF-8"),  # what we write
    *("-c", "safe.bareRepository=explicit"),  # a directory in a project may look like a repository
)
_READABLE = ("-c", "core.quotePath=false")
# A repository can choose these. In a directory that stands in for it, it cannot: the user's values count.
_NOT_FROM_THE_REPOSITORY = (
    *("-c", "merge.default=text"),
    *("-c", "log.showSignature=false"),
)
_IMMUNE = {
    # Git 2.39.4 and newer: to fetch a missing object, git runs a command that the repository names.
    "GIT_NO_LAZY_FETCH": "1",
    # With refs/replace, git shows another object than the one that lands.
    "GIT_NO_REPLACE_OBJECTS": "1",
    # info/grafts gives commits other parents. With /dev/null alone git prints a hint.
    "GIT_GRAFT_FILE": "/dev/null/none",
}
_NO_PROTOCOL = {"GIT_ALLOW_PROTOCOL": "none"}  # the same as GIT_NO_LAZY_FETCH, for older git
_NEEDS_PROTOCOLS = {"push", "fetch", "ls-remote", "submodule"}

# A removal follows a save, so the save must be on the disk. Its index is a copy that goes with the worktree.
# core.fsync needs git 2.36. Newer git only warns about the older name, core.fsyncObjectFiles.
DURABLE = (
    *("-c", "core.fsync=committed,reference"),
    *("-c", "core.fsyncMethod=batch"),
    *("-c", "core.fsyncObjectFiles=true"),
)

# For objects whose commit or pack follows: git writes their content out, and the fsync(2) of what follows has
# the file system write the rest. With "batch" they are in a directory tmp_objdir-bulk-fsync-* until the last
# one is stored. A killed git leaves it with all of them, and nobody can tell whose it is: the next save could
# neither use it nor delete it.
WRITTEN_OUT = (
    *("-c", "core.fsync=committed,reference"),
    *("-c", "core.fsyncMethod=writeout-only"),
    *("-c", "core.fsyncObjectFiles=true"),
)

_PAUSES = (0.0, 0.02, 0.1)  # seconds between attempts

_SIGNAL_LOOK = 0.1  # seconds between two looks for a signal

PATIENCE = 600.0
"""Seconds until a git command that does nothing counts as stuck: a filter or the file system hangs."""

_LONGEST_WORK = 10
"""How many times as long a command may take that computes or reads: a crafted object may keep git busy."""

FIRST_SEARCH = 1.0
"""Seconds until a search for a file that git waits for; each next search comes after twice the time."""

_QUICK = {"check-ref-format", "config", "rev-parse", "symbolic-ref", "var", "version"}
_QUICK_PATIENCE = 10.0  # seconds for a command that reads a few small files
_LIST_PATIENCE = 30.0  # seconds for a list of refs or worktrees: 30,000 loose refs took 1 s (measured)
STUCK = -9
"""The status of a command that has not ended in time."""

NO_SUCH_OPTION = 129
"""The status of a command with an option that this git does not know (``usage_with_options`` of git)."""


class Git(NamedTuple):
    """The directory, environment and repository of a git command.

    Attributes:
        cwd: the working directory of git.
        env: the scrubbed environment (see :func:`git_environment`).
        git_dir: the repository; ``None`` if git finds it from *cwd*. An agent can replace the ``.git`` of its
            worktree, and git would then work in another repository.
        common_dir: the common directory of *git_dir*, if its file ``commondir`` cannot be trusted either.
        work_tree: the work tree of *git_dir*.
        index_file: index file to use instead of the repository's own.
        objects: the object directory, if *git_dir* is a shadow git directory (:mod:`ralph_wrap.git.shadow`).
        quarantine: an object directory apart from the repository, to which git writes new objects
            (:mod:`ralph_wrap.git.quarantine`). No ref can be changed then.
        config: pairs of ``-c`` and ``key=value`` for every command.
        lock: descriptor of a lock that each command inherits. If our process is killed, a command that still
            runs keeps the lock.
        safe: the directories that replace the common directory; ``None``: git reads the repository's own.
        cancel: after a signal, each command ends with an :class:`InterruptedError`; ``None``: none does.
        refreshes_index: ``git status`` writes the index when it has refreshed it. Until somebody does, git
            reads the content of each file again that is not older than the index
            (https://git-scm.com/docs/racy-git).

    """

    cwd: Path
    env: Mapping[str, str]
    git_dir: Path | None = None
    common_dir: Path | None = None
    work_tree: Path | None = None
    index_file: Path | None = None
    objects: Path | None = None
    quarantine: Path | None = None
    config: tuple[str, ...] = ()
    lock: int | None = None
    safe: SafeCommonDirs | None = None
    cancel: CancelToken | None = None
    refreshes_index: bool = False


def git_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of our own git, without the variables that could mean another answer.

    New git versions add some. So this module lists the variables to keep.
    """
    return {name: value for name, value in inherited.items() if not name.startswith("GIT_") or _is_kept(name)}


def _is_kept(name: str) -> bool:
    if name in OF_A_REPOSITORY:
        return False
    return (
        name in _KEPT_EXACTLY or name.startswith(tuple(_KEPT_PREFIXES)) or _CREDENTIAL.match(name) is not None
    )


def environment_without_repository(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program of the user: only what names another repository is not there."""
    return {name: value for name, value in inherited.items() if name not in OF_A_REPOSITORY}


def immune_environment(git: Git, command: str = "") -> dict[str, str]:
    """Return the environment that names the repository, and hides from git what an agent may have put there.

    It belongs to :func:`immune_config`.

    Arguments:
        command: the sub-command of git; a few use the network.

    """
    paths = {
        "GIT_DIR": git.git_dir,
        "GIT_COMMON_DIR": git.common_dir,
        "GIT_WORK_TREE": git.work_tree,
        "GIT_INDEX_FILE": git.index_file,
        "GIT_OBJECT_DIRECTORY": git.quarantine or git.objects,
        "GIT_QUARANTINE_PATH": git.quarantine,  # git then refuses to change a ref
    }
    named = {name: os.fspath(path) for name, path in paths.items() if path is not None}
    return {**git.env, **_IMMUNE, **({} if command in _NEEDS_PROTOCOLS else _NO_PROTOCOL), **named}


def environment_for_others(git: Git) -> dict[str, str]:
    """Return the environment for a program that runs git itself."""
    return immune_environment(_with_safe_common_dir(git, ""))


def immune_config(git: Git) -> tuple[str, ...]:
    """Return the pairs of ``-c`` and ``key=value`` that no repository can change."""
    is_replaced = git.objects is not None or (git.safe is not None and git.git_dir is not None)
    return _ALWAYS if is_replaced else _ALWAYS + _NOT_FROM_THE_REPOSITORY


def _with_safe_common_dir(git: Git, command: str | os.PathLike[str]) -> Git:
    """Return git with the directory that stands in for its common directory."""
    # `git worktree` computes paths from the common directory, and writes them to the registrations.
    if git.safe is None or git.git_dir is None or git.objects is not None or command == "worktree":
        return git
    common_dir = git.common_dir or git.git_dir
    safe = git.safe.of(common_dir)
    return git._replace(common_dir=safe, config=(*git.safe.config_of(git.git_dir, common_dir), *git.config))


def environment_with_config(environ: Mapping[str, str], key: str, value: str) -> dict[str, str]:
    """Return an environment in which a configuration key has a value for every git (git-config(1))."""
    count = environ.get("GIT_CONFIG_COUNT", "")
    number = int(count) if count.isdigit() else 0
    return {
        **environ,
        f"GIT_CONFIG_KEY_{number}": key,
        f"GIT_CONFIG_VALUE_{number}": value,
        "GIT_CONFIG_COUNT": str(number + 1),
    }


def start_git(
    git: Git,
    *arguments: str | os.PathLike[str],
    config: Sequence[str] = (),
    stdin: bytes | None = None,
    with_terminal: bool = True,
    most: int | None = None,
) -> process.RunningCommand:
    """Start a git command.

    Arguments:
        arguments: sub-command, options, operands.
        config: pairs of ``-c`` and ``key=value``.
        stdin: the standard input of git.
        with_terminal: git keeps our controlling terminal.
        most: maximum number of bytes of its output; then SIGPIPE ends it.

    Raises:
        OSError: git is not installed.

    """
    command = process.RunningCommand if most is None else partial(limited.LimitedCommand, most=most)
    return command(**_how_to_start(git, arguments, config), stdin=stdin, with_terminal=with_terminal)


def start_dialogue(git: Git, *arguments: str | os.PathLike[str]) -> Dialogue:
    """Start a git command that answers questions.

    Raises:
        OSError: git is not installed.

    """
    return Dialogue(**_how_to_start(git, arguments, ()))


def _how_to_start(
    git: Git, arguments: Sequence[str | os.PathLike[str]], config: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments of a :class:`~ralph_wrap.system.process.RunningCommand`."""
    places = _places_of(git)
    git = _with_safe_common_dir(git, arguments[0])
    env = {
        **immune_environment(git, os.fspath(arguments[0])),
        "GIT_TERMINAL_PROMPT": "0",
        # On a full disk, a git that may write the index cannot even look.
        "GIT_OPTIONAL_LOCKS": "1" if git.refreshes_index else "0",
        "GIT_EDITOR": "false",
        "GIT_PROGRESS_DELAY": "1",
        "LC_ALL": "C",
    }
    return {
        "argv": ("git", "--no-pager", *immune_config(git), *_READABLE, *git.config, *config, *arguments),
        "cwd": git.cwd,
        "env": env,
        "inherited": () if git.lock is None else (git.lock,),
        "examine": lambda: None if places is None else blocking_files.search(places),
        "cancel": git.cancel,
    }


def _places_of(git: Git) -> blocking_files.GitPlaces | None:
    if git.git_dir is None:
        return blocking_files.places_of(git.cwd)
    common_dir = git.common_dir or git.git_dir
    objects = git.objects or common_dir / "objects"
    return blocking_files.GitPlaces(git.git_dir, common_dir, objects, git.work_tree)


def finish_git(
    running: process.RunningCommand,
    command: str,
    accept: Sequence[int] = (0,),
    patience: float | None = None,
) -> process.CompletedCommand:
    """Wait for a started command.

    Arguments:
        command: its name, for the error.
        accept: exit statuses that are no failure.
        patience: seconds until the command counts as stuck and is killed; ``None`` for the usual limit.

    Raises:
        GitError: the exit status is not accepted, or the command did not end in time.
        InterruptedError: a signal came, and git was started with a token that counts them.

    """
    if patience is None:
        patience = _QUICK_PATIENCE if command in _QUICK else PATIENCE
        patience = min(_LIST_PATIENCE, PATIENCE) if command == "for-each-ref" else patience
    _wait(running, command, patience, running.ended)
    completed = running.wait()
    if completed.status not in accept:
        stderr = decode(completed.stderr)
        raise GitError(command, completed.status, stderr, _lock_hint(stderr))
    return completed


def _lock_hint(stderr: str) -> str:
    """Return what the user can do about a lock file of git, which another git made, or an agent."""
    found = re.search(r"[Uu]nable to create '(.*)\.lock': File exists", stderr)
    found = found or re.search(r"could not lock config file (.*): File exists", stderr)
    return lock_holder.file_hint(Path(f"{found[1]}.lock")) if found else ""


def await_answer(dialogue: Dialogue, command: str) -> None:
    """Wait until a command answers, or ends.

    Arguments:
        command: its name, for the error.

    Raises:
        GitError: it did not answer in time, or waits for a FIFO or a device.
        InterruptedError: a signal came, and git was started with a token that counts them.

    """
    _wait(dialogue, command, PATIENCE, dialogue.has_answer)


def _wait(
    running: process.RunningCommand, command: str, patience: float, arrived: Callable[[float], bool]
) -> None:
    """Wait for a command, and search from time to time for a file that it may wait for.

    Arguments:
        arrived: waits for a number of seconds at most, and returns whether what we wait for is there.

    Raises:
        GitError: it did not come in time, or the command waits for a FIFO or a device.

    """
    begun = quiet_since = time.monotonic()
    work: object = None
    pause = min(FIRST_SEARCH, patience)
    while not _has_arrived(running, pause, arrived):
        require_unblocked(running, command)
        now = time.monotonic()
        if (latest := _work_of(running.pid)) != work:  # for example a filter that takes long
            work, quiet_since = latest, now
        left = min(quiet_since + patience, begun + patience * _LONGEST_WORK) - now
        if left <= 0:
            running.end()
            words = (
                f"{patience:.0f} s without work" if now - quiet_since >= patience else f"{now - begun:.0f} s"
            )
            raise GitError(command, STUCK, f"error: no end after {words}")
        pause = min(pause * 2, left)


def _work_of(pid: int) -> object:
    """Return a value that changes while a process, or one that it has started, computes or reads."""
    return [
        (found, process_table.processor_ticks(found), process_table.bytes_read(found))
        for found in (pid, *process_table.descendants([pid]))
    ]


def _has_arrived(running: process.RunningCommand, seconds: float, arrived: Callable[[float], bool]) -> bool:
    """Wait, and return whether it arrived; a signal ends the wait if the command counts them.

    Raises:
        InterruptedError: a signal came.

    """
    if running.cancel is None:
        return arrived(seconds)
    deadline = time.monotonic() + seconds
    while not arrived(_SIGNAL_LOOK):
        if running.cancel.requested:
            raise InterruptedError("a signal came")
        if time.monotonic() >= deadline:
            return False
    return True


def require_unblocked(running: process.RunningCommand, command: str) -> None:
    """End a command that waits for a FIFO or a device.

    Raises:
        BlockingFileError: it does.

    """
    if path := running.examine():
        running.end()
        raise BlockingFileError(command, path)


def run_git(
    git: Git,
    *arguments: str | os.PathLike[str],
    config: Sequence[str] = (),
    stdin: bytes | None = None,
    accept: Sequence[int] = (0,),
) -> process.CompletedCommand:
    """Run a git command to its end.

    Raises:
        GitError: the exit status is not accepted.

    """
    patience = min(_LIST_PATIENCE, PATIENCE) if arguments[:2] == ("worktree", "list") else None
    patience = PATIENCE if "--contains" in arguments else patience  # a walk through the history
    with start_git(git, *arguments, config=config, stdin=stdin) as running:
        return finish_git(running, os.fspath(arguments[0]), accept, patience)


def run_git_again(
    git: Git, *arguments: str | os.PathLike[str], config: Sequence[str] = ()
) -> process.CompletedCommand:
    """Run a git command that reads all worktrees, and run it again if it fails.

    Another process may run ``git worktree add``. In its first milliseconds the worktree is registered, but
    the registration has no ``commondir`` yet. Commands that read all worktrees then fail (measured).

    Raises:
        GitError: each attempt failed.

    """
    for pause in _PAUSES:
        try:
            return run_git(git, *arguments, config=config)
        except GitError as error:
            if isinstance(error, BlockingFileError) or error.status in {STUCK, NO_SUCH_OPTION}:
                raise
            time.sleep(pause)
    return run_git(git, *arguments, config=config)


def decode(output: bytes) -> str:
    """Decode the output of git; encoding it again gives the same bytes."""
    return output.decode("utf-8", "surrogateescape")


def decode_lines(output: bytes) -> list[str]:
    """Split output in which no item can contain a newline (names of refs, object ids)."""
    return decode(output).removesuffix("\n").split("\n") if output else []  # splitlines() cuts at U+2028 too

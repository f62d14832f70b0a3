"""Initialise the submodules of a new worktree, so that an agent can build the project in it.

``git submodule init`` would write to the configuration that all worktrees share. So each submodule gets its
configuration on the command line of its own ``git submodule update``.

A submodule that the main checkout has is cloned from there. This clone needs no network, and hard links save
most of the space. Then it gets the remote and the remote branches of the main checkout's repository. Only
this clone may use the file protocol, which git forbids in submodules (CVE-2022-39253), because we made its
URL. Other submodules come from the URL in the configuration or ``.gitmodules``, under git's own rules. That
repository may not answer, or lack the commit. Then the commit comes from the repository of the project, if
an earlier session has saved it there. An update command in the configuration never runs. A submodule that the
user has switched off, by ``active`` or ``update = none``, stays off.

The worktree stays even after an error: a half-made submodule is removed, and a warning is logged.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from ralph_wrap.errors import GitError
from ralph_wrap.git import (
    Git,
    decode,
    existing_commits,
    finish_git,
    list_refs,
    resolve_commit,
    run_git,
    start_git,
    write_pack,
)
from ralph_wrap.git.index import list_index
from ralph_wrap.system import files
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.log import current, get_logger
from ralph_wrap.system.process import RunningCommand
from ralph_wrap.system.text import command
from ralph_wrap.worktree.create.replica import CLONED
from ralph_wrap.worktree.model import LinkedWorktree

log = get_logger()

_LIMIT = 600.0  # seconds for all submodules
_LATENCY = 0.1  # seconds between two looks for a signal during a clone
_SHA256 = 64  # digits of an object id
_SILENT = 1.0  # seconds without progress output at first


class _StoppedError(Exception):
    """A signal came, or the time is over."""


def init_submodules(
    tree: LinkedWorktree,
    git: Git,
    *,
    cancel: CancelToken = NEVER,
    limit: float = _LIMIT,
    model: Path | None = None,
) -> None:
    """Initialise the submodules of a new worktree, and those in submodules, and log the result.

    Arguments:
        tree: the new worktree, in which no process works yet.
        cancel: after a signal, further submodules are left out.
        limit: seconds for all submodules.
        model: the repository of the project, from which a clone gets copies; ``None`` for a worktree.

    """
    project = model or tree.common_dir
    populating = _SubmoduleCheckout(git, cancel, time.monotonic() + limit, project, apart=model is not None)
    try:
        populating.enter(tree.path, tree.registration, project, "")
    except _StoppedError as error:
        if not cancel.requested:
            log.warning("submodules.not_initialised", f"submodules left out: {error}", _hint(tree.path))
    except Exception as error:  # noqa: BLE001 -- the worktree must stay usable after any error
        log.warning("submodules.not_initialised", f"submodules left out: {error}", _hint(tree.path))
    if populating.count:
        log.event(
            "submodules.initialised", f"submodules initialised: {populating.count}", count=populating.count
        )


def _hint(top: Path) -> str:
    return command("git", "-C", top, "submodule", "update", "--init", "--recursive")


class _SubmoduleCheckout:
    """Initialises the submodules of one worktree.

    Attributes:
        count: the number of initialised submodules.

    """

    def __init__(self, git: Git, cancel: CancelToken, deadline: float, project: Path, *, apart: bool) -> None:
        self._git = git
        self._project = git._replace(cwd=project, git_dir=project, common_dir=project, work_tree=project)
        self._cancel = cancel
        self._deadline = deadline
        self._apart = apart
        self.count = 0

    def enter(self, top: Path, repository: Path, model: Path | None, above: str) -> None:
        """Initialise the submodules of a worktree or of a submodule.

        Arguments:
            top: the directory of the worktree or submodule.
            model: the repository of the same submodule in the main checkout, if it has one.
            above: path of *top* in the worktree, with a slash at its end.

        """
        modules_file = top / ".gitmodules"
        if modules_file.is_symlink() or not modules_file.is_file():
            return
        top_git = self._git._replace(cwd=top)
        modules_config = _configured(top_git, "--file", os.fspath(modules_file))
        config = _configured(top_git)
        sections = {
            value: key.removesuffix(".path") for key, value in modules_config.items() if key.endswith(".path")
        }
        for path, commit, is_checked_out in list_index(top_git).submodules():
            section = sections.get(path)
            if not is_checked_out or section is None or _is_off(section, modules_config, config):
                continue
            name = section.removeprefix("submodule.")
            if not _is_plain(name):
                self._left_out(top, above + path, f"git does not accept its name {name!r}")
                continue
            submodule_repository = repository / "modules" / name
            own = model / "modules" / name if model else None
            if own is not None and not is_repository(own):
                own = None
            active = () if _has_a_say(section, config) else ("-c", f"{section}.active=true")
            if self._cloned_from_own(top_git, path, section, commit, submodule_repository, own, above):
                self._done(top / path, submodule_repository, own, f"{above}{path}/")
            elif (reason := self._update(top_git, path, submodule_repository, above, active)) is None:
                if (top / path / ".git").is_file():
                    _record_cloned(_inside(top_git, top / path, submodule_repository), submodule_repository)
                    self._done(top / path, submodule_repository, own, f"{above}{path}/")
            elif self._made_from_project(top_git, path, commit, submodule_repository, above, active):
                self._name_origin(
                    submodule_repository, config.get(f"{section}.url") or modules_config.get(f"{section}.url")
                )
                self._done(top / path, submodule_repository, None, f"{above}{path}/")
            else:
                self._left_out(top, above + path, reason)

    def _cloned_from_own(
        self, git: Git, path: str, section: str, commit: str, directory: Path, own: Path | None, above: str
    ) -> bool:
        if own is None or not _can_be_cloned(self._git, own, commit):
            return False
        # A clone from a path has hard links to the objects, and an agent could write to them.
        url = f"file://{quote(os.fspath(own))}" if self._apart else os.fspath(own)
        local = ("-c", f"{section}.url={url}", "-c", "protocol.file.allow=always")
        if self._update(git, path, directory, above, local) is not None:
            return False
        top = git.cwd / path
        if not (top / ".git").is_file():
            return False
        _become_like(_inside(git, top, directory), directory, own)
        if self._apart:  # its commits are not in the repository that gets the saved work
            _record_cloned(_inside(git, top, directory), directory)
        return True

    def _made_from_project(
        self, git: Git, path: str, commit: str, directory: Path, above: str, config: tuple[str, ...]
    ) -> bool:
        """Check out a submodule whose commit is in the repository of the project: without network."""
        if not existing_commits(self._project, [commit]):
            return False
        # No agent has written there: git may read its configuration, and git-init(1) needs that.
        inside = Git(directory, git.env, git_dir=directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            run_git(inside, "init", "--quiet", "--bare", "--template=", *_object_format(commit))
            run_git(inside, "config", "--file", directory / "config", "core.bare", "false")
            write_pack(self._project, directory / "objects", [commit], [])
            # Without a ref that contains the commit, git-submodule(1) fetches it.
            run_git(inside, "update-ref", "--no-deref", "HEAD", commit)
        except (GitError, OSError):
            _take_back(git.cwd / path, directory)
            return False
        return self._update(git, path, directory, above, config) is None

    def _name_origin(self, repository: Path, url: str | None) -> None:
        """Name the remote of a repository; a relative URL needs the rules of git-submodule(1)."""
        if url and not url.startswith((".", "-")):  # git-submodule(1) refuses a URL that looks like an option
            for key, value in {"url": url, "fetch": "+refs/heads/*:refs/remotes/origin/*"}.items():
                words = ("config", "--file", repository / "config", f"remote.origin.{key}", value)
                run_git(self._project, *words)

    def _done(self, top: Path, repository: Path, model: Path | None, above: str) -> None:
        self.count += 1
        self.enter(top, repository, model, above)

    def _left_out(self, top: Path, path: str, reason: str) -> None:
        log.warning(
            "submodules.not_initialised", f"submodule {path} is not initialised: {reason}", _hint(top)
        )

    def _update(
        self, git: Git, path: str, directory: Path, above: str, config: tuple[str, ...]
    ) -> str | None:
        """Clone a submodule and check it out; after an error remove it, and return the reason."""
        if self._cancel.requested or time.monotonic() > self._deadline:
            raise _StoppedError("the time is over")
        words = ("submodule", "update", "--checkout", "--", f":(top,literal){path}")
        try:
            with start_git(git, *words, config=config) as running:
                self._wait(running, f"{above}{path}")
                finish_git(running, "submodule update")
        except GitError as error:
            _take_back(git.cwd / path, directory)
            return error.message
        except BaseException:
            _take_back(git.cwd / path, directory)
            raise
        return None

    def _wait(self, running: RunningCommand, path: str) -> None:
        begun = time.monotonic()
        while not running.ended(_LATENCY):
            now = time.monotonic()
            if self._cancel.requested or now > self._deadline:
                raise _StoppedError(f"{path} took too long")
            if now > begun + _SILENT:
                current().progress(f"submodule {path}: {running.latest()}")
        if time.monotonic() > begun + _SILENT:
            current().progress("")


def _object_format(commit: str) -> tuple[str, ...]:
    return ("--object-format=sha256",) if len(commit) == _SHA256 else ()  # the option is new in git 2.29


def _inside(git: Git, top: Path, repository: Path) -> Git:
    # With an explicit git_dir, git can never write to the repository above.
    return git._replace(cwd=top, git_dir=repository, common_dir=repository, work_tree=top)


def _become_like(git: Git, repository: Path, own: Path) -> None:
    """Give a clone of the main checkout's repository the same remote URL and remote branches."""
    with contextlib.suppress(GitError):
        branches = "+refs/remotes/origin/*:refs/remotes/origin/*"
        run_git(git, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", own, branches)
        arguments = ("config", "--file", own / "config", "--get", "remote.origin.url")
        url = run_git(git, *arguments, accept=(0, 1)).stdout
        if url:
            address = decode(url).removesuffix("\n")
            run_git(git, "config", "--file", repository / "config", "remote.origin.url", address)


def _configured(git: Git, *source: str) -> dict[str, str]:
    answer = run_git(git, "config", "-z", *source, "--get-regexp", r"^submodule\.", accept=(0, 1))
    entries = (entry.partition("\n") for entry in decode(answer.stdout).split("\0") if entry)
    return {key: value if newline else "true" for key, newline, value in entries}


def _is_plain(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not {"..", ".", "/"} & {*parts} and not re.search(r"[=\n]|\A-|//", name)


_NO = {"false", "no", "off", "0", ""}  # git-config(1): boolean


def _is_off(section: str, modules_config: dict[str, str], config: dict[str, str]) -> bool:
    update = config.get(f"{section}.update", modules_config.get(f"{section}.update"))
    return update == "none" or config.get(f"{section}.active", "true").lower() in _NO


def _has_a_say(section: str, config: dict[str, str]) -> bool:
    """Return whether the configuration itself selects submodules (gitsubmodules(7))."""
    return bool({f"{section}.active", "submodule.active", f"{section}.url"} & {*config})


def _can_be_cloned(git: Git, own: Path, commit: str) -> bool:
    if any((own / "objects" / "pack").glob("*.promisor")):
        return False
    own_git = git._replace(cwd=own, git_dir=own, common_dir=own, work_tree=own, config=())
    try:
        return bool(existing_commits(own_git, [commit]))
    except GitError:
        return False


def _take_back(directory: Path, repository: Path) -> None:
    """Remove an incomplete new clone, in which no process has worked."""
    shutil.rmtree(repository, ignore_errors=True)
    for entry in directory.iterdir() if directory.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
    with contextlib.suppress(OSError):
        for parent in repository.parents:
            parent.rmdir()  # up to the first directory that is not empty
            if parent.name == "modules":
                break


def is_repository(directory: Path) -> bool:
    """Return whether a directory is a repository, and no symlink leads to it."""
    objects = directory / "objects"
    return (directory / "HEAD").is_file() and objects.is_dir() and objects.resolve() == objects


def _record_cloned(git: Git, repository: Path) -> None:
    """Record the commits with which a repository was cloned.

    Raises:
        GitError: git cannot list the refs.
        OSError: the file cannot be written.

    """
    found = {*list_refs(git).values()}
    if head := resolve_commit(git, "HEAD"):
        found.add(head)
    files.replace(repository / CLONED, "".join(f"{oid}\n" for oid in sorted(found)).encode(), sync=False)

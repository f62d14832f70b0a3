"""Filters: which ones git runs on the files of a commit, and whether each git runs the same ones.

A filter changes a file on its way between the repository and a checkout (gitattributes(5)). Without the
user's approval, our git runs none that the repository's configuration names. The agent's git reads this
configuration and runs them. If both work on the same files, a file is filtered twice, or not at all:
git-crypt then encrypts what is encrypted already, and a merge writes the encrypted text over the user's plain
file. So whatever checks files out first makes sure that no such filter applies to a file.

The filters of the user's own configuration run in every git. Those lines that ``git lfs install --local``
writes do so, too (:func:`ralph_wrap.git.safe.config_keys.is_of_git_lfs`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ralph_wrap.errors import GitError, UntrustedError, explained
from ralph_wrap.git import pointer
from ralph_wrap.git.command import Git, decode, run_git
from ralph_wrap.git.repository import Repository
from ralph_wrap.git.safe.common_dir import EXTENSION, OWN_CONFIG, SafeCommonDirs, configuration, harmless
from ralph_wrap.git.safe.config_keys import pattern_of
from ralph_wrap.git.safe.entries import ConfigEntry, read_config
from ralph_wrap.git.scratch import scratch_directory
from ralph_wrap.system.log import Commands, one_line
from ralph_wrap.system.text import named

_PROGRAMS = {"filter.*.clean", "filter.*.process", "filter.*.smudge"}
_ATTRIBUTES_FILE = "core.attributesfile"
_CONDITION = "includeif."
_CONVERSIONS = ("filter", "text", "eol", "crlf", "ident", "working-tree-encoding")
_NO = {"false", "no", "off", "0", ""}  # git-config(1): boolean
_OF_THE_SHELL = {".", ":", "cd", "command", "eval", "exec", "export", "set", "test"}
_NAMED = 3  # paths in a message
_SCRATCH = "ralph-wrap-index-"


class _UnseenEntry(NamedTuple):
    """An entry that other gits obey, and ours does not.

    Attributes:
        source: the file that has it.
        can_be_approved: ``ralph-wrap trust`` shows it.

    """

    entry: ConfigEntry
    source: Path
    can_be_approved: bool


def require_same_files(git: Git, repository: Repository, *commits: str) -> None:
    """Check that our git sees the files of some commits as other gits do.

    Arguments:
        git: git in the checkout.
        repository: of the checkout.
        commits: commits or trees whose files are to be checked out, or are checked out.

    Raises:
        UntrustedError: a filter without approval applies to a file.
        GitError: git cannot read the configuration or a commit.
        RalphError: no scratch directory can be made.

    """
    if git.safe is None or not (unseen := list(_unseen_entries(git, repository))):
        return
    programs: dict[str, list[_UnseenEntry]] = {}
    for found in unseen:
        if found.entry.key != _ATTRIBUTES_FILE:
            programs.setdefault(_filter_of(found.entry.key), []).append(found)
    elsewhere = [found for found in unseen if found.entry.key == _ATTRIBUTES_FILE]
    for commit in dict.fromkeys(commits):
        # This git reads the repository's own configuration. It only reads attributes, and runs no program.
        with _with_index(repository.checkout(git)._replace(safe=None), git.safe, commit) as plain:
            paths = run_git(plain, "ls-files", "-z").stdout
            filters = _attributes(plain, paths, "filter")
            for name, entries in programs.items():
                if touched := [path for path, value in filters.items() if value == (name,)]:
                    raise _refusal(f"the filter {one_line(name)}", entries, touched, repository)
            if elsewhere:
                others = _attributes(plain, paths, *_CONVERSIONS)
                ours = _attributes(plain._replace(safe=git.safe), paths, *_CONVERSIONS)
                if touched := [path for path, value in others.items() if value != ours.get(path)]:
                    raise _refusal("another file of attributes", elsewhere, touched, repository)


class MissingFilter(NamedTuple):
    """A filter of our git whose program is not installed.

    Attributes:
        name: of the filter.
        program: the missing one.
        paths: the files of the commit that it applies to.
        is_required: without it, git checks these files out not at all.

    """

    name: str
    program: str
    paths: tuple[str, ...]
    is_required: bool

    @property
    def problem(self) -> str:
        """What is wrong, for people."""
        files = named([*map(one_line, self.paths)], _NAMED)
        return f"the filter {one_line(self.name)} of {files} needs {self.program}, which is not installed"

    @property
    def fix(self) -> str:
        """What to do about it."""
        source = shlex.quote(f"^filter\\.{re.escape(self.name)}\\.")
        return f"install {self.program}; what names it: git config --show-origin --get-regexp {source}"


def missing_filters(git: Git, repository: Repository, commit: str) -> list[MissingFilter]:
    """Return the filters that apply to files of a commit, and whose programs are not installed.

    Filters without approval are no subject here: :func:`require_same_files` comes first.

    Raises:
        GitError: git cannot read the configuration or the commit.
        RalphError: no scratch directory can be made.

    """
    checkout = repository.checkout(git)._replace(safe=None)  # it reads, and runs no program
    listed = run_git(checkout, "config", "-z", "--get-regexp", r"^filter\.", accept=(0, 1)).stdout
    config = {key: value for key, _, value in _split(decode(listed).split("\0"))}
    lacking = {
        name: missing
        for name in dict.fromkeys(map(_filter_of, config))
        if (missing := _missing_program(config, name, git.env))
    }
    if not lacking or git.safe is None:
        return []
    with _with_index(checkout, git.safe, commit) as plain:
        filters = _attributes(plain, run_git(plain, "ls-files", "-z").stdout, "filter")
    found = []
    for name, program in lacking.items():
        if paths := tuple(path for path, value in filters.items() if value == (name,)):
            required = config.get(f"filter.{name}.required", "false").lower() not in _NO
            found.append(MissingFilter(name, program, paths, required))
    return found


def _missing_program(config: Mapping[str, str], name: str, environ: Mapping[str, str]) -> str | None:
    """Return the program of a filter if there is no such program; git lets a shell run the command."""
    process = config.get(f"filter.{name}.process")
    commands = [process] if process else [config.get(f"filter.{name}.{way}") for way in ("clean", "smudge")]
    for command in filter(None, commands):
        words = command.split(maxsplit=1)
        # Another first word may be quoted, an assignment or a command of the shell: git will tell.
        is_plain = words and re.fullmatch(r"[\w./+-]+", words[0]) and words[0] not in _OF_THE_SHELL
        if is_plain and not shutil.which(words[0], path=environ.get("PATH")):
            return words[0]
    return None


def _unseen_entries(git: Git, repository: Repository) -> Iterator[_UnseenEntry]:
    shared = repository.common_dir / "config"
    for entry in git.safe.off if git.safe else ():
        if _matters(entry):
            yield _UnseenEntry(entry, shared, can_be_approved=True)
    entries = configuration(repository.common_dir)
    if any(entry.key.startswith(_CONDITION) for entry in entries):
        plain = {entry for entry in entries if _matters(entry)}
        for entry in _with_conditions(git, repository):
            if _matters(entry) and entry not in plain:
                yield _UnseenEntry(entry, shared, can_be_approved=False)
    if any(entry.key == EXTENSION for entry in entries):
        own = pointer.git_dir_of(repository.root) / OWN_CONFIG
        try:
            found = read_config(own)
        except (OSError, ValueError) as error:
            raise GitError("config", 128, f"fatal: {own} cannot be read: {error}") from error
        for entry in _without_harmless(found):
            yield _UnseenEntry(entry, own, can_be_approved=False)


def _without_harmless(entries: Sequence[ConfigEntry]) -> Iterator[ConfigEntry]:
    kept = harmless(entries)
    return (entry for entry in entries if _matters(entry) and entry not in kept)


def _matters(entry: ConfigEntry) -> bool:
    return pattern_of(entry.key) in _PROGRAMS or entry.key == _ATTRIBUTES_FILE


def _filter_of(key: str) -> str:
    return key.partition(".")[2].rpartition(".")[0]


def _with_conditions(git: Git, repository: Repository) -> list[ConfigEntry]:
    """Return the entries of the repository's configuration with all files that git includes here."""
    checkout = repository.checkout(git)._replace(safe=None)
    words = decode(run_git(checkout, "config", "--local", "--includes", "--list", "-z").stdout).split("\0")
    found = [ConfigEntry(key, value if newline else None) for key, newline, value in _split(words)]
    kept = harmless(found)
    return [entry for entry in found if entry not in kept]


def _split(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    return (word.partition("\n") for word in words[:-1])


@contextlib.contextmanager
def _with_index(git: Git, safe: SafeCommonDirs, commit: str) -> Iterator[Git]:
    """Yield git with an index of a commit: ``check-attr --source`` needs git 2.40."""
    home = safe.require_home()
    with contextlib.ExitStack() as stack:
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = stack.enter_context(scratch_directory(home, _SCRATCH))
        except OSError as error:
            raise explained(error) from error
        plain = git._replace(index_file=directory / "index")
        run_git(plain, "read-tree", commit)
        yield plain


def _attributes(git: Git, paths: bytes, *names: str) -> Mapping[str, tuple[str, ...]]:
    """Return the values of attributes by path, as the ``.gitattributes`` in the index have them."""
    answer = run_git(git, "check-attr", "-z", "--cached", "--stdin", *names, stdin=paths)
    words = decode(answer.stdout).split("\0")
    found: dict[str, tuple[str, ...]] = {}
    for path, value in zip(words[:-1:3], words[2::3], strict=False):
        found[path] = (*found.get(path, ()), value)
    return found


def _refusal(
    what: str, entries: Sequence[_UnseenEntry], paths: Sequence[str], repository: Repository
) -> UntrustedError:
    keys = ", ".join(dict.fromkeys(one_line(found.entry.key) for found in entries))
    source = entries[0].source
    top = shlex.quote(os.fspath(repository.root))
    message = (
        f"{what} applies to {named(paths, _NAMED)}, and you have not approved {keys} in {source}:"
        " git would run it, and ralph-wrap would not, so both would see different files"
    )
    if all(found.can_be_approved for found in entries):
        way = f"to see and approve it: ralph-wrap trust -C {top}"
    else:
        way = (
            f"move these lines to {repository.common_dir / 'config'} itself, then: ralph-wrap trust -C {top}"
        )
    return UntrustedError(message, Commands.of(way, f"if you did not add it: ralph-wrap audit -C {top}"))

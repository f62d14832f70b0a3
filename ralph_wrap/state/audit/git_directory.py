"""Look at one git directory: of the project, of a submodule, or the registration of a worktree.

gitrepository-layout(5) names the files. Where git reads a file, an agent may have put anything.
"""

from __future__ import annotations

import os
import re

from ralph_wrap.state.audit.configuration import look_at_configuration
from ralph_wrap.state.audit.finding import FindingKind
from ralph_wrap.state.audit.reader import Reader

_FILES = frozenset({"HEAD", "config", "config.worktree", "index", "packed-refs", "shallow"})
_DIRECTORIES = ("refs", "objects")  # whose entries must be plain, too
_LARGEST_LIST = 64 << 20  # bytes of packed-refs
_REPLACE = re.compile(rb"^[0-9a-f]+ (refs/replace/[^\n]*)$", re.MULTILINE)
_EXEC = re.compile(rb"^[ \t]*(?:x|exec)\b", re.MULTILINE)
_BY_LFS = re.compile(  # the hooks of "git lfs install"; they run the git-lfs of the user's PATH
    rb"#!/bin/sh\ncommand -v git-lfs >/dev/null 2>&1 \|\| \{ (?:printf|echo) >&2"
    rb'(?: "[^"`$]*")+; exit 2; \}\n'
    rb'git lfs (?:post-checkout|post-commit|post-merge|pre-push) "\$@"\n?'
)


def look_at_git_directory(reader: Reader, path: str, work_tree: str | None = None) -> dict[str, str]:
    """Add the findings in a git directory, and return the values of its configuration.

    Arguments:
        work_tree: its checkout, if its configuration has to name one.

    """
    names = set()
    for entry in reader.plain_entries(path):
        names.add(entry.name)
        if entry.name in _FILES and not entry.is_file(follow_symlinks=False):
            reader.not_plain(entry.path)
    values = look_at_configuration(reader, f"{path}/config", work_tree)
    if "config.worktree" in names:
        values |= look_at_configuration(reader, f"{path}/config.worktree", work_tree)
    if "commondir" in names:
        _add_file(reader, f"{path}/commondir", FindingKind.COMMON_DIR)
    if "shallow" in names:  # its lines change with each fetch
        reader.add(f"{path}/shallow", FindingKind.SHALLOW)
    look_at_hooks(reader, f"{path}/hooks")
    _look_at_info(reader, path)
    _look_at_refs(reader, path)
    for folder in ("remotes", "branches"):
        if folder in names:
            for entry in reader.plain_entries(f"{path}/{folder}"):
                _add_file(reader, entry.path, FindingKind.REMOTE_FILE)
    look_at_todo(reader, path)
    return values


def look_at_hooks(reader: Reader, path: str) -> None:
    """Add the hooks in a directory: executable files that are no samples."""
    for entry in reader.plain_entries(path):
        if entry.name.endswith(".sample") or not entry.is_file(follow_symlinks=False):
            continue
        if os.access(entry.path, os.X_OK):
            content = reader.content(entry.path)
            if content is not None and not _BY_LFS.fullmatch(content):
                reader.keep(entry.path, content)
                reader.add(entry.path, FindingKind.HOOK, "", content)


def look_at_todo(reader: Reader, path: str) -> None:
    """Add the list of an interactive rebase that runs commands."""
    todo = f"{path}/rebase-merge/git-rebase-todo"
    content = reader.content(todo)
    if content is not None and _EXEC.search(content):
        reader.add(todo, FindingKind.TODO, "", content)


def _look_at_info(reader: Reader, path: str) -> None:
    for entry in reader.plain_entries(f"{path}/info"):
        if entry.name == "attributes":
            _add_file(reader, entry.path, FindingKind.ATTRIBUTES)
        elif entry.name == "grafts":
            _add_file(reader, entry.path, FindingKind.GRAFTS)
    for entry in reader.plain_entries(f"{path}/objects/info"):
        if entry.name in {"alternates", "http-alternates"}:
            _add_file(reader, entry.path, FindingKind.ALTERNATES)


def _add_file(reader: Reader, path: str, kind: FindingKind) -> None:
    """Add a file that says something: lines that are no comments."""
    content = reader.content(path)
    if content is None:
        return
    if any(line.strip() and not line.lstrip().startswith(b"#") for line in content.splitlines()):
        reader.keep(path, content)
        reader.add(path, kind, "", content)


def _look_at_refs(reader: Reader, path: str) -> None:
    for folder in _DIRECTORIES:
        for _ in reader.plain_entries(f"{path}/{folder}"):
            pass
    _look_below(reader, f"{path}/refs/heads")
    replaced = {entry.name for entry in reader.plain_entries(f"{path}/refs/replace")}
    content = reader.content(f"{path}/packed-refs", _LARGEST_LIST) or b""
    if b" refs/replace/" in content:
        replaced |= {os.fsdecode(match[1]).rpartition("/")[2] for match in _REPLACE.finditer(content)}
    for name in sorted(replaced):
        reader.add(f"{path}/refs/replace/{name}", FindingKind.REPLACE, f"refs/replace/{name}")


def _look_below(reader: Reader, path: str) -> None:
    """Add what is no plain file among the branches, at any depth: an agent can make a thousand levels."""
    waiting = [path]
    while waiting:
        entries = reader.plain_entries(waiting.pop())
        waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

"""Refs of ours that name a commit which does not exist: git then refuses ``git gc`` and ``git log --all``.

No save makes such a ref. An older version of ralph-wrap, a disk or another program may have left one.
"""

from __future__ import annotations

import shlex

from ralph_wrap.git import decode_lines, list_refs, run_git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from ralph_wrap.git import Git

OURS = ("refs/heads/ralph/", "refs/ralph/")


def broken_refs(git: Git) -> dict[str, str]:
    """Return the refs of ours whose object git does not find, with its id.

    Raises:
        GitError: git failed.

    """
    refs = list_refs(git, *OURS)
    if not refs:
        return {}
    stdin = "".join(f"{oid}\n" for oid in refs.values()).encode()
    answer = run_git(git, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=stdin)
    kinds = dict(row.rpartition(" ")[::2] for row in decode_lines(answer.stdout))
    return {ref: oid for ref, oid in refs.items() if kinds.get(oid, "missing") == "missing"}


def removal_of(root: Path, ref: str) -> str:
    """Return the command that deletes a ref with its reflog.

    Arguments:
        root: the directory of the project.

    """
    return shlex.join(["git", "-C", str(root), "update-ref", "--no-deref", "-d", ref])

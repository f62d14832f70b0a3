"""A shadow git directory: git works on the objects of a repository, and believes nothing else in it.

The configuration of a repository can name programs: filters, drivers, a pager, a signer, a transport. An
agent that may write ``.git`` can put its own there. A shadow git directory is a private directory outside of
the project, with a configuration of ours and without refs. Its object directory is that of the repository.

- Name commits by their ids: there are no refs here.
- The user's global and system configuration counts, as it does in the real repository
  (:mod:`ralph_wrap.git.safe.user_config`), and so do the tracked ``.gitattributes`` of the checkout. Of
  ``info/attributes`` the same counts as in a merge (:mod:`ralph_wrap.git.safe.attributes`).
- Of the configuration of the repository, only those lines count that the user has approved.
- What git writes goes into the object directory of the repository.
- HEAD is unborn, and there is no index. Set :attr:`Git.index_file` to work on one.

What looks at branches asks the repository itself only this::

    change_refs          a ref moves by a transaction, which only its repository has.
    list_refs            refs are loose, packed or in a reftable, and git alone reads all three.
    list_worktrees       which branches are checked out, and where.
    other_tips           the other branches whose commits count as present.
    read_objects         whether an object is whole: it is read in a git directory of its own.
    ref_origins          the reflog says whether a session made a branch.
    ref_times            the reflog says when a branch was dropped.
    require_whole        whether a branch is whole before it is deleted, as read_objects.
    symbolic_ref_target  the name of the remote's main branch.
    worktree_holding     a branch that is checked out is not dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ralph_wrap.git.command import Git
from ralph_wrap.git.repository import Repository
from ralph_wrap.git.safe.attributes import counting_attributes
from ralph_wrap.git.safe.entries import ConfigEntry, format_config
from ralph_wrap.git.safe.user_config import NO_USER_CONFIG, user_entries
from ralph_wrap.git.scratch import private_directory
from ralph_wrap.system import files

_NAME = "ralph-wrap-shadow-"
_SHALLOW = 64 << 20  # bytes of the list of commits at which a shallow clone ends
_SHA256 = 64  # hexadecimal digits
_EXTENSION = "[extensions]\n\tobjectFormat = sha256\n"


@contextlib.contextmanager
def shadow_repository(git: Git, repository: Repository) -> Iterator[Git]:
    """Make a shadow git directory, yield git in it, and remove it at the end.

    Arguments:
        git: in the checkout, whose ``.gitattributes`` count.

    Raises:
        OSError: no private directory can be made.

    """
    with contextlib.ExitStack() as stack:
        directory = private_directory(stack, git.env, (repository.root, repository.common_dir), _NAME)
        entries = user_entries(repository.checkout(git))
        _fill(directory, git, repository, entries)
        yield git._replace(
            env={**git.env, **NO_USER_CONFIG} if entries else git.env,
            git_dir=directory,
            common_dir=None,
            work_tree=git.work_tree or git.cwd,
            index_file=None,
            objects=repository.common_dir / "objects",
        )


def _fill(directory: Path, git: Git, repository: Repository, entries: Sequence[ConfigEntry]) -> None:
    """Write by hand what makes a directory a git directory: ``git init`` takes ten times as long."""
    is_sha256 = repository.head is not None and len(repository.head) == _SHA256
    for name in ("objects", "refs"):
        (directory / name).mkdir()
    config = (
        f"[core]\n\trepositoryFormatVersion = {int(is_sha256)}\n\tbare = false\n"
        f"\tfileMode = {str(repository.file_mode).lower()}\n\tsymlinks = {str(repository.symlinks).lower()}\n"
    )
    approved = git.safe.approved_of(repository.common_dir) if git.safe else ()
    # Ours comes last and wins.
    content = format_config([*entries, *approved]) + (config + _EXTENSION * is_sha256).encode()
    _write(directory / "config", content)
    if attributes := counting_attributes(repository.common_dir, approved):
        (directory / "info").mkdir()
        _write(directory / "info/attributes", attributes)
    _write(directory / "HEAD", b"ref: refs/heads/none\n")
    with contextlib.suppress(FileNotFoundError):
        # It can take parents away from commits, and so make a history shorter. It cannot give them others.
        _write(directory / "shallow", files.read(repository.common_dir / "shallow", _SHALLOW))


def _write(path: Path, content: bytes) -> None:
    files.create(path, content, mode=0o600, sync=False)

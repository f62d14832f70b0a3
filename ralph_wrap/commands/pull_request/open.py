"""Open a pull request for a branch on GitHub.

gh decides in which repository: the one of ``gh repo set-default``, else the remote that it prefers. The
branch is pushed as it is, by ourselves: forward only, without hooks, and never its saved work. What is told
of it is what git and the session's report know. What an agent wrote of that is a block of code, where it
neither calls people nor closes issues; prompt, command line and paths are not told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ralph_wrap import branches, config, git
from ralph_wrap.branches import HEADS
from ralph_wrap.branches.compare import compare
from ralph_wrap.commands.pull_request import github
from ralph_wrap.errors import ConflictError, RalphError, UsageError
from ralph_wrap.state import project
from ralph_wrap.system.log import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralph_wrap.branches import Branch, Main
    from ralph_wrap.git import Commit, Git
    from ralph_wrap.state.project import Project
    from ralph_wrap.system.log import Log

_PATIENCE = 120.0  # seconds for the push
_LONGEST = 200  # letters of a line that an agent wrote; GitHub takes 256 as a title
_MOST = 100  # commits that are listed
_SHOWN = 12  # digits of an object id
_REMOTES = "refs/remotes/"

_ON_GITHUB = re.compile(r"(?:[a-z+]+://[^/]+/|[^/:]+:/?)([A-Za-z0-9_-]+)/[^/]+/?")  # git-push(1), *GIT URLS*
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class Opened(NamedTuple):
    """A pull request.

    Attributes:
        id: agent id, ``None`` if the branch is not named by one.
        branch: short name.
        base: the branch that it is to land on.
        url: where it is.
        remote: where the branch was pushed to.
        created: it was not there before.

    """

    id: str | None
    branch: str
    base: str
    url: str
    remote: str
    created: bool


def open_pull_request(place: Project, environ: Mapping[str, str], name: str, told: Log) -> Opened:
    """Push a branch and open a pull request for it, or find the one that is open.

    Arguments:
        name: id or name of the branch.

    Raises:
        UsageError: there is no gh, or it is not plain which remote is meant.
        NotFoundError: there is no such branch, or no main branch.
        ConflictError: its session is not finished; nothing of it is left to land; or the remote has other
            commits of this name.
        RalphError: git or gh could not do it: the message has their words.

    """
    where = place.git(environ)
    settings = config.of_project(place.root)
    one = branches.named(branches.read(place, environ), name)
    main = branches.main_branch(place, where, settings.main)
    _require_finished(one)
    _require_unmerged(place, where, one, main)
    there = git.remotes(where)
    remote = _remote(settings.push, there)
    base = _name_there(main, there)
    commits = git.commits_without(where, [one.tip], main.tip)[::-1]
    _warn_of_others(where, one, main, f"{remote}/{base}", len(commits), told)
    try:
        told.progress("gh: which repository is it?")
        home = github.repository(place.checkout, environ)
        told.progress(f"push: {one.name} to {remote}")
        _push(where, remote, one)
        told.event("branch.pushed", f"pushed {one.name} to {remote}", branch=one.name, commit=one.tip)
        told.progress(f"gh: pull request in {home.url}")
        owner = _owner(where, remote) or home.owner.lower()
        found = github.open_pulls(place.checkout, environ, home, one.name, base)
        url = next((pull.url for pull in found if pull.head_owner.lower() == owner), None)
        opened = Opened(one.id, one.name, base, url or "", remote, created=url is None)
        if url:
            return opened
        head = one.name if owner == home.owner.lower() else f"{owner}:{one.name}"
        title, body = title_of(one, commits), body_of(one, commits)
        return opened._replace(
            url=github.create_pull(
                place.checkout, environ, home, head=head, base=base, title=title, body=body
            )
        )
    finally:
        told.progress("")


def _require_finished(one: Branch) -> None:
    """Check that a branch is what it will stay, as for landing it.

    Raises:
        ConflictError: it is not.

    """
    if one.only_saved:
        raise ConflictError(f"{one.name} is saved work, and no branch", f"ralph-wrap apply {one.label}")
    if one.verdict is not None:
        ending = f"stop {one.label}" if one.verdict == "live" else "sweep"
        raise ConflictError(f"{one.name}: its session is {one.verdict}", f"first: ralph-wrap {ending}")


def _require_unmerged(place: Project, where: Git, one: Branch, main: Main) -> None:
    """Check that something of a branch is left to land.

    Raises:
        ConflictError: there is not.

    """
    facts = compare(where, project.repository_of(place), main, [one], pairs=False)[0][one.name]
    if facts.merged or not facts.ahead:
        raise ConflictError(f"{main.name} has all of {one.name} already", f"ralph-wrap drop {one.label}")
    if facts.base is None:
        raise ConflictError(f"the history of {one.name} has nothing in common with that of {main.name}")


def _remote(configured: str | None, there: Sequence[str]) -> str:
    """Return the remote that branches are pushed to.

    Raises:
        UsageError: it is not plain which.

    """
    if not there:
        raise UsageError("there is no remote to push to", "git remote add origin URL")
    if configured is not None and configured not in there:
        raise UsageError(f"push: {configured!r} is not the name of a remote", f"there is {', '.join(there)}")
    if configured is None and "origin" not in there and len(there) > 1:
        raise UsageError(
            f"which remote to push to is not plain: there is {', '.join(there)}",
            'push = "NAME" in .ralph/config.toml names it',
        )
    return configured or ("origin" if "origin" in there else there[0])


def _name_there(main: Main, remotes: Sequence[str]) -> str:
    """Return what the main branch is called on a remote, which it may be a branch of."""
    names = [main.ref.removeprefix(f"{_REMOTES}{remote}/") for remote in remotes]
    return min((*names, main.ref.removeprefix(HEADS)), key=len)


def _warn_of_others(where: Git, one: Branch, main: Main, there: str, own: int, told: Log) -> None:
    """Say that commits of the main branch which nobody has pushed would be in the pull request, too."""
    ref = f"{_REMOTES}{there}"
    known = git.refs(where, ref).get(ref)
    more = (git.count_commits(where, known, one.tip) or 0) - own if known else 0
    if more > 0:
        told.warning(
            "base.unpushed",
            f"{one.name} is based on commits of {main.name} that {there} lacks: it has {more} of them, too",
            f"on {main.name}: git push",
        )


def _owner(where: Git, remote: str) -> str | None:
    """Return whose repository a remote is, by its address; ``None`` if that does not tell."""
    address = git.lines(git.run(where, "remote", "get-url", "--push", "--", remote).stdout)[0]
    found = _ON_GITHUB.fullmatch(address)
    return found[1].lower() if found else None


def _push(where: Git, remote: str, one: Branch) -> None:
    """Push a branch, forward only.

    Raises:
        ConflictError: what is there is not contained in it.
        RalphError: it cannot be pushed.

    """
    by_hand = f"git push {remote} {one.name}"
    with git.start_push(where, remote, one.tip, one.ref, replaced=None) as running:
        try:
            pushed = running.wait(_PATIENCE)
        except TimeoutError:
            reason = f"no end after {_PATIENCE:.0f} s"
            raise RalphError(f"{one.name} was not pushed to {remote}: {reason}", by_hand) from None
    if pushed.status == 0:
        return
    reason = git.push_error(pushed)
    if reason.startswith("[rejected]"):
        raise ConflictError(
            f"{one.name} was not pushed to {remote}, which has other commits of this name: {reason}",
            f"git fetch {remote}; if they are to go: {by_hand} --force-with-lease",
        )
    raise RalphError(f"{one.name} was not pushed to {remote}: {reason}", by_hand)


def title_of(one: Branch, commits: Sequence[Commit]) -> str:
    """Return the subject of the only commit, else what the branch is.

    Arguments:
        commits: what it is about.

    """
    if len(commits) == 1 and (subject := _line(commits[0])):
        return subject
    return f"{one.name}: {len(commits)} commit{'' if len(commits) == 1 else 's'}"


def body_of(one: Branch, commits: Sequence[Commit]) -> str:
    """Return what a pull request says: its commits, and how the session has ended.

    Arguments:
        commits: the oldest first.

    """
    rows = [f"    {commit.id[:_SHOWN]} {_line(commit)}".rstrip() for commit in commits[:_MOST]]
    more = f"… and {len(commits) - _MOST} more." if len(commits) > _MOST else ""
    saved = f"What was not committed is on `{one.saved_name}`, and no part of this." if one.saved_name else ""
    blocks = ("Commits, the oldest first:", "\n".join(rows), more, _ended(one.record or {}), saved)
    return "\n\n".join(filter(None, blocks)) + "\n"


def _line(commit: Commit) -> str:
    words = one_line(commit.subject).strip()
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _ended(record: Mapping[str, Any]) -> str:
    """Return how a session ended, as far as its record holds what we write; a command is not told."""
    agent, reason, turns = record.get("agent"), record.get("ended_by"), record.get("iterations")
    if not isinstance(reason, str) or not _WORD.fullmatch(reason):
        return ""
    by = f" of {agent}" if isinstance(agent, str) and _WORD.fullmatch(agent) else ""
    after = f" after {turns} iteration{'' if turns == 1 else 's'}" if type(turns) is int else ""
    return f"The session{by} ended{after}: {reason}."

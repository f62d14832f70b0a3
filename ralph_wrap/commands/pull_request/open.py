"""Open a pull request for a branch on GitHub.

gh chooses the repository: the one of ``gh repo set-default``, else the remote that it prefers. We push the
branch ourselves: only fast-forward, without hooks, and never its saved work. The description has only facts
of git and of the session's report. Text that an agent wrote is in a code block, where it cannot mention users
or close issues. Prompt, command line and paths stay out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ralph_wrap import branches, config
from ralph_wrap.branches import HEADS, Branch, MainBranch
from ralph_wrap.branches.compare import compare
from ralph_wrap.branches.dropped import find
from ralph_wrap.commands.pull_request import github
from ralph_wrap.config.repository_trust import require_direct
from ralph_wrap.errors import ConflictError, DamageError, RalphError, UsageError
from ralph_wrap.git import (
    CommitSummary,
    Git,
    commits_without,
    count_commits,
    environment_for_others,
    list_refs,
)
from ralph_wrap.git.read_back import require_whole
from ralph_wrap.git.remote import list_remotes, push_addresses, push_error, start_push, without_secrets
from ralph_wrap.state.project import Project, objects_of, repository_of
from ralph_wrap.system.log import Commands, current, get_logger, one_line
from ralph_wrap.system.text import and_more, command

log = get_logger()

_PATIENCE = 120.0  # seconds for the push
_LONGEST = 200  # characters of a line that an agent wrote; GitHub takes 256 in a title
_MOST = 100  # commits in the list
_SHOWN = 12  # digits of an object id
_REMOTES = "refs/remotes/"

_ON_GITHUB = re.compile(r"(?:[a-z+]+://[^/]+/|[^/:]+:/?)([A-Za-z0-9_-]+)/[^/]+/?")  # git-push(1), *GIT URLS*
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class OpenedPullRequest(NamedTuple):
    """A pull request.

    Attributes:
        id: agent id, ``None`` if the branch name has none.
        branch: short name.
        base: the branch that it is for.
        url: its address; without gh, that of the page on which it is to be opened.
        remote: the remote to which the branch was pushed.
        created: it is new.
        to_open: gh is not installed, so nothing was opened.

    """

    id: str | None
    branch: str
    base: str
    url: str
    remote: str
    created: bool
    to_open: bool = False


def open_pull_request(
    project: Project, name: str, approve: Callable[[str, str], object]
) -> OpenedPullRequest:
    """Push a branch and open a pull request for it, or return the one that is already open.

    Without gh, a person has to open it.

    Arguments:
        name: id or name of the branch.
        approve: called with remote and address before anything is sent there; an error ends the attempt.

    Raises:
        UsageError: gh is not installed, and the remote is not on GitHub; or several remotes are possible.
        UntrustedError: the configuration of the repository redirects the push.
        NotFoundError: the branch does not exist, or there is no main branch.
        ConflictError: its session is not finished, it has no unmerged commits, or the remote's branch has
            other commits.
        RalphError: git or gh failed: the message has their output.

    """
    repository = repository_of(project)
    git = repository.checkout(project.git)
    environ = environment_for_others(git)
    settings = config.of_project(project.main, project.environ, "main", "push")
    branch = find(project, branches.read(project), name)
    main = branches.main_branch(project, settings.main)
    _require_finished(branch)
    require_whole(git, [branch.tip], [main.tip])  # first: a damaged history looks like a shorter one
    _require_unmerged(project, branch, main)
    remotes = list_remotes(git)
    remote = _remote(settings.push, remotes)
    require_direct(project.git.safe, remote)
    addresses = push_addresses(git, remote)
    for address in addresses:
        approve(remote, without_secrets(address))
    base = _name_on_remote(main, remotes)
    with objects_of(project) as objects:
        commits = commits_without(objects, [branch.tip], main.tip)[::-1]
    _warn_of_others(git, branch, main, f"{remote}/{base}", len(commits))
    page = None
    if not github.is_installed(environ):
        page = github.page_to_open(addresses[0], base, branch.name, environ)
    try:
        if page is None:
            current().progress("gh: looking for the repository")
            home = github.repository(project.checkout, environ)
        current().progress(f"push: {branch.name} to {remote}")
        _push(git, remote, branch)
        log.event("branch.pushed", f"pushed {branch.name} to {remote}", branch=branch.name, commit=branch.tip)
        if page is not None:
            log.warning(
                "pull_request.to_open",
                "gh is not installed: the pull request is still to be opened, on the page of this address",
                "install it: https://cli.github.com",
            )
            return OpenedPullRequest(branch.id, branch.name, base, page, remote, created=False, to_open=True)
        current().progress(f"gh: pull request in {home.url}")
        owner = _owner(addresses[0]) or home.owner.lower()
        pulls = github.open_pulls(project.checkout, environ, home, branch.name, base)
        url = next((pull.url for pull in pulls if pull.head_owner.lower() == owner), None)
        opened = OpenedPullRequest(branch.id, branch.name, base, url or "", remote, created=url is None)
        if url:
            return opened
        head = branch.name if owner == home.owner.lower() else f"{owner}:{branch.name}"
        title, body = title_of(branch, commits), body_of(branch, commits)
        return opened._replace(
            url=github.create_pull(
                project.checkout, environ, home, head=head, base=base, title=title, body=body
            )
        )
    finally:
        current().progress("")


def _require_finished(branch: Branch) -> None:
    """Check that no session will change a branch any more.

    Raises:
        ConflictError: its session is not finished, or it is only saved work.

    """
    if branch.only_saved:
        raise ConflictError(f"{branch.name} is only saved work", command("ralph-wrap", "apply", branch.label))
    if branch.verdict is not None:
        ending = ("stop", branch.label) if branch.verdict == "live" else ("sweep",)
        raise ConflictError(
            f"{branch.name}: its session is {branch.verdict}", f"first: {command('ralph-wrap', *ending)}"
        )


def _require_unmerged(project: Project, branch: Branch, main: MainBranch) -> None:
    """Check that a branch has unmerged commits.

    Raises:
        ConflictError: it has none, or no common history with the main branch.
        DamageError: an object of it is damaged or missing, so nobody knows.

    """
    with objects_of(project) as objects:
        facts = compare(objects, repository_of(project), main, [branch], pairs=False)[0][branch.name]
    if facts.damage:
        raise DamageError(f"{branch.name} is not pushed: {facts.damage}")
    if facts.merged or not facts.ahead:
        raise ConflictError(
            f"{main.name} has all of {branch.name} already", command("ralph-wrap", "drop", branch.label)
        )
    if facts.base is None:
        raise ConflictError(f"{branch.name} and {main.name} have no common history")


def _remote(configured: str | None, remotes: Sequence[str]) -> str:
    """Return the remote to which branches are pushed.

    Raises:
        UsageError: there is none, or several are possible.

    """
    if not remotes:
        raise UsageError("the repository has no remote", "git remote add origin URL")
    if configured is not None and configured not in remotes:
        raise UsageError(
            f"push: {configured!r} is not the name of a remote", f"remotes: {', '.join(remotes)}"
        )
    if configured is None and "origin" not in remotes and len(remotes) > 1:
        raise UsageError(
            f"the repository has several remotes: {', '.join(remotes)}",
            'choose one in .ralph/config.toml: push = "NAME"',
        )
    return configured or ("origin" if "origin" in remotes else remotes[0])


def _name_on_remote(main: MainBranch, remotes: Sequence[str]) -> str:
    """Return the name of the main branch on a remote; the main branch may be a remote-tracking branch."""
    names = [main.ref.removeprefix(f"{_REMOTES}{remote}/") for remote in remotes]
    return min((*names, main.ref.removeprefix(HEADS)), key=len)


def _warn_of_others(git: Git, branch: Branch, main: MainBranch, remote_branch: str, own_commits: int) -> None:
    """Log a warning if the pull request would also have unpushed commits of the main branch."""
    ref = f"{_REMOTES}{remote_branch}"
    remote_tip = list_refs(git, ref).get(ref)
    unpushed = (count_commits(git, remote_tip, branch.tip) or 0) - own_commits if remote_tip else 0
    if unpushed > 0:
        log.warning(
            "base.unpushed",
            f"the pull request also has {unpushed} commits of {main.name} that {remote_branch} lacks",
            f"to push them first, on {main.name}: git push",
        )


def _owner(address: str) -> str | None:
    """Return the owner of a remote's repository from its address; ``None`` if the address has none."""
    match = _ON_GITHUB.fullmatch(address)
    return match[1].lower() if match else None


def _push(git: Git, remote: str, branch: Branch) -> None:
    """Push a branch, only fast-forward.

    Raises:
        ConflictError: the remote's branch has commits that the branch lacks.
        RalphError: the push failed.

    """
    by_hand = command("git", "push", remote, branch.name)
    with start_push(git, remote, branch.tip, branch.ref, replaced=None) as running:
        try:
            pushed = running.wait(_PATIENCE)
        except TimeoutError:
            reason = f"still running after {_PATIENCE:.0f} s"
            raise RalphError(f"{branch.name} was not pushed to {remote}: {reason}", by_hand) from None
    if pushed.status == 0:
        return
    reason = push_error(pushed)
    if reason.startswith("[rejected]"):
        raise ConflictError(
            f"{branch.name} was not pushed to {remote}, whose {branch.name} has other commits: {reason}",
            Commands.of(
                f"to see them: {command('git', 'fetch', remote)}",
                f"to replace them: {by_hand} --force-with-lease",
            ),
        )
    raise RalphError(f"{branch.name} was not pushed to {remote}: {reason}", by_hand)


def title_of(branch: Branch, commits: Sequence[CommitSummary]) -> str:
    """Return the subject of the only commit, else the branch name and the number of commits.

    Arguments:
        commits: the unmerged commits of the branch.

    """
    if len(commits) == 1 and (subject := _line(commits[0])):
        return subject
    return f"{branch.name}: {len(commits)} commit{'' if len(commits) == 1 else 's'}"


def body_of(branch: Branch, commits: Sequence[CommitSummary]) -> str:
    """Return the description of a pull request: its commits, and the end of the session.

    Arguments:
        commits: the unmerged commits of the branch, oldest first.

    """
    rows = [f"    {commit.id[:_SHOWN]} {_line(commit)}".rstrip() for commit in commits[:_MOST]]
    omitted = "".join(f"… {line}." for line in and_more(len(commits), _MOST))
    saved = f"Uncommitted work is on `{branch.saved_name}`, not in this branch." if branch.saved_name else ""
    blocks = ("Commits, oldest first:", "\n".join(rows), omitted, _ended(branch.record or {}), saved)
    return "\n\n".join(filter(None, blocks)) + "\n"


def _line(commit: CommitSummary) -> str:
    words = one_line(commit.subject).strip()
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _ended(record: Mapping[str, Any]) -> str:
    """Return how a session ended; a value that is not of our form, such as a command, is left out."""
    agent, reason, turns = record.get("agent"), record.get("ended_by"), record.get("iterations")
    if not isinstance(reason, str) or not _WORD.fullmatch(reason):
        return ""
    of_agent = f" of {agent}" if isinstance(agent, str) and _WORD.fullmatch(agent) else ""
    after_turns = f" after {turns} iteration{'' if turns == 1 else 's'}" if type(turns) is int else ""
    return f"The session{of_agent} ended{after_turns}: {reason}."

"""Land branches on a target: each is tried first, and then lands completely or not at all."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ralph_wrap.branches import Branch, gitlinks
from ralph_wrap.commands.merge.move_target import TargetMove, has_note, move, recover
from ralph_wrap.commands.merge.ordering import best
from ralph_wrap.commands.merge.run_check import run_check
from ralph_wrap.commands.merge.target import LandingTarget, checkouts_of, require_movable, require_room
from ralph_wrap.commands.merge.trial_merge import MergeMethod, TrialMerge, attempt
from ralph_wrap.config import trust
from ralph_wrap.errors import ConflictError, GitError, NotFoundError, RalphError, StoppedError
from ralph_wrap.git import Git, Repository, compare, count_commits, environment_without_repository, list_refs
from ralph_wrap.git import merge as merging
from ralph_wrap.git.index import GITLINK
from ralph_wrap.git.merge import PathChange
from ralph_wrap.git.read_back import find_damage, require_whole
from ralph_wrap.git.safe.filters import require_same_files
from ralph_wrap.git.safe.genuine import require_genuine
from ralph_wrap.session.preflight import committer
from ralph_wrap.state import check_results, landings
from ralph_wrap.state.advice import advice_for
from ralph_wrap.state.inventory import Verdict
from ralph_wrap.state.project import RUN, Project, own_registry, prepare_root, repository_of
from ralph_wrap.state.registry import Registry
from ralph_wrap.system.cancel import NEVER, CancelToken
from ralph_wrap.system.log import Commands, get_logger, lines_of
from ralph_wrap.system.text import command
from ralph_wrap.worktree import temporary
from ralph_wrap.worktree.own_rule import without_rule
from ralph_wrap.worktree.save.detached import detached_commits
from ralph_wrap.worktree.temporary import TemporaryWorktree
from ralph_wrap.worktree.user_checkout import UserCheckout, names

log = get_logger()


class LandingResult(NamedTuple):
    """The result for one branch.

    Attributes:
        id: agent id, ``None`` if the branch name has none.
        branch: short name.
        target: short name of the target.
        outcome: ``landed``, ``nothing to do`` (the target has it), or ``left`` (branch and target unchanged).
        way: ``fast-forward``, ``merge``, ``squash`` or ``rebase``; ``None`` unless landed.
        before: the target's tip before; ``None`` if the branch was left before any trial.
        after: the target's tip afterwards.
        commits: the number of landed commits that the target did not have.
        conflicts: files with conflicts.
        check: exit status of the check, ``None`` if no check ran.
        saved: the branch that holds saved work, which does not land.
        reason: the reason why it was left.
        hint: what the user can do.
        title: what people call the session; empty if that is not known.
        gitlinks: landed repositories without their files: .gitmodules does not name them.
        detached: number of commits that its agent made on a detached HEAD: they are below *saved*, and do not
            land.
        last_detached: the object id of the last one.

    """

    id: str | None
    branch: str
    target: str
    outcome: str
    way: str | None = None
    before: str | None = None
    after: str | None = None
    commits: int | None = None
    conflicts: tuple[str, ...] = ()
    check: int | None = None
    saved: str | None = None
    reason: str | None = None
    hint: str | None = None
    title: str = ""
    gitlinks: tuple[str, ...] = ()
    detached: int = 0
    last_detached: str | None = None


_TIMED_OUT = 124  # as timeout(1)


class _LandingContext(NamedTuple):
    """The values that are the same for all branches of one landing."""

    project: Project
    home: Registry
    trial: TemporaryWorktree
    target: LandingTarget
    method: MergeMethod
    into_main: bool
    check: str
    check_timeout: float
    cancel: CancelToken

    @property
    def repository(self) -> Repository:
        """The repository of the project."""
        return repository_of(self.project)


def land(
    project: Project,
    wanted: Sequence[Branch],
    target: LandingTarget,
    *,
    method: MergeMethod = MergeMethod.MERGE,
    best_order: bool = False,
    check: str = "",
    check_timeout: float = 0.0,
    main: str | None = None,
    cancel: CancelToken = NEVER,
) -> list[LandingResult]:
    """Land branches one after the other; a branch that cannot land is left, and the next one is tried.

    Arguments:
        wanted: the branches to land, in order.
        best_order: use the order with the fewest conflicts instead.
        check: the approved command that must succeed on each merge; empty for none.
        check_timeout: the limit of the check in seconds; 0 is no limit.
        main: short name of the main branch.
        cancel: after a signal, no further branch lands.

    Raises:
        RalphError: no trial is possible; nothing has moved.

    """
    repository = repository_of(project)
    prepare_root(project)
    # Without an identity git merges by fast-forward alone. Saved work has the same committer then.
    project = project._replace(git=project.git._replace(env={**project.git.env, **committer(project)}))
    home = own_registry(project)
    with contextlib.ExitStack() as stack:
        stack.enter_context(temporary.turn(repository, home, cancel))
        tip = _first_tip(project, home, target)
        decided = {branch.name: _before_trying(project.git, branch, target, tip) for branch in wanted}
        to_try = [branch for branch in wanted if decided[branch.name] is None]
        landed = [result for branch in wanted if (result := decided[branch.name])]
        if to_try:
            trial = stack.enter_context(
                temporary.opened(project.git, repository, home, tip, whole=bool(check))
            )
            if best_order:
                to_try = best(trial, repository, to_try, tip, cancel)
            landing = _LandingContext(
                project, home, trial, target, method, target.name == main, check, check_timeout, cancel
            )
            landed += [_land(landing, branch) for branch in to_try]
    titles = {branch.name: branch.title for branch in wanted}
    detached = detached_commits(project.git, wanted)
    landed = [
        result._replace(
            title=titles[result.branch],
            detached=detached[result.branch].number if result.branch in detached else 0,
            last_detached=detached[result.branch].last if result.branch in detached else None,
        )
        for result in landed
    ]
    order = [branch.name for branch in wanted]
    # With best_order the results keep the order of the trials.
    return landed if best_order else sorted(landed, key=lambda result: order.index(result.branch))


def _first_tip(project: Project, home: Registry, target: LandingTarget) -> str:
    """Undo what a killed landing left, and return the tip of the target."""
    try:
        recover(project, home)
        temporary.tidy(repository_of(project), home)
        return _tip(project.git, target)
    except OSError as error:
        raise RalphError(f"{home.directory} cannot be used: {error}; nothing has moved") from error


def _tip(git: Git, target: LandingTarget) -> str:
    tip = list_refs(git, target.ref).get(target.ref)
    if tip is None:
        raise NotFoundError(f"branch {target.name} no longer exists", "name another one: --into")
    return tip


def _left(branch: Branch, target: LandingTarget, reason: str, hint: str = "") -> LandingResult:
    return LandingResult(
        branch.id, branch.name, target.name, "left", saved=branch.saved_name, reason=reason, hint=hint or None
    )


def _before_trying(git: Git, branch: Branch, target: LandingTarget, tip: str) -> LandingResult | None:
    """Return the result of a branch that needs no trial, else ``None``."""
    if branch.verdict is not None:
        advice = advice_for(Verdict(branch.verdict), branch.label)
        return _left(branch, target, f"its session is {branch.verdict}", advice)
    if branch.only_saved:
        return _left(branch, target, "it is only saved work", command("ralph-wrap", "apply", branch.label))
    try:
        if merging.is_ancestor(git, branch.tip, tip):
            return _nothing(branch, target, tip)
        if compare.merge_base(git, tip, branch.tip) is not None:
            return None
        require_whole(git, [branch.tip], [tip])
    except GitError as error:
        # With a damaged history git fails, or finds a shorter one: this differs between its versions.
        damage = find_damage(git, [branch.tip], [tip])
        if damage is None:
            raise
        return _left(branch, target, damage, error.hint)
    return _left(branch, target, f"it has no common history with {target.name}")


def _nothing(branch: Branch, target: LandingTarget, tip: str) -> LandingResult:
    return LandingResult(
        branch.id, branch.name, target.name, "nothing to do", before=tip, after=tip, saved=branch.saved_name
    )


def _land(landing: _LandingContext, branch: Branch) -> LandingResult:
    if landing.cancel.requested:
        return _left(branch, landing.target, "a signal came before it was tried")
    try:
        return _try(landing, branch)
    except StoppedError as error:
        return _left(branch, landing.target, error.message)
    except RalphError as error:
        return _left(branch, landing.target, error.message, error.hint)
    except OSError as error:
        return _left(branch, landing.target, str(error), "it must be writable, on a disk with free space")


def _try(landing: _LandingContext, branch: Branch) -> LandingResult:
    target, git = landing.target, landing.project.git
    tip = _tip(git, target)
    if merging.is_ancestor(git, branch.tip, tip):  # it was part of a branch that has just landed
        return _nothing(branch, target, tip)
    checkouts = checkouts_of(git, landing.repository, target)
    if checkouts or landing.check:
        require_same_files(git, landing.repository, tip, branch.tip)
    require_movable(landing.repository, target, checkouts)
    if base := compare.merge_base(git, tip, branch.tip):
        require_genuine(git, base, branch.tip)
    require_whole(git, [branch.tip], [tip])
    trial = _attempt(landing, branch, tip)
    if trial.commit is None:
        reason = f"conflicts with {target.name} in {names(trial.conflicts)}"
        hint = _ways_on(branch, target)
        return _left(branch, target, reason, hint)._replace(before=tip, after=tip, conflicts=trial.conflicts)
    if trial.commit == tip:
        return _nothing(branch, target, tip)
    require_genuine(git, tip, trial.commit)
    require_whole(git, [trial.commit], [tip, branch.tip])
    changes = merging.moved(git, tip, trial.commit)
    for checkout in checkouts:
        require_room(target, checkout, changes)
    status, in_time = _check(landing, branch, tip) if landing.check else (None, True)
    if status:
        return _check_failed(landing, branch, tip, status, in_time=in_time)
    step = TargetMove(target.ref, tip, trial.commit)
    _move(landing, checkouts, changes, step, f"ralph-wrap merge {branch.name}: {trial.way}")
    added = [change.path for change in changes if change.new_mode == GITLINK != change.old_mode]
    without_files = gitlinks.unnamed(git, trial.commit, added)
    for path in without_files:
        log.warning(
            "gitlink.landed",
            f"the files in {path} have not come along with {branch.name}: it is {gitlinks.REPOSITORY}",
            path=path,
        )
    return LandingResult(
        id=branch.id,
        branch=branch.name,
        target=target.name,
        outcome="landed",
        way=trial.way,
        before=tip,
        after=trial.commit,
        commits=count_commits(git, tip, branch.tip),
        check=status,
        saved=branch.saved_name,
        gitlinks=without_files,
    )


def _ways_on(branch: Branch, target: LandingTarget) -> str:
    """Return the commands that resolve conflicts."""
    by_hand = f"to resolve them, on {target.name}: git merge {shlex.quote(branch.name)}"
    if branch.id is None:
        return by_hand
    request = shlex.quote(f"Merge {target.name}, resolve the conflicts, and commit.")
    return Commands.of(by_hand, f"to let the agent do it: ralph-wrap resume {branch.id} -m {request}")


def _attempt(landing: _LandingContext, branch: Branch, tip: str) -> TrialMerge:
    """Make the new commit for the target.

    Raises:
        GitError: git failed for another reason than conflicts.
        RalphError: git cannot sign the commit.

    """
    git = landing.trial.git
    try:
        return attempt(git, branch, landing.target, tip, landing.method, landing.into_main)
    except GitError as error:
        if not merging.cannot_sign(git):
            raise
        reason = f"commit.gpgSign is on, and git cannot sign the new commit: {error.message}"
        raise RalphError(reason, _ways_without_signature(landing, branch)) from error


def _ways_without_signature(landing: _LandingContext, branch: Branch) -> str:
    """Return the commands that show why git cannot sign, and that land the branch without it."""
    root, target, name = landing.repository.root, landing.target.name, branch.name
    unsigned = "--no-gpg-sign"
    merge = {
        MergeMethod.MERGE: command("git", "merge", unsigned, name),
        MergeMethod.NO_FF: command("git", "merge", "--no-ff", unsigned, name),
        MergeMethod.SQUASH: f"{command('git', 'merge', '--squash', name)} && git commit {unsigned} --no-edit",
        MergeMethod.REBASE: command("git", "cherry-pick", unsigned, f"{target}..{name}"),
    }[landing.method]
    return Commands.of(
        f"to see why: {command('git', '-C', root, 'commit-tree', '-S', '-m', 'test', 'HEAD^{tree}')}",
        f"to land it without a signature, on {target}: {merge}",
    )


def _check_failed(
    landing: _LandingContext, branch: Branch, tip: str, status: int, *, in_time: bool
) -> LandingResult:
    ending = (
        f"failed with status {status}" if in_time else f"was still running after {landing.check_timeout:g} s"
    )
    reason = f"check {ending} on the merge of {branch.name} into {landing.target.name}"
    hint = f"see its output above; it is {'check' if in_time else 'check_timeout'} in .ralph/config.toml"
    return _left(branch, landing.target, reason, hint)._replace(before=tip, after=tip, check=status)


def _move(
    landing: _LandingContext,
    checkouts: Sequence[UserCheckout],
    changes: Sequence[PathChange],
    step: TargetMove,
    reason: str,
) -> None:
    """Move the target, unless a signal has come, or a user has changed target or checkouts meanwhile.

    The check may have taken long, and only after the trial we know which files change.

    Raises:
        StoppedError: a signal came; nothing has moved.
        ConflictError: the target or a checkout has changed; nothing has moved.

    """
    target, git = landing.target, landing.project.git
    if landing.cancel.requested:
        raise StoppedError("a signal came before it could land; nothing has moved")
    if _tip(git, target) != step.old:
        raise ConflictError(f"{target.name} has moved meanwhile", "try again")
    require_movable(landing.repository, target, checkouts)
    for checkout in checkouts:
        require_room(target, checkout, changes)
    try:  # before another session can see the move; a note of a landing that then fails does no harm
        landings.note(landing.home.directory, *step)
    except OSError as error:
        log.warning(
            "landing.not_noted", f"sessions that run now will report this landing as a change: {error}"
        )
    with without_rule(landing.repository, checkouts, changes):
        move(landing.project, landing.home, landing.trial, checkouts, step, reason)


def _check(landing: _LandingContext, branch: Branch, tip: str) -> tuple[int, bool]:
    """Run the check, and return its exit status, and whether it ended in time."""
    log.event("check.started", f"check of {branch.name}: {landing.check.strip().partition(chr(10))[0]}")
    ended_with = run_check(
        landing.check,
        landing.trial.path,
        environment_without_repository(landing.project.environ),
        branch=branch.name,
        project=landing.project.main,
        timeout=landing.check_timeout,
        cancel=landing.cancel,
    )
    status = _TIMED_OUT if ended_with is None else ended_with
    log.event("check.ended", branch=branch.name, status=status)
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    result = check_results.CheckResult(
        status, landing.target.name, tip, ended, trust.digest({"check": landing.check})
    )
    try:
        check_results.keep(landing.project, branch.tip, result)
    except (RalphError, OSError) as error:  # the result is only for review and the web page
        hint = error.hint if isinstance(error, RalphError) else ""
        log.warning("check.not_kept", f"review will not show the result of the check: {error}", hint)
    return status, ended_with is not None


def undo_killed(project: Project) -> None:
    """Undo a landing that was killed half-way, unless another landing is running.

    Raises:
        RalphError: it cannot be undone.
        OSError: it cannot be undone.

    """
    home = Registry(project.root / RUN)
    repository = project.repository
    if (
        repository is None
        or not (has_note(home) or temporary.is_left(home))
        or temporary.is_taken(repository)
    ):
        return
    with contextlib.suppress(StoppedError), temporary.turn(repository, home, NEVER, wait=False):
        recover(project, home)
        temporary.tidy(repository, home)


def problem(landed: Sequence[LandingResult]) -> ConflictError | None:
    """Return the error that lists the branches that did not land, ``None`` if all did."""
    not_landed = [result for result in landed if result.outcome == "left"]
    if not not_landed:
        return None
    reasons = "; ".join(f"{result.branch}: {result.reason}" for result in not_landed)
    count = "" if len(landed) == 1 else f"{len(not_landed)} of {len(landed)} did not land: "
    hints = dict.fromkeys(line for result in not_landed for line in lines_of(result.hint or "") if line)
    return ConflictError(f"{count}{reasons}", Commands.of(*hints))

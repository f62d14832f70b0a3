"""Merge the branch of a session that has kept its promise (``merge_on_complete``)."""

from __future__ import annotations

import shlex

from ralph_wrap import branches
from ralph_wrap.commands import merge
from ralph_wrap.commands.merge import LandingResult
from ralph_wrap.config import Settings
from ralph_wrap.errors import NotFoundError, RalphError
from ralph_wrap.state.audit.look import audit
from ralph_wrap.state.audit.warnings import tampered
from ralph_wrap.state.project import RUN, Project
from ralph_wrap.state.registry import Registry
from ralph_wrap.state.report import SessionReport
from ralph_wrap.system.cancel import NEVER
from ralph_wrap.system.log import Commands, current, get_logger, lines_of
from ralph_wrap.system.signals import SignalHandlers
from ralph_wrap.system.text import command

log = get_logger()


def land(
    project: Project,
    settings: Settings,
    report: SessionReport,
    signals: SignalHandlers | None,
) -> None:
    """Merge the branch of an ended session, or log why not and which command to run.

    The session's exit status stays. The log goes to stderr and to the session's event log.

    Arguments:
        settings: of the session. The user approved its check before the start, and it is not read again.
        report: of the session.
        signals: entered handlers; after a signal nothing is merged.

    """
    if report.branch is None:
        return
    events = Registry(project.root / RUN).sessions / report.session / "events.jsonl"
    with current().for_other_session(events, agent_id=report.id, session_id=report.session):
        try:
            landed = _land(project, settings, report.branch, signals)
        except (RalphError, OSError) as error:
            hint = error.hint if isinstance(error, RalphError) else ""
            _warn(report.branch, settings.merge_on_complete, str(error), hint)
        else:
            _log_result(landed, settings.merge_on_complete)


def _land(
    project: Project,
    settings: Settings,
    name: str,
    signals: SignalHandlers | None,
) -> LandingResult:
    if (result := audit(project)).refused:
        raise tampered(result)
    branch = branches.named(branches.read(project), f"{branches.HEADS}{name}")
    target = merge.target_of(project, settings.merge_on_complete, None)
    try:
        main = branches.main_branch(project, settings.main).name
    except NotFoundError:
        main = None
    (landed,) = merge.land(
        project,
        [branch],
        target,
        check=settings.landing_check,
        check_timeout=settings.check_timeout,
        main=main,
        cancel=signals.cancel if signals is not None else NEVER,
    )
    return landed


def _log_result(landed: LandingResult, target: str) -> None:
    if landed.outcome == "left":
        _warn(landed.branch, target, landed.reason or "", landed.hint or "", landed)
    elif landed.outcome == "landed":
        log.event("branch.landed", f"{landed.branch} has landed on {target} ({landed.way})", **_facts(landed))
    else:
        log.event(
            "branch.landed", f"{landed.branch}: {target} has all of its changes already", **_facts(landed)
        )
    name_saved(landed)


def name_saved(result: LandingResult) -> None:
    """Log that the saved work of a branch has not landed with it."""
    if not result.saved or result.outcome == "left":
        return
    apply = command("ralph-wrap", "apply", result.id or result.branch)
    if result.detached and result.last_detached:
        count = "1 commit" if result.detached == 1 else f"{result.detached} commits"
        landing = command("git", "merge", result.last_detached[:12])
        log.event(
            "saved.not_landed",
            f"{result.saved} holds {count} of a detached HEAD, not landed",
            hint=Commands.of(
                f"to land the commits, on {result.target}: {landing}",
                f"to have all of it in your checkout, uncommitted: {apply}",
            ),
            commits=result.detached,
        )
    else:
        log.event("saved.not_landed", f"{result.saved} holds work that has not landed", hint=apply)


def _warn(branch: str, target: str, reason: str, hint: str, landed: LandingResult | None = None) -> None:
    label = branch.removeprefix("ralph/")
    again = f"ralph-wrap merge {shlex.quote(label)} --into {shlex.quote(target)}"
    in_conflict = landed is not None and landed.conflicts
    hints = [*(lines_of(hint) if hint else ()), *(() if in_conflict else (again,))]
    log.warning(
        "branch.not_landed",
        f"{branch} has not landed on {target}: {reason}",
        Commands.of(*hints),
        **(_facts(landed) if landed else {}),
    )


def _facts(landed: LandingResult) -> dict[str, object]:
    facts = landed._asdict()
    return {
        name: facts[name] for name in ("branch", "target", "way", "before", "after", "conflicts", "check")
    }

"""How the findings of an audit are said: one line each, with key names and never with values."""

from __future__ import annotations

from collections.abc import Sequence

from ralph_wrap.errors import RalphError, TamperedError
from ralph_wrap.state.audit.finding import Finding
from ralph_wrap.state.audit.look import Audit
from ralph_wrap.system.log import Commands, get_logger, lines_of
from ralph_wrap.system.text import and_more, some

log = get_logger()

log = get_logger()

_NAMED = 10  # findings that get a line each
_IN_AN_ERROR = 3
_TO_SEE = "to see each in full: ralph-wrap audit"


def log_findings(findings: Sequence[Finding]) -> None:
    """Log each finding as a warning; the last one has the command to type."""
    named = findings[:_NAMED]
    for finding in named:
        last = finding is findings[-1]
        log.warning("tampering.found", finding.line, _TO_SEE if last else "", **facts(finding))
    for words in and_more(len(findings), _NAMED, " findings"):
        log.warning("tampering.found", words, _TO_SEE)


def log_problem(problem: RalphError | None) -> None:
    """Log why nothing of what was remembered counts, if so."""
    if problem is not None:
        log.warning("tampering.memory", problem.message, problem.hint)


def facts(finding: Finding) -> dict[str, str]:
    """Return a finding for JSON."""
    return {"place": finding.shown_path, "kind": finding.kind.value, "name": finding.shown_name}


def tampered(result: Audit) -> TamperedError:
    """Return the error with which a command refuses."""
    why = f"; {result.problem.message}" if result.problem else ""
    titles = some([finding.title for finding in result.refused], _IN_AN_ERROR)
    return TamperedError(
        f"git runs, reads or shows here what you have not accepted: {', '.join(titles)}{why}",
        Commands.of(
            _TO_SEE,
            *(lines_of(result.problem.hint) if result.problem else ()),
            *lines_of(result.way_out),
            "to go on all the same: --despite-tampering",
        ),
    )

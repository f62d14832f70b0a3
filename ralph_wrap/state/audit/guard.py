"""Look at the repository when a session begins, and again after the last process of its agent has ended.

Each look is a scan of its own, without a process. So a kill of the session, or a process that writes in the
last second, hides nothing from the next look: see ``state.audit``.
"""

from __future__ import annotations

from ralph_wrap.state.audit.finding import Finding
from ralph_wrap.state.audit.look import audit
from ralph_wrap.state.audit.warnings import log_findings, log_problem
from ralph_wrap.state.project import Project
from ralph_wrap.system.log import get_logger

log = get_logger()


class SessionGuard:
    """Looks at the repository of a session.

    Arguments:
        session: id of the session.

    """

    def __init__(self, project: Project, session: str) -> None:
        self._project = project
        self._session = session
        self._before: frozenset[str] = frozenset()
        self.found: tuple[str, ...] | None = None
        """What came while the session ran, one line each; ``None`` until a look after it has succeeded."""

    def begin(self) -> None:
        """Look before the agent starts."""
        findings = self._look("") or ()
        self._before = frozenset(finding.digest for finding in findings)
        log_findings(findings)

    def finish(self) -> None:
        """Look after the last process has ended, and log what is new."""
        seen = self._look(self._session)
        if seen is None:
            return
        findings = [finding for finding in seen if finding.digest not in self._before]
        log_findings(findings)
        self.found = tuple(finding.line for finding in findings)

    def _look(self, session: str) -> tuple[Finding, ...] | None:
        try:
            result = audit(self._project, session)
        except Exception as error:  # noqa: BLE001 -- a look must not end a session
            log.warning("tampering.unknown", f"cannot look at the repository: {error}", "ralph-wrap audit")
            return None
        log_problem(result.problem)
        return result.findings

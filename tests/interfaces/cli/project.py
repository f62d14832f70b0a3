"""A project with sessions of every kind, and their reports."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ralph_wrap.state.claim import SessionClaim, claim_id
from ralph_wrap.state.registry import Registry, SessionRecord
from ralph_wrap.state.report import SessionReport
from ralph_wrap.system.liveness import ProcessIdentity, myself

AGES = {"2d": timedelta(days=2, hours=1), "3h": timedelta(hours=3, minutes=30), "5m": timedelta(seconds=330)}

ELSEWHERE = ProcessIdentity(7, 1.0, "another boot", "pid:[1]", "another host")

DEAD = myself()._replace(start_time=0.5)
"""An owner whose pid is another process's by now."""


@dataclasses.dataclass
class Yard:
    """A registry with sessions of every kind."""

    home: Registry
    claims: list[SessionClaim] = dataclasses.field(default_factory=list)

    def _record(self, agent_id: str, age: str, owner: ProcessIdentity, **fields: Any) -> SessionRecord:
        began = datetime.now(UTC) - AGES[age]
        session = f"{began:%Y%m%dT%H%M%SZ}-{agent_id}"
        return SessionRecord(agent_id, session, **{**owner._asdict(), "agent": "claude", **fields})

    def left(self, agent_id: str, age: str, owner: ProcessIdentity, **fields: Any) -> None:
        """Leave a record whose lock no process holds."""
        record = self._record(agent_id, age, owner, **fields)
        (self.home.agents / f"{agent_id}.json").write_bytes(record.to_json())
        (self.home.agents / f"{agent_id}.lock").touch()

    def finished(self, agent_id: str, age: str, **fields: Any) -> Path:
        """Leave a session that has ended well, and return where its report belongs."""
        record = self._record(agent_id, age, myself(), state="finished", **fields)
        directory = self.home.sessions / record.session
        directory.mkdir()
        (directory / "record.json").write_bytes(record.to_json())
        return directory / "report.json"

    def live(self, agent_id: str, age: str, **fields: Any) -> None:
        """Be the owner of a session."""
        others = {f"{number:04x}" for number in range(1 << 16)} - {agent_id}
        began = (datetime.now(UTC) - AGES[age]).timestamp()
        claim = claim_id(
            self.home, myself(), lambda _="": others, began, lambda new: new._replace(agent="claude")
        )
        self.claims.append(claim)
        claim.update(**fields)

    def unreadable(self, agent_id: str) -> None:
        """Leave a file that is no record."""
        (self.home.agents / f"{agent_id}.json").write_text("garbage")


def ended_report(**differences: Any) -> SessionReport:
    """Return how a session has ended that a signal ended, and that left something."""
    return SessionReport(
        id="e0e0",
        session="e0e0",
        agent="claude",
        started="2026-01-02T03:04:05+00:00",
        ended="2026-01-02T03:05:05+00:00",
        ended_by="signal",
        exit_status=143,
        iterations=3,
        commits=0,
        saved="ralph/e0e0-wip",
    )._replace(**differences)

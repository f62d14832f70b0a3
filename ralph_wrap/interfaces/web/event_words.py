"""The events of a session's log in words, for people; an agent may have changed them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from ralph_wrap.git.oid import is_oid
from ralph_wrap.system.text import dollars

_IDENTITY = {"at", "level", "event", "agent_id", "session_id", "message", "hint", "version"}
_SHOWN = 12  # digits of an object id
_SENTENCES = {
    "session.registered": "the session began",
    "workspace.created": "its worktree was made, on {branch} from {base}",
    "setup.ended": "setup ended with status {status}",
    "teardown.ended": "teardown ended with status {status}",
    "verify.ended": "verify ended with status {status}",
    "gate.not_written": "the result of verify cannot be recorded: {reason}",
    "notify.ended": "notify was run for {notified}, and ended with status {status}",
    "notify.skipped": "notify was not run for {notified}: {reason}",
    "iteration.started": "iteration {iteration} began",
    "agent.started": "the agent started: {command}",
    "agent.interrupted": "the agent says that it was interrupted: {said}",
    "agent.exited": "the agent ended with status {status}",
    "iteration.ended": "iteration {iteration} ended with status {status}",
    "iteration.kept": "the result of iteration {iteration} is kept, at {head}",
    "snapshots.thinned": "snapshots that newer ones have replaced are gone: {count}",
    "snapshots.not_thinned": "old snapshots stay: {reason}",
    "snapshot.incomplete": "the snapshot of iteration {iteration} is incomplete: {problems}",
    "snapshot.failed": "iteration {iteration} has no snapshot: {reason}",
    "processes.ended": "processes that were left are ended: {count}",
    "reader.left": "nobody reads {stream} any more",
    "message.not_noted": "it cannot be noted that a message was delivered: {reason}",
    "limit.not_shared": "other sessions do not know of the usage limit: {reason}",
    "work.saved": "uncommitted work is saved on {branch}: {paths}",
    "work.bundled": "the work is in the bundle {path}",
    "commits.kept": "commits that no branch had are kept: {refs}",
    "submodule.saved": "the work in submodule {path} is saved: {refs}",
    "worktree.removed": "the worktree is removed",
    "branch.deleted": "the branch {branch} is deleted, because it has no work",
    "branch.pushed": "{branch} is pushed to {remote}",
    "mirror.pushed": "the work so far is pushed to {remote}",
    "mirror.not_noted": "the state of the remote is not recorded: {reason}",
    "claim.given_back": "other machines may go on with the session, by {remote}",
    "claim.not_given_back": "other machines take the session for running, by {remote}: {reason}",
    "commands.approved": "commands of the project are approved, by {by}",
    "check.ended": "the check of {branch} ended with status {status}",
    "session.failed": "the session failed: {reason}",
    "record.not_written": "the record cannot be written: {reason}",
    "start.not_written": "how the session was started cannot be recorded: {reason}",
}
"""For events without a message."""


def in_words(event: Mapping[str, Any]) -> str:
    """Return what an event says: its message, else a sentence, else its name and its facts."""
    hint = event.get("hint")
    message = event.get("message")
    if not isinstance(message, str):
        message = _sentence(event)
    return f"{message} ({hint})" if isinstance(hint, str) and hint else message


def _sentence(event: Mapping[str, Any]) -> str:
    name = str(event.get("event", "?"))
    facts = {key: _fact(value) for key, value in event.items() if key not in _IDENTITY and value is not None}
    if isinstance(cost := event.get("cost_usd"), int | float):
        facts["cost"] = dollars(cost)
        del facts["cost_usd"]
    if name == "agent.reported":
        return f"the agent reported {_listed(facts)}"
    try:
        return _SENTENCES[name].format_map(facts)
    except KeyError:  # an unknown event, or without one of the facts
        return ": ".join(filter(None, (name.replace(".", " ").replace("_", " "), _listed(facts))))


def _listed(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in facts.items())


def _fact(value: Any) -> str:
    """Return the value of a fact in words; a command is a list of words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return shlex.join(map(_fact, value))
    if isinstance(value, str) and is_oid(value):
        return value[:_SHOWN]
    return json.dumps(value) if isinstance(value, dict) else str(value)

"""``ralph-wrap config show``: each setting in force, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ralph_wrap import config
from ralph_wrap.config import trust
from ralph_wrap.config.options import Settings
from ralph_wrap.config.parsers import AGENTS
from ralph_wrap.config.schema import as_json
from ralph_wrap.config.table import ENVIRONMENT, KEY, Option
from ralph_wrap.errors import RalphError
from ralph_wrap.state.project import Project

DEFAULT = "default"
"""The source of a setting that is given nowhere."""


class EffectiveSetting(NamedTuple):
    """A setting as a session that starts now would have it.

    Attributes:
        name: as the configuration file has it; ``agents.NAME`` is the table of one agent.
        group: the settings that it belongs to.
        value: as the configuration file may have it; ``None`` is no value.
        source: ``default``, ``file``, ``environment``, or ``job FILE``.
        place: the file (``.ralph/config.toml``), or the name of the variable.
        approved: whether the user has approved it; ``None`` if it needs no approval.

    """

    name: str
    group: str
    value: Any
    source: str
    place: str | None
    approved: bool | None


def show(project: Project, cwd: Path) -> list[EffectiveSetting]:
    """Return all settings in the order of the table.

    Arguments:
        project: where a session would start.
        cwd: what relative paths in the environment are relative to.

    Raises:
        UsageError: a value is wrong; the message names where it stands.

    """
    values, sources = config.merge(project.main, cwd, {}, project.environ, ())
    settings = Settings(project=project.main, command=(), **values)
    missing = _unapproved(project, settings.stated)
    effective = [
        EffectiveSetting(
            row.name,
            row.group,
            as_json(getattr(settings, row.name), row.kind),
            source := sources.get(row.name, DEFAULT),
            _source_of(row, source, project.environ),
            row.name not in missing if source == KEY and row.name in settings.stated else None,
        )
        for row in Settings.options
        if row.kind is not AGENTS
    ]
    return [*effective, *_agents(settings, missing)]


def _agents(settings: Settings, missing: Mapping[str, Any]) -> Iterator[EffectiveSetting]:
    group = config.ROWS["agents"].group
    for name, table in settings.agents:
        approved = f"agents.{name}" not in missing
        yield EffectiveSetting(f"agents.{name}", group, table.stated(), KEY, str(config.CONFIG), approved)


def _unapproved(project: Project, stated: Mapping[str, Any]) -> Mapping[str, Any]:
    if not stated or trust.implied(project.environ):
        return {}
    try:
        return trust.unapproved(project.main, stated, project.environ)
    except RalphError:  # approvals would be kept where they do not count
        return stated


def _source_of(row: Option, source: str, environ: Mapping[str, str]) -> str | None:
    if source == KEY:
        return str(config.CONFIG)
    if source == ENVIRONMENT:
        return [variable for variable in row.variables if environ.get(variable)][-1]
    return None

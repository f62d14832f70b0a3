"""``ralph-wrap config``: the settings in force, and the schema of the configuration file."""

from __future__ import annotations

from json import dumps
from pathlib import Path

import typer

from ralph_wrap.commands import config as use_case
from ralph_wrap.commands.config import EffectiveSetting
from ralph_wrap.config.schema import schema as config_schema
from ralph_wrap.interfaces.cli import table as tables
from ralph_wrap.interfaces.cli.boundary import answer, become_owner, boundary
from ralph_wrap.interfaces.cli.options import Directory, Json
from ralph_wrap.state.project import find_project


def show(
    project: Directory = Path(),
    json: Json = False,
) -> None:
    """Print each setting that a session would have, and its source. Runs nothing."""
    with boundary("config show", json=json, project=project):
        environ = become_owner(project)
        effective = use_case.show(find_project(project, environ), Path.cwd())
        if json:
            answer("config show", [setting._asdict() for setting in effective])
            return
        rows = [(setting.name, _value(setting), _source(setting)) for setting in effective]
        names = ("SETTING", "VALUE", "FROM")
        typer.echo("\n".join(tables.aligned(names, rows, tables.of_terminal(), (("VALUE", 12),))))


def schema() -> None:
    """Print the JSON schema of .ralph/config.toml, for editors."""
    with boundary("config schema", json=False):
        typer.echo(dumps(config_schema(), indent=2))


def _value(setting: EffectiveSetting) -> str:
    value = setting.value
    if value in (None, "", [], {}):
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    return _printable(value if isinstance(value, str) else dumps(value, ensure_ascii=False))


def _source(setting: EffectiveSetting) -> str:
    verdict = {True: ", approved", False: ", not approved", None: ""}[setting.approved]
    return _printable(setting.place or setting.source) + verdict


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


config = typer.Typer(help="Show the settings and their sources.")
config.command()(show)
config.command()(schema)

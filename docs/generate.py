"""Write the reference pages from the code: ``.venv/bin/python docs/generate.py``.

With ``--check`` it writes nothing, prints the difference, and ends with 1 if a page is not current.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from described import ANSWERS, FILES, ONE_ANSWER, OTHER_ANSWERS, REFS, SESSION_STATUSES

from ralph_wrap import agents, errors
from ralph_wrap.config.options import ROWS, Settings
from ralph_wrap.config.table import ENVIRONMENT, KEY, TYPED
from ralph_wrap.interfaces.cli.app import all_loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ralph_wrap.config.table import Option

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
COMMAND = ".venv/bin/python docs/generate.py"

# Text


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    columns = [*head]
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *cells)]


_BARE_CODE = re.compile(r"(?<![`\w<-])(--[a-z][a-z-]+|RALPH_WRAP_<OPTION>|\.ralph/[\w./]*[\w/])(?![\w`])")
"""Options, variables and paths that the code writes without marks."""


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _sentence(text: str) -> str:
    """Return a description as a sentence in Markdown: what the code marks as code is code."""
    words = re.sub(r":\w+:`[~.\w]*?(\w+)`", r"`\1`", " ".join(text.split()).replace("``", "`"))
    for python, json in (("None", "null"), ("True", "true"), ("False", "false")):
        words = words.replace(f"`{python}`", f"`{json}`")
    words = re.sub(
        r"(?<![`\w<-])(--[a-z][a-z-]+|RALPH_WRAP_<OPTION>|\.ralph/[\w./]*[\w/])(?![\w`])", r"`\1`", words
    )
    if words.startswith("Ralph-wrap "):
        words = words.replace("Ralph-wrap", "ralph-wrap", 1)
    elif words.split(",")[0] not in agents.NAMES:
        words = words[:1].upper() + words[1:]
    return words.rstrip(".") + "." if words else ""


def _class(name: str) -> Any:
    module, _, found = name.rpartition(".")
    return getattr(import_module(f"ralph_wrap.{module}"), found)


def _fields(described: Any) -> dict[str, str]:
    """Return the fields of a class, and what its docstring says of each."""
    _, _, section = (inspect.getdoc(described) or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", section, re.MULTILINE)
    return {name: found_text for name, found_text in found if name in described._fields}


# Pages


def _commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from _commands(found, *path, name)
        else:
            yield " ".join((*path, name)), found


def _parameter_rows(command: Any) -> Iterator[tuple[str, str, str]]:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield _code(parameter.human_readable_name), "", _sentence(parameter.help or "")
        elif not getattr(parameter, "hidden", False):
            words = ", ".join(map(_code, (*parameter.opts, *parameter.secondary_opts)))
            takes = "" if parameter.is_flag or parameter.count else _value_of(parameter)
            yield words, _code(takes), _help_of(parameter)


def _value_of(parameter: Any) -> str:
    choices = getattr(parameter.type, "choices", None)
    return str(parameter.metavar or ("|".join(map(str, choices)) if choices else parameter.type.name.upper()))


def _help_of(parameter: Any) -> str:
    text = re.sub(r" ?\(default: (.*)\)$", "", parameter.help or "")
    default = re.search(r"\(default: (.*)\)$", parameter.help or "")
    shown = default[1] if default else parameter.default
    is_plain = isinstance(shown, (str, int, float, Path)) and not isinstance(shown, bool)
    return f"{_sentence(text)} Default: `{shown}`." if is_plain and str(shown) else _sentence(text)


def commands() -> Iterator[str]:
    """List each command with its arguments and options, as its help shows them."""
    yield "Each command prints the same with `--help`."
    yield "An *ID* is an agent id, a session id, a branch, or a title."
    panels: dict[str, list[tuple[str, Any]]] = {}
    top = all_loaded()
    for name, found in _commands(top):
        panel = getattr(top.commands[name.split()[0]], "rich_help_panel", None)  # type: ignore[attr-defined]
        panels.setdefault(str(panel), []).append((name, found))
    for panel, members in panels.items():
        yield f"\n## {panel}"
        for name, found in members:
            yield f"\n### `ralph-wrap {name}`\n"
            first, *more = re.split(r"\n\s*\n", inspect.cleandoc(found.help or "").replace("\f", ""))
            yield from (_sentence(first), *(f"\n{_sentence(part)}" for part in more))
            if rows := [*_parameter_rows(found)]:
                yield "\n" + "\n".join(_table(("argument or option", "value", "meaning"), rows))


def _where(row: Option) -> str:
    words = [_code(" ".join(row.words))] if TYPED in row.sources else []
    words += [_code(name) for name in row.variables if ENVIRONMENT in row.sources]
    return ", ".join(words)


def configuration() -> Iterator[str]:
    """List every setting: as an option, as a variable, and as a key of ``.ralph/config.toml``."""
    yield "A typed option wins over a variable."
    yield "A variable wins over `.ralph/config.toml`, and the file over the default."
    yield "`ralph-wrap config show` prints each setting in force, and where it comes from."
    yield "`ralph-wrap config schema` prints the JSON schema of the file, for editors."
    yield "[Configuration](../configuration.md) explains the file."
    for group in dict.fromkeys(row.group for row in Settings.options):
        yield f"\n## {group.capitalize()}\n"
        rows = [row for row in Settings.options if row.group == group]
        yield from _table(
            ("key", "option and variable", "value", "default", "meaning"), [_setting(row) for row in rows]
        )
    yield "\n## Not in the file\n"
    rows = [row for row in ROWS.values() if KEY not in row.sources]
    yield from _table(
        ("option and variable", "value", "meaning"), [_setting(row)[1:3] + _setting(row)[4:] for row in rows]
    )


def _setting(row: Option) -> tuple[str, ...]:
    value = "|".join(row.kind.choices) or row.metavar
    only = " Only for a session with a worktree." if row.needs_worktree else ""
    key = _code(f"{row.name}.NAME" if row.kind.name == "agents" else row.name)
    return key, _where(row), _code(value), _code(row.default_text), _sentence(row.help) + only


def _error_classes() -> list[type[errors.RalphError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in found if issubclass(kind, errors.RalphError)]


def exit_statuses() -> Iterator[str]:
    """List the exit statuses of sessions, and of all other commands."""
    yield "`run`, `spawn` and `resume` follow the convention of `env`, `timeout` and `docker run`."
    yield "`logs -f` and `wait` end with the status of the session.\n"
    yield "## Sessions\n"
    yield from _table(
        ("status", "meaning"), [(str(status), text) for status, text in SESSION_STATUSES.items()]
    )
    yield "\n## Other commands\n"
    kinds: dict[int, type[errors.RalphError]] = {}
    for kind in _error_classes():
        if not issubclass(kind, errors.AgentError):
            kinds.setdefault(kind.exit_code, kind)
    rows = [("0", "", "Done, or nothing to do.")]
    rows += [(str(status), _code(kind.code), _meaning(kind)) for status, kind in sorted(kinds.items())]
    yield from _table(("status", "`error.code`", "meaning"), rows)


def _meaning(kind: type[errors.RalphError]) -> str:
    if kind is errors.RalphError:
        return "ralph-wrap itself failed."
    return _sentence((inspect.getdoc(kind) or "").partition("\n")[0])


def error_kinds() -> Iterator[str]:
    """List the kinds of errors, with their exit statuses and codes."""
    yield "A message says what happened and why. The line `hint` has a command to type, or what to change.\n"
    rows = [
        (_code(kind.__name__), str(kind.exit_code), _code(kind.code), _meaning(kind))
        for kind in _error_classes()
    ]
    yield from _table(("error in Python", "status", "`error.code`", "meaning"), rows)
    yield "\n[Troubleshooting](../troubleshooting.md) explains the frequent messages."


def json_fields() -> Iterator[str]:
    """List the fields that commands print with ``--json``, and those of ``report.json``."""
    yield "Each command with `--json` prints one line on stdout, for mistakes on the command line, too:\n"
    yield '```json\n{"version": 1, "success": true, "tool": "ps", "data": []}\n```\n'
    yield "A failure has `error` with `code`, `message` and `hint`. It can have `data`, too."
    yield "Ignore fields that you do not know. `null` means unknown, or not applicable."
    listed = {*ANSWERS, *OTHER_ANSWERS}
    with_json = {
        name for name, found in _commands(all_loaded()) if any(p.name == "json" for p in found.params)
    }
    if missing := with_json - listed:
        raise SystemExit(
            f"docs/generate.py: add the answers of {', '.join(sorted(missing))} to docs/described.py"
        )
    for name in sorted(listed):
        fields = OTHER_ANSWERS[name] if name in OTHER_ANSWERS else _fields(_class(ANSWERS[name]))
        yield f"\n## `ralph-wrap {name}`\n"
        yield f"`data` is {'one object' if name in ONE_ANSWER else 'a list of objects'}.\n"
        yield from _field_table(fields)
    yield "\n## `report.json`\n"
    yield "The file is `.ralph/run/sessions/<session>/report.json`.\n"
    yield from _field_table(_fields(_class("state.report.SessionReport")))


def _field_table(fields: Mapping[str, str]) -> list[str]:
    return _table(("field", "meaning"), [(_code(name), _sentence(text)) for name, text in fields.items()])


def files() -> Iterator[str]:
    """List every file and every ref that ralph-wrap makes."""
    yield "## Below the project root\n"
    yield from _table(("path", "content"), [(_code(path), text) for path, text in FILES.items()])
    yield "\n`$XDG_STATE_HOME/ralph-wrap/` holds [approvals](../worktree.md#trust) and the key of `resume`."
    yield "`git/` there has the [configuration](../worktree.md#programs-of-a-repository) that our git obeys."
    yield (
        "A user without HOME gets `/var/lib/ralph-wrap/home/<uid>`, or, with a warning,"
        " `ralph-wrap-home-<uid>` in `TMPDIR`, `/tmp` or `/var/tmp`."
    )
    yield "\n## In git\n"
    yield from _table(("ref", "content"), [(_code(ref), text) for ref, text in REFS.items()])
    yield "\nWhile a session lives, `.git/worktrees/` has a locked registration that names it."


PAGES: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "reference/commands.md": ("Commands", commands),
    "reference/configuration.md": ("Settings", configuration),
    "reference/exit-statuses.md": ("Exit statuses", exit_statuses),
    "reference/errors.md": ("Errors", error_kinds),
    "reference/files.md": ("Files and refs", files),
    "reference/json.md": ("JSON", json_fields),
}


def contributing() -> str:
    """Return ``CONTRIBUTING.md`` as a page: its links start in another folder."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return re.sub(r"\]\(docs/", "](../", text)


def rendered() -> dict[Path, str]:
    """Return each generated page with its content."""
    pages = {}
    for name, (title, lines) in PAGES.items():
        intro = _sentence((inspect.getdoc(lines) or "").removeprefix("List "))
        note = f"<!-- Generated by {COMMAND}: change the code, not this page. -->"
        pages[DOCS / name] = "\n".join((f"# {title}\n", f"{note}\n", f"{intro}\n", *lines())) + "\n"
    return pages | {DOCS / "development/contributing.md": contributing()}


def main(*, check: bool) -> int:
    """Write the pages, or compare them; return the exit status."""
    differs = False
    for path, text in rendered().items():
        before = path.read_text() if path.is_file() else ""
        if before != text:
            differs = True
            name = path.relative_to(ROOT).as_posix()
            if check:
                lines = difflib.unified_diff(
                    before.splitlines(), text.splitlines(), name, "from the code", n=0
                )
                sys.stdout.write("\n".join(lines) + "\n")
            else:
                path.write_text(text)
                sys.stdout.write(f"wrote {name}\n")
    if check and differs:
        sys.stdout.write(f"\nThe pages are not current. Type: {COMMAND}\n")
    return int(check and differs)


if __name__ == "__main__":
    raise SystemExit(main(check="--check" in sys.argv[1:]))

"""Pages from templates, which escape each value unless it is our own HTML."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ralph_wrap.interfaces.web.escaping import finalize, quoted, shown
from ralph_wrap.state.wording import state_of
from ralph_wrap.system.text import dollars

_DAY, _HOUR, _MINUTE = 86400, 3600, 60
_NOTHING = "—"


def render(template: str, /, **facts: Any) -> str:
    """Return a page.

    Arguments:
        template: the name of the template's file.
        facts: the data of the page.

    """
    return _templates.get_template(template).render(facts)


def load() -> None:
    """Read every template now, because we may have no permission after dropping root."""
    for name in _templates.list_templates():
        _templates.get_template(name)


def _age(seconds: float | None) -> str:
    """Return a duration in one unit."""
    if seconds is None:
        return _NOTHING
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{seconds:.1f} s" if seconds % 1 else f"{int(seconds)} s"


def _since(moment: Any) -> str:
    """Return the age of a moment; *moment* is ISO 8601, seconds since 1970, or any other value."""
    try:
        time = (
            datetime.fromtimestamp(moment, UTC)
            if isinstance(moment, int | float)
            else datetime.fromisoformat(moment)
        )
        return f"{_age(max(0, int((datetime.now(UTC) - time).total_seconds())))} ago"
    except (TypeError, ValueError, OverflowError, OSError):
        return _NOTHING


def _utc(moment: Any, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a moment, ISO 8601 or a :class:`datetime`, with its zone, which is always UTC."""
    try:
        time = moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)
        return f"{time.astimezone(UTC):{form}} UTC"
    except (TypeError, ValueError, OverflowError):
        return _NOTHING


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def _dash(value: Any) -> Any:
    return _NOTHING if value is None or value == "" else value


_templates = Environment(
    loader=PackageLoader("ralph_wrap.interfaces.web", "assets/templates"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=finalize,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_templates.filters.update(
    age=_age,
    since=_since,
    count=_count,
    dash=_dash,
    dollars=dollars,
    quoted=quoted,
    shown=shown,
    state=state_of,
    utc=_utc,
)

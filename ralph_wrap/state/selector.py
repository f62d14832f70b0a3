"""What a text that a user typed names: an id, a branch, or a title.

One function decides this for all commands. An id, a session id or a branch wins over a title. A title may be
typed without regard to capital letters, or only its beginning. A text in the form of an id is never the
beginning of a title: a mistyped id must not name another session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ralph_wrap.errors import UsageError
from ralph_wrap.state.ids import agent_id_of
from ralph_wrap.system.log import one_line
from ralph_wrap.system.text import shortened, some

_LEAST = 3  # letters of the beginning of a title
_LISTED = 10  # candidates that a message lists
_WIDTH = 40  # columns of a title in a message


class Candidate(NamedTuple):
    """A session or a branch that a text may name.

    Attributes:
        value: the session or the branch.
        label: stands for it in a message; candidates with the same label are the same thing at other times.
        names: texts that name it, in groups; an earlier group wins over a later one.
        title: what people call it; empty if it has none.

    """

    value: Any
    label: str
    names: Sequence[Sequence[str | None]]
    title: str


def select(wanted: str, candidates: Sequence[Candidate]) -> Any:
    """Return the value of the candidate that a text names, ``None`` if there is none.

    Arguments:
        wanted: the text.
        candidates: of several that one name fits, the first one counts.

    Raises:
        UsageError: the title of several candidates fits.

    """
    for group in range(max((len(candidate.names) for candidate in candidates), default=0)):
        for candidate in candidates:
            if group < len(candidate.names) and wanted in candidate.names[group]:
                return candidate.value
    for fits in (_exactly, _in_any_case, _begins):
        if found := [candidate for candidate in candidates if candidate.title and fits(candidate, wanted)]:
            return _only(found, wanted)
    return None


def _exactly(candidate: Candidate, wanted: str) -> bool:
    return candidate.title == wanted


def _in_any_case(candidate: Candidate, wanted: str) -> bool:
    return candidate.title.casefold() == wanted.casefold()


def _begins(candidate: Candidate, wanted: str) -> bool:
    whole = len(wanted) >= _LEAST and agent_id_of(wanted) is None
    return whole and candidate.title.casefold().startswith(wanted.casefold())


def _only(found: Sequence[Candidate], wanted: str) -> Any:
    labels = [*dict.fromkeys(candidate.label for candidate in found)]
    if len(labels) > 1:
        raise UsageError(
            f"{one_line(wanted)!r} names {len(labels)}: {'; '.join(some(_described(found), _LISTED))}",
            "name one of them by its id",
        )
    return found[0].value


def _described(found: Iterable[Candidate]) -> list[str]:
    titles = {candidate.label: candidate.title for candidate in found}
    return [f"{label} ({shortened(one_line(title), _WIDTH)})" for label, title in titles.items()]

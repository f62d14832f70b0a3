"""The state of one index of a run: a blob that moves only by compare-and-swap.

Each blob has a nonce. If two workers push one object to one ref, git reports success to both.
"""

from __future__ import annotations

import os
from typing import Any

from ralph_wrap.state.ids import is_wide_agent_id
from ralph_wrap.system.document import DocumentFormat
from ralph_wrap.system.named_tuple import NamedTuple
from ralph_wrap.system.text import plain

CLAIMED, DONE, STOPPED = "claimed", "done", "stopped"
"""The states of an index; the last two are final."""

_FORMAT = DocumentFormat(version=1, largest=1 << 16)
_NONCE = 16  # bytes
_LONGEST = 200  # characters of a text for people


class IndexState(NamedTuple):
    """The state of an index.

    Attributes:
        number: of the index; ``index`` in the blob.
        id: agent id of its session.
        state: :data:`CLAIMED`, :data:`DONE` or :data:`STOPPED`.
        session: session id of the last session; empty before its end.
        ended_by: why that ended, as in ``report.json``.
        iterations: number of iterations of it.
        nonce: makes the blob unique.

    """

    number: int
    id: str
    state: str = CLAIMED
    session: str = ""
    ended_by: str = ""
    iterations: int = 0
    nonce: str = ""

    @property
    def is_final(self) -> bool:
        """Whether no worker goes on with it."""
        return self.state != CLAIMED

    def encode(self) -> bytes:
        """Return the content of its blob, with a new nonce."""
        fields = self._asdict()
        return _FORMAT.encode({"index": fields.pop("number"), **fields, "nonce": os.urandom(_NONCE).hex()})


def decode_index(content: bytes, index: int) -> IndexState:
    """Return the state in a blob.

    Arguments:
        index: the number that its ref names.

    Raises:
        ValueError: it is damaged, forged, or of another version.

    """
    return _FORMAT.decode(content, lambda fields: _checked(fields, index))


def _checked(fields: dict[str, Any], index: int) -> IndexState:
    state = IndexState(
        **{name: fields[name] for name in IndexState._fields if name in fields and name != "number"},
        number=fields["index"],
    )
    texts = (state.id, state.state, state.session, state.ended_by, state.nonce)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a field of the wrong type")
    if (
        type(state.number) is not int
        or state.number != index
        or type(state.iterations) is not int
        or state.iterations < 0
    ):
        raise ValueError("a number that is not its own")
    if not is_wide_agent_id(state.id) or state.state not in {CLAIMED, DONE, STOPPED}:
        raise ValueError("an id or a state that is none")
    return state._replace(session=plain(state.session)[:_LONGEST], ended_by=plain(state.ended_by)[:_LONGEST])

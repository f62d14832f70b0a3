"""The options of the sandbox; see :mod:`ralph_wrap.config.options`."""

from __future__ import annotations

from ralph_wrap.config.parsers import NETWORK, PATHS, choice
from ralph_wrap.config.settings import SandboxMode
from ralph_wrap.config.table import KEY, Table, option

_FILE_ONLY = (KEY,)


class SandboxSettings(Table, group="sandbox"):
    """What the agent can reach."""

    sandbox: SandboxMode = option(
        default=SandboxMode.OFF,
        kind=choice(SandboxMode),
        help="Confine the agent by bubblewrap or Landlock; auto: by the first one that works.",
    )
    sandbox_write: tuple[str, ...] = option(
        default=(),
        kind=PATHS,
        help="Paths outside the workspace that the agent in the sandbox can write.",
        sources=_FILE_ONLY,
    )
    sandbox_network: tuple[str, ...] = option(
        default=("all",),
        kind=NETWORK,
        help="The network of the agent in the sandbox: all, none, or a list of hosts.",
        sources=_FILE_ONLY,
    )

"""``ralph-wrap fleet hub``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ralph_wrap.interfaces.cli.boundary import boundary

_INTERVAL = "20s"


def hub(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where the repository of the hub is.")
    ],
    *,
    origin: Annotated[str, typer.Option("--origin", metavar="URL", help="The remote that it forwards to.")],
    credential: Annotated[
        Path, typer.Option("--credential", metavar="FILE", help="One line user:password, for its clients.")
    ],
    origin_credential: Annotated[
        Path | None,
        typer.Option("--origin-credential", metavar="FILE", help="git-credential-store(1), for the remote."),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where it serves; without TLS.")
    ] = "127.0.0.1:8080",
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="Time between two pushes to the remote.")
    ] = _INTERVAL,
) -> None:
    """Serve a git repository to the sessions of fleets, and forward their pushes in few to a remote."""
    from ralph_wrap.config.parsers import duration  # noqa: PLC0415 -- not for --help
    from ralph_wrap.errors import UsageError  # noqa: PLC0415
    from ralph_wrap.interfaces.fleet.hub.run import Hub, HubOrder  # noqa: PLC0415
    from ralph_wrap.system.signals import SignalHandlers  # noqa: PLC0415

    with boundary("fleet", json=False) as log:
        host, _, port = listen.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"--listen: {listen!r} is no host with a port", "--listen 0.0.0.0:8080")
        order = HubOrder(
            directory.absolute(),
            origin,
            origin_credential and origin_credential.absolute(),
            credential.absolute(),
            host,
            int(port),
            duration(interval),
        )
        with SignalHandlers() as signals:
            status = Hub(order, os.environ, signals.cancel, log).run()
    raise typer.Exit(status)

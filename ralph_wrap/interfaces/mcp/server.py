"""Serve the Model Context Protocol on standard input and output (modelcontextprotocol.io, transport *stdio*).

stdout carries only the protocol. While it serves, the SDK points descriptor 1 at stderr. So a stray ``print``
cannot break the protocol.

Calls run one after the other in a worker thread. The event loop answers pings meanwhile, and two calls cannot
enter two worktrees. A call that has begun runs to its end in both cases that end the server:

* Standard input ends, or the client stops reading. The SDK cancels the call, which waits for its thread,
  because anyio never abandons a thread.
* A signal comes. The server records it, and ends by its default action once no call runs. Nothing can wake
  the thread that reads standard input, so there is no other way to exit while a client keeps it open.
"""

from __future__ import annotations

import signal
from importlib.metadata import version
from threading import Lock

from anyio import create_task_group, open_signal_receiver, run, sleep
from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

from ralph_wrap.interfaces.mcp.tools import ENTER, EXIT, STATUS, ToolCaller, WorktreeTools
from ralph_wrap.system.log import get_logger
from ralph_wrap.system.process import ENDING

log = get_logger()


def make_server() -> MCPServer[None]:
    """Return a server without tools, before root gives up its privileges.

    anyio and the SDK load some modules at their first use.
    """
    run(sleep, 0)
    # What goes wrong is said in our own log; the SDK logs only what would end the server.
    return MCPServer("ralph-wrap", version=version("ralph-wrap"), log_level="CRITICAL", subscriptions=False)


def serve(server: MCPServer[None], caller: ToolCaller) -> None:
    """Serve the tools until standard input ends."""
    log.event(
        "server.started",
        f"worktree tools for {caller.directory}, session {caller.session}",
        session_id=caller.session,
    )
    try:
        run(_serve, server, caller)
    except* (BrokenPipeError, ConnectionResetError):
        log.event("client.left", "the client does not read the answers any more")


async def _serve(server: MCPServer[None], caller: ToolCaller) -> None:
    tools = WorktreeTools(caller)
    for tool, description, hints in (
        (tools.enter_worktree, ENTER, ToolAnnotations(destructive_hint=False)),
        (tools.exit_worktree, EXIT, ToolAnnotations(destructive_hint=True)),
        (tools.worktree_status, STATUS, ToolAnnotations(read_only_hint=True, destructive_hint=False)),
    ):
        server.add_tool(
            tool, description=description, annotations=hints.model_copy(update={"open_world_hint": False})
        )
    async with create_task_group() as tasks:
        tasks.start_soon(_end_at_a_signal, tools.busy)
        await server.run_stdio_async()
        tasks.cancel_scope.cancel()


async def _end_at_a_signal(busy: Lock) -> None:
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with open_signal_receiver(*heeded) as received:
        async for number in received:
            await run_sync(busy.acquire)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

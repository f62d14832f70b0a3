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

import json
import signal
from functools import partial
from importlib.metadata import version
from typing import Any

from anyio import Lock, create_task_group, open_signal_receiver, run, sleep
from anyio.to_thread import run_sync
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as Described

from ralph_wrap.errors import RalphError
from ralph_wrap.interfaces.mcp.tools import TOOLS, McpTool, ToolCaller, answer
from ralph_wrap.system.log import get_logger, lines_of, one_line, traceback_of
from ralph_wrap.system.process import ENDING

log = get_logger()


def load() -> None:
    """Let anyio load what it loads at its first use, before root gives up its privileges."""
    run(sleep, 0)


def serve(caller: ToolCaller) -> None:
    """Serve the tools until standard input ends."""
    log.event(
        "server.started",
        f"worktree tools for {caller.directory}, session {caller.session}",
        session_id=caller.session,
    )
    try:
        run(_serve, caller)
    except* (BrokenPipeError, ConnectionResetError):
        log.event("client.left", "the client does not read the answers any more")


async def _serve(caller: ToolCaller) -> None:
    busy = Lock()
    tools = {tool.name: tool for tool in TOOLS}

    async def list_tools(*_: object) -> ListToolsResult:
        return ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(_: object, params: CallToolRequestParams) -> CallToolResult:
        if params.name not in tools:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        call = partial(_called, tools[params.name], caller, params.arguments or {})
        async with busy:
            return await run_sync(call)

    server = Server(
        "ralph-wrap", version=version("ralph-wrap"), on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with create_task_group() as tasks:
        tasks.start_soon(_end_at_a_signal, busy)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_at_a_signal(busy: Lock) -> None:
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with open_signal_receiver(*heeded) as received:
        async for number in received:
            await busy.acquire()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _described(tool: McpTool) -> Described:
    return Described(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        output_schema={**tool.answer},
        annotations=ToolAnnotations(
            read_only_hint=tool.reads,
            destructive_hint="discard_changes" in tool.arguments,
            open_world_hint=False,
        ),
    )


def _called(tool: McpTool, caller: ToolCaller, arguments: dict[str, Any]) -> CallToolResult:
    """Return the answer of a tool, or its error. The error is for the agent, not one of the protocol."""
    try:
        data = answer(tool, caller, arguments)
    except RalphError as error:
        return _failed(error)
    except Exception as error:  # noqa: BLE001 -- after a bug or a disk error the next call may work
        failure = RalphError(f"ralph-wrap failed: {error!r}", "please report this with the output on stderr")
        log.error("tool.failed", failure.message, tool=tool.name, traceback=traceback_of(error))
        return _failed(failure)
    text = TextContent(text=json.dumps(data, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=data)


def _failed(error: RalphError) -> CallToolResult:
    # A file name can hold any character, also a newline.
    lines = [one_line(f"{error.code}: {error.message}")]
    if error.hint:
        lines += [one_line(f"hint: {line}") for line in lines_of(error.hint)]
    return CallToolResult(content=[TextContent(text="\n".join(lines))], is_error=True)

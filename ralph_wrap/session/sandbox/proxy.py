"""The way out of a sandbox without a network: a proxy outside connects to the listed hosts, and to no other.

``python -I -S -c SOURCE DESCRIPTOR HOST…``. The launcher of each agent sends it a socket that listens on the
loopback interface of the sandbox. The proxy accepts connections there, and understands ``CONNECT`` (RFC 9110,
section 9.3.6). It ends when the other end of DESCRIPTOR is closed, so it does not outlive its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

_LONGEST_HEAD = 1 << 14  # bytes of a request
_HTTPS = 443


class HostRule:
    """An entry of ``sandbox_network``: ``example.com``, ``*.example.com`` or ``example.com:8443``."""

    def __init__(self, entry: str) -> None:
        name, _, port = entry.partition(":")
        self.name, self.port = name.lower().removeprefix("*"), int(port or _HTTPS)

    def fits(self, host: str, port: int) -> bool:
        """Return whether the agent can connect to a host."""
        found = host.lower().removesuffix(".")
        is_host = found.endswith(self.name) if self.name.startswith(".") else found == self.name
        return is_host and port == self.port


class ConnectProxy:
    """Accepts the connections of one sandbox after the other.

    Arguments:
        rules: the hosts.
        channel: a socket on which the listening sockets arrive.

    """

    def __init__(self, rules: list[HostRule], channel: socket.socket) -> None:
        self._rules = rules
        self._channel = channel
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the channel is closed."""
        self._channel.setblocking(False)
        closed = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel, self._take, closed)
        await closed.wait()

    def _take(self, closed: asyncio.Event) -> None:
        content, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        if not content:
            closed.set()
        for descriptor in descriptors:
            task = asyncio.ensure_future(self._listen(socket.socket(fileno=descriptor)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _listen(self, listening: socket.socket) -> None:
        if self._server is not None:
            self._server.close()  # the sandbox before: its agent has ended
        listening.setblocking(False)
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=_LONGEST_HEAD)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
            status, found = await self._connect(head.partition(b"\r\n")[0].decode("latin-1"))
            writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
            await writer.drain()
            if found is not None:
                with contextlib.closing(found[1]):
                    await asyncio.gather(_copy(reader, found[1]), _copy(found[0], writer))

    async def _connect(
        self, line: str
    ) -> tuple[str, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        """Return the status for a request, and the connection to its host if it gets one."""
        method, _, rest = line.partition(" ")
        host, _, number = rest.partition(" ")[0].rpartition(":")
        if method != "CONNECT" or not number.isdecimal():
            return "405 The sandbox only has CONNECT, which https uses", None
        if not any(rule.fits(host, int(number)) for rule in self._rules):
            return "403 The host is not in sandbox_network", None
        try:
            return "200 Connected", await asyncio.open_connection(host, int(number))
        except (OSError, OverflowError):
            return "502 The host cannot be reached", None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass everything on, and then the end."""
    with contextlib.suppress(OSError):
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
        writer.write_eof()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as our_end:
        asyncio.run(ConnectProxy([HostRule(entry) for entry in sys.argv[2:]], our_end).run())

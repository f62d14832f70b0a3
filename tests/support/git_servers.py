"""Git servers on this machine: smart HTTP, which can hang, and ssh."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support import git_cgi
from tests.support.needs import Need
from tests.support.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")


def _lacks_ssh_server() -> str:
    programs = {"sshd": SSHD, "ssh": shutil.which("ssh"), "ssh-keygen": shutil.which("ssh-keygen")}
    if absent := [name for name, path in programs.items() if path is None]:
        return f"not installed: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "the client logs in as root, which only an sshd of root allows"


SSH_SERVER = Need(_lacks_ssh_server, "REQUIRE_SSH")


class _Handler(BaseHTTPRequestHandler):
    """Answers as git-http-backend(1) does."""

    root: Path
    hangs: threading.Event
    ended: threading.Event

    def _serve(self) -> None:
        if self.hangs.is_set():
            self.ended.wait()
            return
        git_cgi.serve(self, self.root)

    do_GET = do_POST = _serve  # noqa: N815 -- http.server calls these names

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def http_server(root: Path) -> Iterator[tuple[str, threading.Event]]:
    """Serve the repositories in a directory; yield its address, and an event that makes the server hang."""
    hangs, ended = threading.Event(), threading.Event()
    handler = type("Handler", (_Handler,), {"root": root, "hangs": hangs, "ended": ended})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", hangs
        finally:
            ended.set()
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def ssh_server(directory: Path) -> Iterator[tuple[str, str]]:
    """Run sshd with keys of its own; yield the address of this machine, and the command of the client."""
    SSH_SERVER.check()
    assert SSHD is not None
    directory.mkdir(mode=0o700)
    for name in ("host", "user"):
        keygen = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name)
        subprocess.run(keygen, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.makedirs("/run/sshd", exist_ok=True)  # noqa: PTH103 -- sshd wants it for its unprivileged child
    config = directory / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {directory}/host\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {directory}/user.pub\nPermitRootLogin yes\nLogLevel ERROR\n"
    )
    known = f"-o UserKnownHostsFile={directory}/known -o StrictHostKeyChecking=accept-new"
    client = f"ssh -F none -p {port} -i {directory}/user -o IdentitiesOnly=yes {known}"
    with subprocess.Popen((SSHD, "-D", "-e", "-f", config), stderr=subprocess.DEVNULL) as server:
        try:

            def listens() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            eventually(listens, "sshd")
            yield "ssh://root@127.0.0.1", client
        finally:
            server.terminate()

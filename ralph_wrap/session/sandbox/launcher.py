"""The first program in a sandbox: it completes the sandbox from the inside, and becomes the agent.

``python -I -S -c SOURCE WORD… COMMAND…``, see :class:`LaunchSpec`. It stands alone, on the standard
library.

It writes a dot to a descriptor when it has begun, and the number of an error if the agent cannot be executed.
The descriptor closes when the agent runs (``execve(2)``), so its reader then knows.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

BEGUN = b"."

# <asm-generic/ioctls.h>: give the terminal up, type into it, and paste into it
_TIOCNOTTY, _TIOCSTI, _TIOCLINUX = 0x5422, 0x5412, 0x541C

# seccomp(2), <linux/filter.h>, <linux/audit.h>
_ARCHITECTURES = {"x86_64": (0xC000003E, 16), "aarch64": (0xC00000B7, 29), "riscv64": (0xC00000F3, 29)}
"""The number of an architecture, and its number of ``ioctl(2)``."""
_LOAD, _IS, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_OTHER_CALLS = 0x40000000  # x32 of x86_64
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

# <linux/landlock.h>, landlock_create_ruleset(2); the numbers are the same for every architecture of Linux
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1 << 0  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38  # prctl(2)
_READ = 0b1101  # EXECUTE, READ_FILE, READ_DIR
_OF_FILES = 0b111 | 1 << 14 | 1 << 15  # EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV
_RIGHTS = {1: 0x1FFF, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""The rights to files by the ABI that brought them: REFER in 2, TRUNCATE in 3, IOCTL_DEV in 5."""
_SCOPES = 0b11  # ABSTRACT_UNIX_SOCKET, SIGNAL
SCOPES_SINCE = 6
"""The ABI since which Landlock stops signals to other processes (Linux 6.12)."""


class LaunchSpec:
    """What the launcher does; :meth:`words` and :meth:`read` convert it to arguments and back.

    Arguments:
        report: the descriptor for its report.
        proxy: descriptor of a socket to the proxy; ``None`` without a proxy.
        terminal: the agent keeps the controlling terminal.
        writable: paths that the agent can write, enforced by Landlock; ``None``: Landlock stops no writes.

    """

    def __init__(
        self, report: int, proxy: int | None, terminal: bool, writable: Sequence[str] | None
    ) -> None:
        self.report, self.proxy, self.terminal, self.writable = report, proxy, terminal, writable

    def words(self) -> list[str]:
        """Return the arguments for the launcher."""
        proxy = -1 if self.proxy is None else self.proxy
        count = -1 if self.writable is None else len(self.writable)
        return [str(self.report), str(proxy), str(int(self.terminal)), str(count), *(self.writable or ())]

    @classmethod
    def read(cls, words: list[str]) -> tuple[LaunchSpec, list[str]]:
        """Return the spec of some arguments, and the command after it."""
        report, proxy, terminal, count = map(int, words[:4])
        end = 4 + max(count, 0)
        writable = words[4:end] if count >= 0 else None
        return cls(report, proxy if proxy >= 0 else None, bool(terminal), writable), words[end:]


def landlock_abi() -> int:
    """Return the version of Landlock that the kernel has; 0 if it has none, or if it is switched off."""
    found: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    return max(found, 0)


def _restrict(writable: Sequence[str] | None) -> None:
    """Confine this process by Landlock: it writes only below some paths, and signals only its descendants.

    Arguments:
        writable: these paths; ``None``: files are not confined, only signals and abstract sockets.

    Raises:
        OSError: the kernel refused.

    """
    libc = ctypes.CDLL(None, use_errno=True)
    abi = landlock_abi()
    rights = sum(bits for since, bits in _RIGHTS.items() if since <= abi) & ~_READ
    rights = 0 if writable is None else rights
    scopes = _SCOPES if abi >= SCOPES_SINCE else 0
    if not rights and not scopes:
        return
    fields = (ctypes.c_uint64 * 3)(rights, 0, scopes)  # struct landlock_ruleset_attr
    size = ctypes.c_size_t(24 if scopes else 8)
    ruleset = _checked(libc.syscall(_CREATE_RULESET, ctypes.byref(fields), size, ctypes.c_uint(0)))
    for path in writable or ():
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = rights if os.path.isdir(path) else rights & _OF_FILES  # noqa: PTH112 -- a text
        rule = allowed.to_bytes(8, sys.byteorder) + beneath.to_bytes(4, sys.byteorder)
        _checked(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint(0)))
        os.close(beneath)
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint(0)))
    os.close(ruleset)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _leave_terminal() -> None:
    """Give up the controlling terminal: a program that has it can type commands into it (TIOCSTI)."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # there is none
        return
    fcntl.ioctl(terminal, _TIOCNOTTY)
    os.close(terminal)


def _forbid_typing() -> None:
    """Let the agent use the terminal, but not type into it: the user's shell would run that at our end.

    Raises:
        OSError: the kernel refused, or we do not know the architecture.

    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    architecture, ioctl = _ARCHITECTURES[machine]
    # Code, jumps if true and if false, and a value. The calls of another architecture fail.
    program = (
        (_LOAD, 0, 0, 4),  # struct seccomp_data: arch
        (_IS, 0, 8, architecture),
        (_LOAD, 0, 0, 0),  # nr
        (_IS_AT_LEAST, 6, 0, _OTHER_CALLS),
        (_IS, 0, 3, ioctl),
        (_LOAD, 0, 0, 24),  # the lower half of the second argument
        (_IS, 2, 0, _TIOCSTI),
        (_IS, 1, 0, _TIOCLINUX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL_WITH | errno.EPERM),
        (_RETURN, 0, 0, _FAIL_WITH | errno.ENOSYS),
    )
    code = b"".join(
        number.to_bytes(2, sys.byteorder) + bytes((true, false)) + value.to_bytes(4, sys.byteorder)
        for number, true, false, value in program
    )
    content = ctypes.create_string_buffer(code, len(code))
    filters = (ctypes.c_uint64 * 2)(len(program), ctypes.addressof(content))  # struct sock_fprog
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filters), 0, 0))


def _reach_proxy(descriptor: int) -> None:
    """Listen on the loopback interface of our network, and let the proxy outside accept its connections."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(fileno=descriptor) as channel,
    ):
        socket.send_fds(channel, [BEGUN], [server.fileno()])
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = address
    os.environ["NODE_USE_ENV_PROXY"] = "1"  # node takes no notice of the others by itself
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "localhost,127.0.0.1,::1"


def _take_signals() -> None:
    """Handle signals as a program that was started from a shell; Python ignores two of them."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    ending = {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)


def main(words: list[str]) -> NoReturn:
    """Complete the sandbox, and execute the agent."""
    spec, command = LaunchSpec.read(words)
    os.write(spec.report, BEGUN)
    os.set_inheritable(spec.report, False)
    try:
        if spec.proxy is not None:
            _reach_proxy(spec.proxy)
        _forbid_typing() if spec.terminal else _leave_terminal()
        _restrict(spec.writable)
        _take_signals()
        os.execvp(command[0], command)  # noqa: S606 -- no shell is wanted
    except OSError as error:
        os.write(spec.report, str(error.errno).encode())
    os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])

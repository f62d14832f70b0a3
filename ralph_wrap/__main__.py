"""The entry point of the program: from its first line, Ctrl-C ends it with status 130, without a traceback.

Python raises ``KeyboardInterrupt`` at Ctrl-C, in the middle of an import for example, and prints a traceback.
So a handler that ends the process is set first, and the imports come after it. Each command sets its own
handlers when its work begins.
"""

import os
import signal
import sys


def main() -> None:
    """Run the command line of this process, then end the process.

    Raises:
        SystemExit: always, with the exit status.

    """
    _end_at_signals()
    _fill_standard_descriptors()
    _decode_as_utf8()
    from ralph_wrap.interfaces.cli import run_command_line  # noqa: PLC0415 -- see above

    try:
        sys.exit(run_command_line())
    except KeyboardInterrupt:  # from a command
        _end_at_signals()  # while Python ends
        sys.exit(128 + signal.SIGINT)


def _end_at_signals() -> None:
    # An ignored signal stays ignored: nohup and a shell's background jobs rely on this.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_as_in_a_shell)
    # The kernel delivers to PID 1 of a container only signals that have a handler (pid_namespaces(7)).
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_as_in_a_shell)


def _end_as_in_a_shell(number: int, _frame: object) -> None:
    os._exit(128 + number)  # nothing has begun that Python could clean up


def _fill_standard_descriptors() -> None:
    # The next pipe that we open would get the number of a closed descriptor. Our output
    # would go into that pipe.
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the agent needs it, too


def _decode_as_utf8() -> None:
    """Start again in Python's UTF-8 mode, if the locale has another encoding (PEP 540).

    Git and agents write UTF-8, whatever the locale says, and names are bytes to the kernel. In UTF-8 mode
    each name that we read is the same bytes when we use it. With an option instead of ``PYTHONUTF8``, the
    environment of the agent stays as it is.
    """
    if sys.getfilesystemencoding() == "utf-8" or not sys.executable:
        return
    try:
        # sys.orig_argv was decoded by the locale, and need not give the same bytes again.
        with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123 -- as bytes
            words = file.read().split(b"\0")[1:-1]
    except OSError:
        words = [os.fsencode(word) for word in sys.orig_argv[1:]]
    os.execv(sys.executable, [sys.executable.encode(), b"-X", b"utf8", *words])  # noqa: S606 -- no shell


if __name__ == "__main__":
    main()

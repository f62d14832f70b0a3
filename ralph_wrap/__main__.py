"""The entry point of the program: from its first line, Ctrl-C ends it with status 130, without a traceback.

Python raises ``KeyboardInterrupt`` at Ctrl-C, in the middle of an import for example, and prints a traceback.
So a handler that ends the process is set first, and the slow imports come after it. ``run`` sets its own
handlers before these imports, and any other command gets Python's one back when its own work begins.
"""

import atexit
import gc
import os
import sys

TYPE_CHECKING = False  # importing it from typing takes longer than all that comes before the handler
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

    from ralph_wrap.system.signals import SignalHandlers

_INTERRUPTED = 130  # 128 + SIGINT, as in a shell


def main() -> "NoReturn":
    """Run the command line and end the process."""
    try:
        run()
    except SystemExit as end:
        _end(end)


def run() -> "NoReturn":
    """Run the command line.

    Raises:
        SystemExit: always, with the exit status.

    """
    try:
        _end_at_once_at_ctrl_c()
        _fill_standard_descriptors()
        _decode_as_utf8()
        if sys.argv[1:2] == ["init"]:
            _be_init()
        from ralph_wrap.interfaces import module_finder  # noqa: PLC0415 -- init stays small, and loads few modules

        module_finder.install()
        is_session = sys.argv[1:2] == ["run"] or sys.argv[1:3] == ["fleet", "work"]
        if is_session:
            gc.disable()  # imports leave nothing to collect; session.session enables it again
            _load_at_first_use("ipaddress", "locale", "ntpath")
        from ralph_wrap.system.signals import SignalHandlers  # noqa: PLC0415 -- init has its own, and stays small

        if is_session:
            # A signal that comes during the slow imports must end the session like any later signal.
            with SignalHandlers() as signals:
                _run(signals)
        _run(None)
    except KeyboardInterrupt:  # before the first handler, or from a command
        _end_at_once_at_ctrl_c()  # while Python ends
        sys.exit(_INTERRUPTED)


def _end(end: SystemExit) -> "NoReturn":
    """End as Python does, but do not free each object first. That takes 16 ms, and the kernel is faster."""
    threading = sys.modules.get("threading")
    if not isinstance(end.code, int | None) or (threading and threading.active_count() > 1):
        raise end  # Python prints what is no number, and waits for other threads
    atexit._run_exitfuncs()  # noqa: SLF001 -- a public function with this effect does not exist
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # its descriptor was closed at the start
                stream.flush()
    except (OSError, ValueError):
        raise end from None  # Python then ends with status 120, as always
    os._exit(end.code or 0)


def _end_at_once_at_ctrl_c() -> None:
    import signal  # noqa: PLC0415 -- here Ctrl-C during this import is caught

    # An ignored signal stays ignored: nohup and a shell's background jobs rely on this.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def _exit(_number: int, _frame: "FrameType | None") -> "NoReturn":
    os._exit(_INTERRUPTED)


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
        with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123 -- pathlib is not loaded yet
            words = file.read().split(b"\0")[1:-1]
    except OSError:
        words = [os.fsencode(word) for word in sys.orig_argv[1:]]
    os.execv(sys.executable, [sys.executable.encode(), b"-X", b"utf8", *words])  # noqa: S606 -- no shell


def _be_init() -> None:
    """Run as PID 1, then exit; return only if Typer must print help or an error.

    Typer then stays in memory, which is why PID 1 does not load it otherwise.
    """
    from ralph_wrap.interfaces import init  # noqa: PLC0415 -- for this command only

    if options := init.read(sys.argv[2:], os.environ):
        sys.exit(init.run(options))


def _load_at_first_use(*names: str) -> None:
    """Let modules of the standard library load when a function first uses them.

    ``urllib.parse``, ``subprocess`` and ``pathlib`` import them. A session calls no function that uses them,
    and they take 2 ms. ``importlib.util.LazyLoader`` would not keep them away: an ``import`` statement reads
    the ``__spec__`` of such a module, and that loads it. Here ``__spec__`` is ``None``.
    """
    from importlib import import_module  # noqa: PLC0415 -- as above
    from types import ModuleType  # noqa: PLC0415

    class ModuleToLoad(ModuleType):
        def __getattr__(self, name: str) -> object:
            del sys.modules[self.__name__]
            module = import_module(self.__name__)
            vars(self).update(vars(module))
            return getattr(module, name)

    for name in names:
        if name not in sys.modules:
            sys.modules[name] = ModuleToLoad(name)


def _run(signals: "SignalHandlers | None") -> "NoReturn":
    from ralph_wrap.interfaces.cli import main as run_command_line  # noqa: PLC0415 -- see above

    run_command_line(signals)


if __name__ == "__main__":
    main()

"""PID 1 itself: ``python -P -m ralph_wrap.interfaces.init STOP_TIMEOUT yes|no [COMMAND…]``.

``ralph-wrap init`` reads its command line with Typer, and then becomes this small program (``execve(2)``).
The words are the seconds that sessions have at the end, whether interrupted sessions go on, and a command.
"""

import sys
from contextlib import suppress

from ralph_wrap.interfaces.init import InitOptions, run

if __name__ == "__main__":
    # ps(1) and top(1) show this name, and execve(2) has made it that of Python (proc(5)).
    with suppress(OSError), open("/proc/self/comm", "w") as name:  # noqa: PTH123 -- pathlib takes memory
        name.write("ralph-wrap")
    _, stop_timeout, resume, *command = sys.argv
    sys.exit(run(InitOptions(float(stop_timeout), tuple(command), resume == "yes")))

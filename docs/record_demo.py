"""Record `docs/demo.sh` in a terminal of 80 columns, and write it as an animated SVG: docs/assets/demo.svg.

`make picture` runs it.

The terminal in memory is so high that nothing scrolls out of it. So each of its lines is drawn once, with the
time at which it appears and the time at which it changes. The picture scrolls as a whole.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import struct
import sys
import termios
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyte

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
TARGET = HERE / "assets" / "demo.svg"

COLUMNS, ROWS = 80, 24
HIGHEST = 1000  # rows of the terminal in memory
LONGEST_PAUSE = 1.2  # seconds without output; a busy machine makes longer ones
LAST_PAUSE = 6.0  # seconds before the picture begins again
WIDTH, HEIGHT, MARGIN, BAR = 8.4, 19, 16, 30  # pixels of a cell, around the text, and of the title bar

COLOURS = {
    "default": "#c9d1d9",
    "black": "#6e7681",
    "red": "#ff7b72",
    "green": "#7ee787",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#f0f6fc",
}


@dataclass(frozen=True)
class Shown:
    """A text that is in a row from one time to another; `None`: to the end."""

    row: int
    markup: str
    begin: float
    end: float | None


def record() -> Iterator[tuple[float, str]]:
    """Run the demo in a terminal, and yield what it prints, each piece with its time in seconds."""
    pid, terminal = pty.fork()
    if pid == 0:
        path = f"{HERE.parent / '.venv' / 'bin'}:{os.environ['PATH']}"  # as if it were installed
        environ = {**os.environ, "TERM": "xterm-256color", "PS1": "$ ", "PATH": path}
        os.execve(HERE / "demo.sh", ["demo.sh"], environ)  # noqa: S606 -- no shell is wanted
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    now, last = 0.0, time.monotonic()
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # EIO: the program has ended (pty(7))
            break
        if not piece:
            break
        now, last = now + min(time.monotonic() - last, LONGEST_PAUSE), time.monotonic()
        yield now, decoder.decode(piece)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        sys.exit("the demo failed")


def texts(pieces: Iterator[tuple[float, str]]) -> tuple[list[Shown], list[tuple[float, int]], float]:
    """Return all texts, the first visible row at each time, and the time of the end."""
    screen = pyte.Screen(COLUMNS, HIGHEST)
    stream = pyte.Stream(screen)
    visible: dict[int, tuple[str, float]] = {}
    shown: list[Shown] = []
    scrolls = [(0.0, 0)]
    now = 0.0
    for now, piece in pieces:
        screen.dirty.clear()
        stream.feed(piece)
        for row in sorted(screen.dirty):
            markup = marked_up(screen.buffer[row])
            before, begin = visible.get(row, ("", 0.0))
            if markup != before:
                if before:
                    shown.append(Shown(row, before, begin, now))
                visible[row] = (markup, now)
        if (top := max(0, screen.cursor.y - ROWS + 1)) > scrolls[-1][1]:
            scrolls.append((now, top))
    shown += [Shown(row, markup, begin, None) for row, (markup, begin) in visible.items() if markup]
    return shown, scrolls, now


def marked_up(cells: Any) -> str:
    """Return a row of the terminal as spans, one for each stretch of one style."""
    spans: list[tuple[int, str, str]] = []
    for column in range(COLUMNS):
        cell = cells[column]
        colour = cell.fg if cell.fg.startswith("default") or cell.fg in COLOURS else f"#{cell.fg}"
        style = f'fill="{COLOURS.get(colour, colour)}"' + (' font-weight="bold"' if cell.bold else "")
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0], style, spans[-1][2] + cell.data)
        else:
            spans.append((column, style, cell.data))
    return "".join(
        f'<tspan x="{MARGIN + column * WIDTH:g}" {style}>{escape(text.rstrip())}</tspan>'
        for column, style, text in spans
        if text.strip()
    )


def picture(shown: list[Shown], scrolls: list[tuple[float, int]], end: float) -> str:
    """Return the SVG."""
    length = end + LAST_PAUSE
    width, height = 2 * MARGIN + COLUMNS * WIDTH, BAR + MARGIN + ROWS * HEIGHT
    lines, frames = [], []
    for number, text in enumerate(sorted(shown, key=lambda text: text.begin)):
        y = BAR + (text.row + 1) * HEIGHT
        steps = f"0%{{opacity:0}}{text.begin / length:.4%}{{opacity:1}}"
        if text.end is not None:
            steps += f"{text.end / length:.4%}{{opacity:0}}"
        frames.append(f"@keyframes t{number}{{{steps}}}")
        lines.append(f'<text y="{y}" style="animation-name:t{number}">{text.markup}</text>')
    steps = "".join(f"{at / length:.4%}{{transform:translateY({-top * HEIGHT}px)}}" for at, top in scrolls)
    dots = "".join(
        f'<circle cx="{20 + 20 * number}" cy="17" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        (
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
                f' viewBox="0 0 {width:g} {height:g}">'
            ),
            "<title>Two sessions: one is interrupted and resumed, both are reviewed and merged</title>",
            (
                "<style>text{white-space:pre;"
                'font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}'
            ),
            f"text,#s{{animation:{length:.2f}s step-end infinite}}#s{{animation-name:s}}",
            f"@keyframes s{{{steps}}}",
            *frames,
            "</style>",
            f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{dots}',
            (
                f'<svg y="{BAR}" width="100%" height="{height - BAR - 4:g}"'
                f' viewBox="0 {BAR} {width:g} {height - BAR - 4:g}"><g id="s">'
            ),
            *lines,
            "</g></svg></svg>",
            "",
        )
    )


def main() -> None:
    """Record, draw and write."""
    shown, scrolls, end = texts(record())
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture(shown, scrolls, end), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size / 1000:.0f} KB, {end:.0f} s")  # noqa: T201 -- the answer


if __name__ == "__main__":
    main()

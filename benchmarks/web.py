"""The first paint of the page on 1,000 branches, and of a branch that changes 5 MB, in headless Chromium.

Painted first is what a browser calls the first contentful paint: what can be read by then is said in the
detail, since the first page does not wait for branches that are still being compared.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import Page, sync_playwright
from review import BRANCHES, FILES, make_reviewed
from scenarios import PROGRAM, Repository, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 1.0  # seconds
LIMIT_BIG = 2.0
MEMORY = 150.0  # MiB
_BIG = 250  # files of 20 kB
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"


def measure(directory: Path, files: int | None, repeat: int | None) -> Iterator[Verdict]:
    """Measure the claims, one browser at a time."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("no Chromium is installed: apt-get install chromium")
    size = files or FILES
    repository = make_reviewed(directory / "web", size)
    _add_big(repository)
    first: list[float] = []
    rows: list[float] = []
    again: list[float] = []
    big: list[float] = []
    memory: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(repeat or 5):
            page = browser.new_page()
            with _serving(repository) as (url, pid):
                begun = time.perf_counter()
                first.append(_painted(page, url))
                page.locator("table.branches").wait_for()
                rows.append(time.perf_counter() - begun)
                again.append(_painted(page, page.url))
                big.append(_painted(page, f"{page.url.partition('?')[0]}branch?name=ralph/big"))
                told = subprocess.run(
                    ("ps", "-o", "rss=", "-p", str(pid)), capture_output=True, check=True, text=True
                )
                memory.append(int(told.stdout) / 1024)
            page.close()
        browser.close()
    runs = f"{len(first)} runs, the slowest"
    claim = f"first paint of {BRANCHES:,} branches, {size:,} files"
    compared = f"their rows {statistics.median(rows):.2f} s after the address was opened"
    yield Verdict(
        f"{claim}, at once", statistics.median(first), LIMIT, " s", f"{runs} {max(first):.2f} s, {compared}"
    )
    yield Verdict(f"{claim}, with rows", statistics.median(again), LIMIT, " s", f"{runs} {max(again):.2f} s")
    yield Verdict(
        "first paint of a 5 MB diff", statistics.median(big), LIMIT_BIG, " s", f"{runs} {max(big):.2f} s"
    )
    yield Verdict(
        "memory of the server", statistics.median(memory), MEMORY, " MiB", f"{runs} {max(memory):.0f} MiB"
    )


def _add_big(repository: Repository) -> None:
    rows = [b"commit refs/heads/ralph/big\ncommitter A <a@example.invalid> 1767323045 +0000\ndata 3\nbig\n"]
    rows.append(b"from refs/heads/main^0\n")
    for number in range(_BIG):
        content = b"".join(b"def line_%d() -> int: return %d\n" % (line, number) for line in range(600))
        rows.append(b"M 100644 inline big/%03d.py\ndata %d\n%s\n" % (number, len(content), content))
    repository.git("fast-import", "--quiet", stdin=b"".join(rows))


def _painted(page: Page, url: str) -> float:
    """Return the seconds until something was painted; a page may come again by itself meanwhile."""
    page.goto(url)
    while not (told := page.evaluate(_PAINTED)):
        page.wait_for_timeout(20)
    return float(told[0]) / 1000


@contextmanager
def _serving(repository: Repository) -> Iterator[tuple[str, int]]:
    process = subprocess.Popen(
        (PROGRAM, "web", "--read-only"), cwd=repository.path, env=repository.environ, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip(), process.pid
    finally:
        process.terminate()
        with process:
            pass

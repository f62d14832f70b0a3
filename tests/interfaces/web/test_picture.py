"""The picture of the web page in README, taken in a real browser."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, expect

from tests.interfaces.web.serving import serving
from tests.support.sessions import run

if TYPE_CHECKING:
    from tests.support.repo import Repo

pytestmark = pytest.mark.browser

README_PICTURE = Path(__file__).parents[3] / "docs" / "assets" / "web.png"
IS_KEPT = os.environ.get("PICTURE") == "1"
"""Whether README gets the picture: `make picture` asks for it."""

WINDOW = (1280, 724)
HEADER = 56  # pixels; it has the path of this test

WORK = {
    "Add a login page": ("login.py", "A form for name and password", "true"),
    "Store passwords as hashes": ("login.py", "Passwords are hashed with a salt", "true"),
    "Send mail in the background": ("mail.py", "A queue for mail", "echo draft >notes.txt"),
}
"""The sessions by title, with the file and the subject of a commit, and a command that commits nothing."""


def test_the_page_shows_three_sessions(repo: Repo, chromium: Browser, tmp_path: Path) -> None:
    """With their titles, a conflict and saved work; the picture has the size of the one in README."""
    repo.write("agent.sh", '#!/bin/sh\neval "$(cat)"\n', executable=True)
    repo.commit("An agent")
    for title, (name, subject, more) in WORK.items():
        prompt = f"echo '# {title}' >{name}; git add .; git commit -qm '{subject}'; {more}"
        assert run(repo.path, "--name", title, "-n", "1", "-p", prompt, "--", "./agent.sh").status == 0
    page = chromium.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
    with serving(repo.path) as served:
        page.goto(served.url)
        for title in WORK:
            expect(page.get_by_role("row", name=title)).to_be_visible()
        page.get_by_role("img", name="Conflicts between branches").wait_for()
        taken = tmp_path / "web.png"
        page.screenshot(
            path=taken, clip={"x": 0, "y": HEADER, "width": WINDOW[0], "height": WINDOW[1] - HEADER}
        )
    page.close()
    if IS_KEPT:
        shutil.copy(taken, README_PICTURE)
    assert _size(taken) == _size(README_PICTURE)


def _size(picture: Path) -> tuple[int, int]:
    """Return width and height, as the header of a PNG has them."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height

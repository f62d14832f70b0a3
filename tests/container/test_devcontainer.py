"""The feature for development containers installs ralph-wrap into an image that has none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.container.box import PROJECT

if TYPE_CHECKING:
    from tests.container.box import StartBox
    from tests.support.repo import Repo

EXAMPLE = Path(__file__).parents[2] / "docker" / "devcontainer"
SOURCE = "/usr/src/ralph-wrap"  # in the image, which has the wheels that it was made of, too

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]  # it may be the first to build the image


def test_the_feature_installs_for_every_user(repo: Repo, start_box: StartBox) -> None:
    """Without a network, from a directory: what a release has comes from an index by the same words."""
    shutil.copytree(EXAMPLE, repo.path / ".devcontainer")
    feature = json.loads((EXAMPLE / "ralph-wrap/devcontainer-feature.json").read_text())
    assert feature["options"]["source"]["default"] == "ralph-wrap"
    box = start_box(repo.path)
    assert box.run("rm", "/usr/local/bin/ralph-wrap").status == 0
    installed = box.run(
        "sh",
        f"{PROJECT}/.devcontainer/ralph-wrap/install.sh",
        env={"SOURCE": SOURCE, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{SOURCE}/docker/wheels"},
    )
    assert installed.status == 0, installed.stderr
    program = box.run("readlink", "-f", "/usr/local/bin/ralph-wrap").stdout
    assert program == "/usr/local/lib/ralph-wrap/bin/ralph-wrap\n"
    shown = box.run("ralph-wrap", "--version", user="1000:1000")
    assert (shown.status, shown.stdout) == (0, f"ralph-wrap {feature['version']}\n")
    assert box.run("sh", "-c", feature["postStartCommand"]).status == 0

"""The images of a cluster, as files for containerd: ralph-wrap with the agent of the tests, and a pause."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.container import image as ralph_image
from tests.kubernetes import needs

if TYPE_CHECKING:
    import docker

AGENT = Path(__file__).with_name("agent.sh")
PAUSE = "ralph-wrap-pause:1"
FLEET = "ralph-wrap-fleet:test"


def write(engine: docker.DockerClient, directory: Path) -> list[Path]:
    """Build the images, write each of them to a file in *directory*, and return the files."""
    recipe = f"FROM {ralph_image.ensure(engine)}\nCOPY agent /usr/local/bin/numbered-lines\n"
    context = {"Dockerfile": recipe.encode(), "agent": AGENT.read_bytes()}
    engine.images.build(fileobj=_tar(context), custom_context=True, tag=FLEET, rm=True, forcerm=True)
    pause = {"pause": (needs.directory() / "pause").read_bytes()}
    repository, _, tag = PAUSE.partition(":")
    engine.api.import_image_from_data(
        _tar(pause).getvalue(), repository=repository, tag=tag, changes=['ENTRYPOINT ["/pause"]']
    )
    return [_save(engine, name, directory) for name in (PAUSE, FLEET)]


def _tar(files: dict[str, bytes]) -> io.BytesIO:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    content.seek(0)
    return content


def _save(engine: docker.DockerClient, name: str, directory: Path) -> Path:
    path = directory / f"{name.partition(':')[0]}.tar"
    with path.open("wb") as file:
        for chunk in engine.images.get(name).save(named=name):
            file.write(chunk)
    return path

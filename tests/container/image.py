"""The ralph-wrap image under test, built from `docker/Dockerfile` once for each state of the sources.

The dependencies are fetched here and not in the build: a container does not reach a package registry from
everywhere that the tests run. The build is the one that a user without a network does.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

from tests.container import base_image

ROOT = Path(__file__).parents[2]
SOURCES = (
    "LICENSE",
    "README.md",
    "docker/Dockerfile",
    "docker/wheels",
    "pyproject.toml",
    "ralph_wrap",
)
REPOSITORY = "ralph-wrap-test"
PLATFORMS = {"amd64": "manylinux2014_x86_64", "arm64": "manylinux2014_aarch64"}


class NoEngineError(Exception):
    """No Docker engine answers; the message says where and why."""


def connect() -> docker.DockerClient:
    """Return a client of the Docker engine that `DOCKER_HOST` names, by default the one on its usual socket.

    Raises NoEngineError if none answers there.
    """
    try:
        return docker.from_env()
    except DockerException as error:
        cause: BaseException = error
        while cause.__context__ is not None:  # the reason is below what the libraries make of it
            cause = cause.__context__
        address = os.environ.get("DOCKER_HOST", "its usual socket")
        raise NoEngineError(f"no Docker engine answers on {address}: {cause}") from error


def ensure(engine: docker.DockerClient) -> str:
    """Return the name of the image for the sources as they stand, building it if the engine has none.

    One process of this user at a time builds; the others wait and find it.
    Raises base_image.BaseImageError without a base image, docker.errors.BuildError if the build fails.
    """
    with _locked(Path(tempfile.gettempdir()) / f"{REPOSITORY}-{os.getuid()}.lock"):
        base = base_image.ensure(engine)
        name = f"{REPOSITORY}:{_digest(str(engine.images.get(base).id))}"
        try:
            engine.images.get(name)
        except ImageNotFound:
            _build(engine, base, name)
            _remove_older(engine, name)
        return name


def _build(engine: docker.DockerClient, base: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        context = Path(directory)
        for path in _files():
            copy = context / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, copy)
        _fetch_wheels(engine, base, context / "docker" / "wheels")
        engine.images.build(
            path=directory,
            dockerfile="docker/Dockerfile",
            buildargs={"BASE_IMAGE": base, "PIP_NO_INDEX": "1"},
            tag=name,
            rm=True,
            forcerm=True,
        )


def _fetch_wheels(engine: docker.DockerClient, base: str, directory: Path) -> None:
    """Download what the image needs to build and run ralph-wrap, for the Python and processor of the base."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    report = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = engine.containers.run(base, ["python3", "-c", report], network_mode="none", remove=True)
    platform = PLATFORMS[str(engine.images.get(base).attrs["Architecture"])]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(directory)]
        + ["--only-binary=:all:", "--platform", platform, "--python-version", version.decode().strip()]
        + project["build-system"]["requires"]
        + project["project"]["dependencies"],
        stdout=sys.stderr,
        timeout=300,
        check=True,
    )


def _files() -> list[Path]:
    """Return the files that go into the build, relative to the repository, always in one order."""
    found: list[Path] = []
    for source in (ROOT / name for name in SOURCES):
        found += [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
    return sorted(path.relative_to(ROOT) for path in found if path.suffix not in {".pyc", ".whl"})


def _digest(base_id: str) -> str:
    digest = hashlib.sha256(base_id.encode())
    for path in _files():
        content = (ROOT / path).read_bytes()
        digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _remove_older(engine: docker.DockerClient, name: str) -> None:
    """Remove the images of earlier states of the sources, except those that containers use."""
    for image in engine.images.list(name=REPOSITORY):
        for tag in image.tags:
            if tag != name:
                try:
                    engine.images.remove(tag)
                except DockerException:  # in use
                    continue


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

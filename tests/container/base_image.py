"""The base image of the container tests: the registry's Python image, or one made of Debian's packages.

1. the image that `docker/Dockerfile` names, if the engine has it
2. a Debian made earlier by this module, found by the hash of its recipe
3. the image that `docker/Dockerfile` names, pulled
4. a Debian made now: `mmdebstrap`, from the archive that this machine's own apt uses, then `docker import`

The local ones come first, so that a run without a network asks for it at most once.
"""

import hashlib
import json
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

DOCKERFILE = Path(__file__).parents[2] / "docker" / "Dockerfile"

PACKAGES = ("ca-certificates", "git", "python3", "python3-venv")
BOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    f"--include={','.join(PACKAGES)}",
    '--aptopt=APT::Install-Recommends "false"',
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=Acquire::Retries "3"',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
)
CHANGES = ["ENV LANG=C.UTF-8", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]

PULL_SECONDS = 20  # without an answer for this time there is no registry
BOOTSTRAP_SECONDS = 600  # 40 seconds with a near mirror


class BaseImageError(Exception):
    """Neither a registry nor Debian's packages gave a base image; the message says what was missing."""


def ensure(engine: docker.DockerClient) -> str:
    """Return the name of a base image that the engine has, fetching or making it if need be.

    Raises BaseImageError if there is no way to have one. Not safe to call twice at once.
    """
    registry_image = default_base()
    if _present(engine, registry_image):
        return registry_image
    sources = debian_sources()
    debian_image = _debian_name(sources)
    if debian_image and _present(engine, debian_image):
        return debian_image
    if _pulled(registry_image):
        return registry_image
    if not debian_image:
        raise BaseImageError(f"{registry_image} cannot be pulled, and apt knows no Debian archive here")
    _import_debian(engine, debian_image, sources)
    return debian_image


def default_base() -> str:
    """Return the base image that `docker/Dockerfile` is built on by default."""
    found = re.search(r"^ARG BASE_IMAGE=(\S+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise BaseImageError(f"{DOCKERFILE} has no ARG BASE_IMAGE")
    return found[1]


def _present(engine: docker.DockerClient, name: str) -> bool:
    try:
        engine.images.get(name)
    except ImageNotFound:
        return False
    return True


def _pulled(name: str) -> bool:
    client = docker.from_env(timeout=PULL_SECONDS)
    try:
        client.images.pull(name)
    except (DockerException, OSError):  # OSError: requests' own errors, a time-out among them
        return False
    finally:
        client.close()
    return True


def debian_sources() -> list[str]:
    """Return the `deb` lines of the Debian release that this machine runs, from its own apt configuration."""
    if shutil.which("apt-get") is None:
        return []
    columns = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    targets = _output(
        "apt-get", "indextargets", "--format", columns, "Created-By: Packages", "Origin: Debian"
    )
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    return sorted({f"deb {line}" for line in targets.splitlines() if line.split()[1] in suites})


def _debian_name(sources: list[str]) -> str | None:
    """Return the image name for these sources: a hash of everything that decides what is in the image."""
    if not sources:
        return None
    recipe = json.dumps([BOOTSTRAP, CHANGES, sources])
    return f"ralph-wrap-base:{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"


def _import_debian(engine: docker.DockerClient, name: str, sources: list[str]) -> None:
    suite = min((line.split()[2] for line in sources), key=len)  # bookworm, not bookworm-security
    _import(engine, name, BOOTSTRAP, suite, sources, BOOTSTRAP_SECONDS)


def ensure_suite(
    engine: docker.DockerClient,
    repository: str,
    bootstrap: Sequence[str],
    suite: str,
    seconds: int = BOOTSTRAP_SECONDS,
) -> str:
    """Return the name of an image of a Debian suite, making it if the engine has none from this recipe.

    Arguments:
        engine: of Docker.
        repository: the name of the image without its tag.
        bootstrap: mmdebstrap with its options.
        suite: of Debian.
        seconds: how long mmdebstrap may take.

    Raises:
        BaseImageError: Debian's packages cannot be had, or mmdebstrap is missing.

    """
    sources = [_deb_line(suite)]
    recipe = json.dumps([bootstrap, CHANGES, sources])
    name = f"{repository}:{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if not _present(engine, name):
        _import(engine, name, bootstrap, suite, sources, seconds)
    return name


def _deb_line(suite: str) -> str:
    """Return the `deb` line of a suite, from the archive that has this machine's own."""
    own = [line.split() for line in debian_sources() if line.endswith(" main")]
    if not own:
        raise BaseImageError("apt knows no Debian archive here")
    _, uri, *_ = min(own, key=lambda words: len(words[2]))  # bookworm, not bookworm-security
    return f"deb {uri} {suite} main"


def _import(
    engine: docker.DockerClient,
    name: str,
    bootstrap: Sequence[str],
    suite: str,
    sources: Sequence[str],
    seconds: int,
) -> None:
    if shutil.which("mmdebstrap") is None:
        raise BaseImageError("mmdebstrap is not installed, which would make a Debian")
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "rootfs.tar"  # a file: half a tree is never imported
        try:
            made = subprocess.run(
                [*bootstrap, *apt_transport(), suite, str(tree), "-"],
                input="\n".join(sources),
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BaseImageError(f"mmdebstrap made no {suite} in {seconds} s") from None
        if made.returncode != 0:
            raise BaseImageError(f"mmdebstrap failed with {made.returncode}: {made.stderr.strip()[-2000:]}")
        repository, _, tag = name.partition(":")
        engine.api.import_image_from_file(str(tree), repository=repository, tag=tag, changes=CHANGES)
    engine.images.get(name)


def apt_transport() -> list[str]:
    """Return this machine's ways to its archive (proxies, certificates, no validity dates) as options."""
    ways = re.compile(r"Acquire::(Check-Date|Check-Valid-Until|https?::(Proxy|CAInfo)\b).*")
    return [f"--aptopt={line}" for line in _output("apt-config", "dump").splitlines() if ways.match(line)]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

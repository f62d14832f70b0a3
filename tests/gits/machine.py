"""The machine of a row: a Debian without a git of its own, and Python packages for the tests.

The git of the row is mounted at ``/opt/git``, and is the only one there. So no test can run another one.
Both the Debian and the packages come from where this machine has its own; a container needs no network.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import docker

from tests.container.base_image import ensure_suite

ROOT = Path(__file__).parents[2]
PYTHONS = {"3.11": "bookworm", "3.13": "trixie"}
"""The Debian suite whose Python this is."""

_REPOSITORY = "ralph-wrap-gits"
_PROGRAMS = ("git", "git-receive-pack", "git-shell", "git-upload-archive", "git-upload-pack")
_PACKAGES = (
    "bubblewrap",
    "ca-certificates",
    "git",  # for the libraries that it needs
    "git-lfs",
    "iproute2",
    "locales",
    "openssh-client",
    "openssh-server",
    "procps",
    "python3",
    "python3-venv",
    "tmux",
)
_BOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    f"--include={','.join(_PACKAGES)}",
    '--aptopt=APT::Install-Recommends "false"',
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=Acquire::Retries "3"',
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    '--customize-hook=chroot "$1" dpkg --force-depends --purge git git-man',
    *(f'--customize-hook=ln -s /opt/git/bin/{program} "$1/usr/bin/{program}"' for program in _PROGRAMS),
)


def ensure_image(engine: docker.DockerClient, python: str) -> str:
    """Return the name of the image with a Python, making it if the engine has none.

    Raises:
        BaseImageError: Debian's packages cannot be had.

    """
    return ensure_suite(engine, _REPOSITORY, _BOOTSTRAP, PYTHONS[python])


def ensure_packages(directory: Path, python: str) -> Path:
    """Return a directory with the packages that the tests need, for a Python, downloading them if need be.

    Arguments:
        directory: it is made in this one.
        python: two numbers, for example ``3.11``.

    Raises:
        subprocess.CalledProcessError: pip cannot download a package.

    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["dependency-groups"]["test"], *project["project"]["dependencies"]]
    wanted += [*project["build-system"]["requires"], "editables", "pip>=25.1"]
    key = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:16]
    packages = directory / f"packages-{python}-{key}"
    if not packages.is_dir():
        new = Path(tempfile.mkdtemp(dir=directory, prefix=".packages."))
        download = ("pip", "download", "--quiet", "--only-binary=:all:", "--python-version", python)
        subprocess.run([sys.executable, "-m", *download, "--dest", str(new), *wanted], check=True)
        new.chmod(0o755)
        new.rename(packages)
    return packages

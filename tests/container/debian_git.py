"""The git of a Debian suite, in an image that holds it and what it needs, and nothing else: not even a shell.

Packages are unpacked and not configured, from the archive that this machine's own apt uses. An image is made
once for each recipe.
"""

import os
import sys
import tempfile
from pathlib import Path

import docker

from tests.container.base_image import ensure_suite

ROOT = Path(__file__).parents[2]
REPOSITORY = "ralph-wrap-git"
BOOTSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=extract",
    "--include=base-files,git",  # base-files: the symlinks of a merged /usr
    '--aptopt=APT::Install-Recommends "false"',
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=Acquire::Retries "3"',
)
BOOTSTRAP_SECONDS = 100  # 10 with a near mirror

FOREVER = ("perl", "-e", "sleep")  # git needs perl, so it is there

TO_FILES = 'open(STDOUT, ">", shift) && open(STDERR, ">", shift) && exec { $ARGV[0] } @ARGV; die'
"""Runs a command, and writes what it prints to two files: the engine loses the output of some short commands,
see https://github.com/moby/moby/issues/27289.
"""

SHIM = """\
#!{python}
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.container.debian_git import run
status, stdout, stderr = run({container!r}, Path.cwd(), Path({directory!r}), *sys.argv[1:])
os.write(1, stdout)
os.write(2, stderr)
sys.exit(status)
"""


def ensure(engine: docker.DockerClient, suite: str) -> str:
    """Return the name of the image with a suite's git, making it if the engine has none.

    Raises BaseImageError if Debian's packages cannot be had.
    """
    return ensure_suite(engine, REPOSITORY, BOOTSTRAP, suite, BOOTSTRAP_SECONDS)


def run(container: str, cwd: Path, scratch: Path, *arguments: str) -> tuple[int, bytes, bytes]:
    """Run git in a container that has the same directories, and return status, output and errors.

    Arguments:
        container: its id.
        cwd: where git runs.
        scratch: a directory of this test, which the container has, too.
        arguments: for git.

    """
    engine = docker.from_env()
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        files = [Path(directory, name) for name in ("stdout", "stderr")]
        try:
            ended = engine.containers.get(container).exec_run(
                ["perl", "-e", TO_FILES, *map(str, files), "git", *arguments],
                workdir=str(cwd),
                environment={
                    key: value for key, value in os.environ.items() if key.startswith(("GIT_", "HOME"))
                },
                user=f"{os.getuid()}:{os.getgid()}",
            )
        finally:
            engine.close()
        stdout, stderr = (file.read_bytes() for file in files)
    assert ended.exit_code is not None
    return ended.exit_code, stdout, stderr


def shim(directory: Path, container: str) -> str:
    """Make a `git` that runs the one in a container, and return a PATH that finds it."""
    directory.mkdir()
    program = directory / "git"
    program.write_text(
        SHIM.format(python=sys.executable, root=str(ROOT), container=container, directory=str(directory)),
        encoding="utf-8",
    )
    program.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"

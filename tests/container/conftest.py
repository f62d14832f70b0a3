"""The Docker engine, the image under test, and containers that are gone after the test that started them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import NotFound
from docker.models.containers import Container

from tests.container import image as ralph_image
from tests.container.box import PROJECT, Box, StartBox
from tests.support.needs import skip_or_fail

pytest.register_assert_rewrite("tests.container.workers")  # else what it compares is not shown


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """Return a client of the Docker engine. Without one tests are skipped, or fail with REQUIRE_DOCKER=1."""
    try:
        client = ralph_image.connect()
    except ralph_image.NoEngineError as error:
        skip_or_fail(str(error), "REQUIRE_DOCKER")
    yield client
    client.close()


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient) -> str:
    """Return the name of the ralph-wrap image for the sources as they stand."""
    return ralph_image.ensure(engine)


@pytest.fixture
def start_box(engine: docker.DockerClient, image: str) -> Iterator[StartBox]:
    """Return a function that starts containers, all of which are removed after the test."""
    with ExitStack() as stack:

        def start(
            project: Path,
            *command: str,
            mode: str = "rw",
            user: str = "",
            init: bool = False,
            entrypoint: str | None = None,
            memory: str | None = None,
            env: dict[str, str] | None = None,
            mounts: Mapping[Path, str] | None = None,
            **options: Any,
        ) -> Box:
            container = engine.containers.create(
                image,
                list(command) or None,
                entrypoint=entrypoint,
                init=init,
                volumes={
                    str(project): {"bind": PROJECT, "mode": mode},
                    **{str(path): {"bind": at, "mode": "rw"} for path, at in (mounts or {}).items()},
                },
                user=user,
                environment=env or {},
                mem_limit=memory,
                memswap_limit=memory,
                network_mode="none",
                labels=["ralph-wrap-test"],
                **options,
            )
            stack.callback(_remove, container)
            container.start()
            return Box(engine, container, project)

        yield start


def _remove(container: Container) -> None:
    with suppress(NotFound):  # the test has
        container.remove(force=True, v=True)

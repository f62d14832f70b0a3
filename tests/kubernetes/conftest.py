"""One cluster and one git server for the run; a remote for each test."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.container import image as ralph_image
from tests.kubernetes import images, needs
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.failure_output import describe_pods, describe_pushes
from tests.kubernetes.gate import Gate
from tests.kubernetes.remote import GitServer, Remote

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the cluster, before ``-m`` selects."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.kubernetes)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add pods, logs and pushes to the report of a test that fails: its teardown deletes them."""
    report = yield
    found = item.funcargs if isinstance(item, pytest.Function) else {}
    cluster, remote = found.get("cluster"), found.get("remote")
    if report.failed and call.when == "call" and isinstance(cluster, Cluster):
        report.sections.append(("Jobs, pods and events", describe_pods(cluster.control)))
        for name, content in cluster.pod_logs.since(call.start):
            report.sections.append((f"log of {name}", content))
        if isinstance(remote, Remote):
            report.sections.append(("pushes", describe_pushes(remote)))
    return report


def _require(missing: str) -> None:
    """Skip the tests for what is missing, or let them fail with REQUIRE_FLEET=1."""
    if missing and os.environ.get("REQUIRE_FLEET") == "1":
        pytest.fail(missing, pytrace=False)
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    """Find the programs, before a test has a HOME of its own."""
    _require(needs.missing())


@pytest.fixture(scope="session")
def image_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the images as files, which a Docker engine builds."""
    try:
        engine = ralph_image.connect()
    except ralph_image.NoEngineError as error:
        _require(str(error))
        raise
    with closing(engine):
        return images.write(engine, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def cluster(image_files: list[Path]) -> Iterator[Cluster]:
    """Yield a cluster of two nodes that have the images."""
    with Cluster(image_files) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def git_server(cluster: Cluster) -> GitServer:
    """Return the git server that the pods reach."""
    return GitServer(cluster.hub)


@pytest.fixture
def remote(git_server: GitServer, request: pytest.FixtureRequest) -> Remote:
    """Return an empty repository on the git server, with a name from that of the test."""
    return Remote(git_server.root, request.node.name.translate(str.maketrans("[]", "--")))


@pytest.fixture
def gate(cluster: Cluster) -> Iterator[Gate]:
    """Yield the gate at which agents wait; it is closed."""
    gate = Gate(cluster.hub)
    yield gate
    gate.close()

"""Clusters of real processes for the scenarios."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Everything started, one node `n1` with a simulated engine; shared by the tests of a module."""
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.start_all()
        yield started
    finally:
        started.close()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster where nothing is started yet, for one test alone."""
    made = Cluster(tmp_path / "cluster")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A `file://` source: the simulated engine only looks whether the file is there."""
    path = tmp_path_factory.mktemp("weights") / "tiny.gguf"
    path.write_bytes(b"GGUF" + bytes(1020))
    return path.as_uri()


@pytest.fixture
def a_model(weights: str, request: pytest.FixtureRequest) -> Any:
    """Build a catalog document of a model; extra arguments go to the simulated engine."""

    def build(name: str, *arguments: str, **more: Any) -> dict[str, Any]:
        profile = {"name": "cpu", "engine": "llamacpp", "device_classes": ["cpu"], "arguments": list(arguments)}
        return {"name": name, "source": weights, "profiles": [profile]} | more

    return build

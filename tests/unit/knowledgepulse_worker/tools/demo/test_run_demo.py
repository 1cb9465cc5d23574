"""The demo's settings are the user's, and its traces follow the converters' rules."""

import asyncio
import json
import os
import tomllib
from dataclasses import replace
from functools import partial
from importlib.resources import files

import pytest
from click.testing import CliRunner

from knowledgepulse_worker.cli.entry import main
from knowledgepulse_worker.embedding import load_embedder
from knowledgepulse_worker.errors import WorkerError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import Settings, render, settings_from
from knowledgepulse_worker.tools.demo import run_demo
from knowledgepulse_worker.tools.demo.brokers import Broker
from knowledgepulse_worker.tools.demo.run_demo import (
    PARTITIONS,
    SHARE,
    demo_settings,
    worker_environment,
)
from knowledgepulse_worker.tools.score.offline import Partitions, make_scorer

BROKER = Broker("localhost:9092", "configured", "a test's")


@pytest.fixture
def documents():
    lines = files("knowledgepulse_worker.tools.demo").joinpath("real_traces.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def labels():
    lines = (
        files("knowledgepulse_worker.tools.demo")
        .joinpath("real_traces.labels.jsonl")
        .read_bytes()
        .splitlines()
    )
    return {label["id"]: label for label in map(json.loads, lines)}


@pytest.mark.parametrize("backend", ["none", "lexical"])
@pytest.mark.parametrize("partitions", [1, PARTITIONS, 8])
def test_about_a_fifth_of_the_demo_passes_whatever_the_partitions_and_the_backend(
    documents, backend, partitions
):
    settings = demo_settings(BROKER, backend)
    embedder = load_embedder(settings.embedding, settings.cache)
    topic = Partitions(partitions, "id", partial(make_scorer, settings, embedder))

    scores = [topic.score(json.dumps(document).encode(), settings, backend).score for document in documents]

    assert settings.policy == Policy(share=SHARE)
    assert 0.1 < sum(score.passes for score in scores) / len(scores) < 0.22


@pytest.mark.parametrize("rule", [{"threshold": 0.3}, {"threshold": 0.75}, {"share": 0.5}])
def test_a_rule_of_the_users_remains(monkeypatch, rule):
    ((name, value),) = rule.items()
    monkeypatch.setenv(f"KP_POLICY__{name.upper()}", str(value))

    assert demo_settings(BROKER).policy == Policy(**rule)


def test_a_backend_can_be_chosen(monkeypatch):
    """It reads the text that goes with it, unless the user has set one."""
    assert demo_settings(BROKER).embedding == Settings().embedding

    chosen = demo_settings(BROKER, "lexical").embedding

    assert (chosen.backend, chosen.trace_text) == ("lexical", "parts")
    monkeypatch.setenv("KP_EMBEDDING__BACKEND", "lexical")
    assert demo_settings(BROKER).embedding.backend == "lexical"
    assert demo_settings(BROKER, "none").embedding.backend == "none"


def test_the_command_takes_the_backends_of_the_settings(monkeypatch):
    shown = []
    monkeypatch.setattr(run_demo, "show", lambda console, backend, *, stay: shown.append(backend))
    # In its group: click keeps the options of help that a command has where it runs first.
    run = partial(CliRunner().invoke, main)

    assert run(["demo", "--no-stay"]).exit_code == 0
    assert run(["demo", "--no-stay", "--backend", "lexical"]).exit_code == 0
    refused = run(["demo", "--no-stay", "--backend", "words"])

    assert shown == [None, "lexical"]
    assert (refused.exit_code, "'sentence-transformers', 'lexical', 'none'" in refused.stderr) == (2, True)
    assert "--backend [sentence-transformers|lexical|none]" in run(["demo", "--help"]).stdout


@pytest.mark.parametrize("prefix", ["KP_", "kp_"])
def test_the_workers_settings_are_the_demos_whatever_the_environment_says(monkeypatch, prefix):
    """Its worker would join the group of the user's, or serve another port than the one that is watched."""
    monkeypatch.setenv(f"{prefix}KAFKA__GROUP", "production")
    monkeypatch.setenv(f"{prefix}KAFKA__BOOTSTRAP_SERVERS", "production:9092")
    monkeypatch.setenv(f"{prefix}TOPICS", '{"raw": "production"}')
    monkeypatch.setenv(f"{prefix}WEB__PORT", "6066")
    monkeypatch.setenv("HTTPS_PROXY", "a-proxy")
    settings = demo_settings(BROKER)

    environment = worker_environment(settings)

    assert environment["HTTPS_PROXY"] == "a-proxy"
    for name in [name for name in os.environ if name not in environment]:
        monkeypatch.delenv(name)
    assert settings_from(tomllib.loads(render(settings))) == settings


def test_a_secret_reaches_the_worker(monkeypatch):
    """No file has it."""
    login = {"security_protocol": "SASL_SSL", "sasl_username": "me", "sasl_password": "a-secret"}
    monkeypatch.setenv("KP_KAFKA", json.dumps({**login, "sasl_mechanism": "PLAIN"}))
    settings = demo_settings(BROKER)

    environment = worker_environment(settings)

    monkeypatch.delenv("KP_KAFKA")
    for name in environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, environment[name])
    assert settings_from(tomllib.loads(render(settings))) == settings


def test_a_broker_of_the_demos_own_needs_no_login_of_the_users(monkeypatch):
    monkeypatch.setenv("KP_KAFKA__SECURITY_PROTOCOL", "SSL")

    assert demo_settings(BROKER).kafka.security_protocol == "SSL"
    assert demo_settings(replace(BROKER, kind="started")).kafka.security_protocol == "PLAINTEXT"


def test_each_trace_has_its_runs_reward_as_label(documents, labels):
    assert [document["id"] for document in documents] == list(labels)
    assert all(
        document["metadata"]["success"] == (labels[document["id"]]["reward"] >= 1) for document in documents
    )


@pytest.mark.parametrize(("seconds", "number"), [(None, 2), (0.03, 2), (0.04, 1)])
async def test_traces_do_not_wait_for_each_other_where_a_text_takes_a_large_part_of_the_budget(
    seconds, number
):
    class Worker:
        async def status(self):
            return {"worker": {"embedding_pass_seconds": seconds}}

    assert await run_demo._at_a_time(Worker(), 0.1) == number


async def test_the_demo_ends_with_the_broker_that_it_started():
    """Its clients said "Unable connect" without end."""
    cancelled = asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with asyncio.timeout(60):
        with pytest.raises(WorkerError, match="the broker has ended, and the demo with it: a test's"):
            await run_demo._while_running(replace(BROKER, is_running=lambda: False), work())
    assert cancelled.is_set()


async def test_an_error_of_the_demo_is_not_the_brokers():
    async def work():
        raise WorkerError("no outputs")

    with pytest.raises(WorkerError, match="no outputs"):
        await run_demo._while_running(BROKER, work())

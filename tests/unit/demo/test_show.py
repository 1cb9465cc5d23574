"""The demo's settings are the user's, and its traces follow the converters' rules."""

import json
from importlib.resources import files

import pytest

from worker.demo.brokers import Broker
from worker.demo.show import THRESHOLD, demo_settings

BROKER = Broker("localhost:9092", "configured", "a test's")


@pytest.fixture
def documents():
    lines = files("worker.demo").joinpath("real_traces.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def labels():
    lines = files("worker.demo").joinpath("real_traces.labels.jsonl").read_bytes().splitlines()
    return {label["id"]: label for label in map(json.loads, lines)}


def test_the_demo_has_a_threshold_that_some_of_its_traces_reach():
    assert demo_settings(BROKER).policy.threshold == THRESHOLD


@pytest.mark.parametrize("threshold", [0.3, 0.75])
def test_a_threshold_of_the_users_remains(monkeypatch, threshold):
    monkeypatch.setenv("KP_POLICY__THRESHOLD", str(threshold))

    assert demo_settings(BROKER).policy.threshold == threshold


def test_no_confidence_is_derived_from_success(documents):
    outcomes = {
        (
            one["outcome"]["confidence"],
            one["metadata"]["confidence_source"],
            one["metadata"]["outcome_source"],
        )
        for one in documents
    }
    assert outcomes == {(0.5, "default", "label")}
    assert {one["metadata"]["success"] for one in documents} == {True, False}


def test_each_trace_has_its_runs_reward_as_label(documents, labels):
    assert [one["id"] for one in documents] == list(labels)
    assert all(one["metadata"]["success"] == (labels[one["id"]]["reward"] >= 1) for one in documents)

"""The files under ``deploy/`` and at the root, parsed in the same way as by their tools."""

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from knowledgepulse_kafka.wait import Wait
from knowledgepulse_worker.cli.entry import main
from knowledgepulse_worker.observe.metrics import Metrics
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.settings import ENV_PREFIX, Settings, load_settings
from support.commands import command
from support.tool_metrics import TOOL_METRICS

ROOT = Path(__file__).parents[3]

Instructions = list[tuple[str, str]]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """As it is where none of its variables is set."""
    text = (ROOT / "docker-compose.yml").read_text()
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


@pytest.fixture(scope="session")
def dockerfile() -> Instructions:
    """Return the instructions and their arguments: lines joined, the base image filled in, no comments."""
    text = (ROOT / "deploy/Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)", text, flags=re.MULTILINE)
    text = text.replace("${PYTHON_IMAGE}", base)
    return re.findall(r"^([A-Z]+)\s+(.+)$", text, flags=re.MULTILINE)


@pytest.fixture(scope="session")
def final_stage(dockerfile: Instructions) -> Instructions:
    """Return the instructions of the final stage."""
    start = max(number for number, (instruction, _) in enumerate(dockerfile) if instruction == "FROM")
    return dockerfile[start:]


@pytest.fixture(scope="session")
def host_path(compose: dict[str, Any]) -> Callable[[str, str], Path]:
    """Return a function that maps a path in a service's container to the host."""

    def resolve(service: str, path: str) -> Path:
        for volume in compose["services"][service]["volumes"]:
            source, target, *_ = volume.split(":")
            if path == target or path.startswith(f"{target}/"):
                return (ROOT / source / path[len(target) :].lstrip("/")).resolve()
        pytest.fail(f"no volume of {service} brings {path}")

    return resolve


@pytest.fixture(scope="session")
def labels_of() -> dict[str, set[str]]:
    """Return the labels of each series that a worker exposes, by name."""
    metrics = Metrics(Policy(share=0.1), budget=0.1, group="workers")
    metrics.stream.set_build_info("version", "model", "precision", "device")
    metrics.policy.set_shadow(Policy())
    partition_gauges = (
        metrics.stream.lag,
        metrics.stream.held_back,
        metrics.lanes.cache_size,
        metrics.stream.recovering,
    )
    for of_a_partition in (*partition_gauges, metrics.lanes.committed):
        of_a_partition(0, 0)
    metrics.embedding.letters("default", 1, 0)
    metrics.policy.share_thresholds([{"default": 0.5}])
    metrics.policy.promised({"default": True, "of another policy": False})
    metrics.stream.waiting({Wait("Produce", "contribute/0", error="NOT_ENOUGH_REPLICAS (19)"): 0.0})
    _, page = metrics.render("", content=False)
    return _labels_on(page)


@pytest.fixture(scope="session")
def span_labels_of() -> dict[str, set[str]]:
    """Return the labels of each series of the commands for spans, by name."""
    labels: dict[str, set[str]] = {}
    for make in TOOL_METRICS.values():
        labels |= _labels_on(make(None, "workers").render()[1])
    return labels


def _labels_on(page: bytes) -> dict[str, set[str]]:
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


@pytest.fixture(scope="session")
def dashboard() -> dict[str, Any]:
    return json.loads((ROOT / "deploy/grafana/dashboards/worker.json").read_bytes())


@pytest.fixture(scope="session")
def datasource(host_path: Callable[[str, str], Path]) -> dict[str, Any]:
    """Return the only provisioned datasource."""
    path = host_path("grafana", "/etc/grafana/provisioning/datasources/prometheus.yml")
    (datasource,) = yaml.safe_load(path.read_bytes())["datasources"]
    return datasource


@pytest.fixture(scope="session")
def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels, without the row titles."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="session")
def commands() -> set[str]:
    """Return the subcommands of `kp-worker`."""
    return set(main.commands)


@pytest.fixture
def parse_command(
    host_path: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str]], None]:
    """Return a function that parses a container's arguments without running the command."""

    def parse(arguments: list[str]) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        name, *rest = (
            str(host_path("worker", argument)) if argument.startswith("/") else argument
            for argument in arguments
        )
        group = click.Context(main, **main.context_settings)
        with command(name).make_context(name, rest, parent=group):
            pass

    return parse


@pytest.fixture
def worker_settings(
    compose: dict[str, Any],
    final_stage: Instructions,
    host_path: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Settings]:
    """Return a function that loads a service's settings from its file and its environment."""

    def load(service: str) -> Settings:
        for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
            monkeypatch.delenv(name)
        for instruction, arguments in final_stage:
            if instruction == "ENV":
                for variable in shlex.split(arguments):
                    _set_kp(monkeypatch, *variable.split("=", 1))
        definition = compose["services"][service]
        for name, value in definition.get("environment", {}).items():
            _set_kp(monkeypatch, name, str(value))
        command = definition["command"]
        return load_settings(host_path(service, command[command.index("--config") + 1]))

    return load


def _set_kp(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    if name.startswith(ENV_PREFIX):
        monkeypatch.setenv(name, value)

"""The files under ``deploy/`` and at the root, read as the tools that take them read them."""

import io
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

from worker.cli import main
from worker.settings import ENV_PREFIX, Settings, load_settings

ROOT = Path(__file__).parents[3]

Instructions = list[tuple[str, str]]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_bytes())


@pytest.fixture(scope="session")
def dockerfile() -> Instructions:
    """The instructions and their arguments, continued lines joined and comments left out."""
    text = (ROOT / "deploy/Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return re.findall(r"^([A-Z]+)\s+(.+)$", text, flags=re.MULTILINE)


@pytest.fixture(scope="session")
def final_stage(dockerfile: Instructions) -> Instructions:
    """The instructions of the stage that becomes the image."""
    start = max(number for number, (instruction, _) in enumerate(dockerfile) if instruction == "FROM")
    return dockerfile[start:]


@pytest.fixture(scope="session")
def host_path(compose: dict[str, Any]) -> Callable[[str, str], Path]:
    """Tells where on the host a path in a service's container comes from."""

    def resolve(service: str, path: str) -> Path:
        for volume in compose["services"][service]["volumes"]:
            source, target, *_ = volume.split(":")
            if path == target or path.startswith(f"{target}/"):
                return (ROOT / source / path[len(target) :].lstrip("/")).resolve()
        pytest.fail(f"no volume of {service} brings {path}")

    return resolve


@pytest.fixture
def parse_command(
    host_path: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str]], None]:
    """Has the command line read a container's arguments, without running the command."""

    def parse(arguments: list[str]) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        name, *rest = (
            str(host_path("worker", argument)) if argument.startswith("/") else argument
            for argument in arguments
        )
        command = main.commands[name]
        with click.Context(main), command.make_context(name, rest):
            pass

    return parse


@pytest.fixture
def worker_settings(
    compose: dict[str, Any],
    final_stage: Instructions,
    host_path: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Settings]:
    """Loads the settings as a service of the worker's image does, from its file and its environment."""

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

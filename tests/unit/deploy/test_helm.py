"""The Helm chart takes what it says; `make check NAME=helm` compares what it makes with the manifests."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml
from jsonschema import Draft7Validator

EXAMPLE = re.compile(r"^( *)# (\w+: \S.*)$", re.MULTILINE)
"""A value of values.yaml that is commented out."""


@pytest.fixture(scope="module")
def chart(root):
    return root / "deploy/helm"


@pytest.fixture(scope="module")
def schema(chart):
    schema = json.loads((chart / "values.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    return schema


def test_the_chart_has_the_version_of_the_worker(chart, root):
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    described = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert described["version"] == described["appVersion"] == version


def test_the_chart_reads_the_manifests_and_copies_none(chart):
    links = {
        path.name: path.resolve().relative_to(chart.resolve().parent)
        for path in chart.iterdir()
        if path.is_symlink()
    }
    assert {name: str(target) for name, target in links.items()} == {
        "base": "kubernetes/base",
        "components": "kubernetes/components",
        "dashboards": "grafana/dashboards",
    }


def test_every_value_has_a_schema_and_an_example_that_it_accepts(chart, schema):
    """Uncommented, all of values.yaml is valid."""
    text = EXAMPLE.sub(r"\1\2", (chart / "values.yaml").read_text()).replace("brokers: {}", "brokers:")
    values = yaml.safe_load(text) | {"config": "[kafka]\n", "prometheusOperator": True}
    Draft7Validator(schema).validate(values)
    assert values.keys() == schema["properties"].keys()
    assert values["brokers"].keys() == schema["properties"]["brokers"]["properties"].keys()

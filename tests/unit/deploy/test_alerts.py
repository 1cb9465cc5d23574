"""Prometheus takes the rules; each alert fires and is quiet as told, and has a section in the runbook."""

import re
import subprocess
from collections import defaultdict

import pytest
import yaml

from support.tools import tool

SEVERITIES = {"page", "ticket"}


@pytest.fixture(scope="module")
def rules(root):
    groups = yaml.safe_load((root / "deploy/prometheus/alerts.yml").read_bytes())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def alerts(rules):
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


@pytest.fixture(scope="module")
def stories(root):
    """The files of rule tests."""
    return sorted((root / "tests/unit/deploy").glob("alerts*_test.yml"))


@pytest.fixture(scope="module")
def sections(root):
    """The runbook's sections, each with its text, by their headings."""
    text = (root / "deploy/runbook.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def promtool(*arguments):
    command = [tool("promtool"), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_its_configuration_and_the_rules(host_path):
    """`check config` follows `rule_files`, from where compose puts both."""
    promtool("check", "config", host_path("prometheus", "/etc/prometheus/prometheus.yml"))
    promtool("check", "rules", host_path("prometheus", "/etc/prometheus/alerts.yml"))


def test_prometheus_reads_the_rules_that_compose_brings(compose, host_path):
    inside = "/etc/prometheus/prometheus.yml"
    config = yaml.safe_load(host_path("prometheus", inside).read_bytes())

    assert f"--config.file={inside}" in compose["services"]["prometheus"]["command"]
    for path in config["rule_files"]:
        assert host_path("prometheus", f"/etc/prometheus/{path}").is_file()


def test_the_alerts_fire_and_are_quiet_as_told(stories):
    promtool("test", "rules", *stories)


def test_each_alert_is_told_to_fire_and_to_be_quiet(alerts, stories):
    told = defaultdict(set)
    for path in stories:
        for story in yaml.safe_load(path.read_bytes())["tests"]:
            for case in story["alert_rule_test"]:
                told[case["alertname"]].add(bool(case.get("exp_alerts")))

    assert told == {name: {True, False} for name in alerts}


def test_each_alert_says_what_is_wrong_and_how_bad_it_is(alerts):
    assert alerts
    for name, alert in alerts.items():
        assert alert["labels"]["severity"] in SEVERITIES, name
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}, name


def test_each_alert_leads_to_its_section_of_the_runbook(alerts, sections, root):
    """An anchor is the heading in lower case, as Git hosts make it."""
    assert sections.keys() == alerts.keys()
    for name, alert in alerts.items():
        path, anchor = alert["annotations"]["runbook_url"].split("#")
        assert (root / path).samefile(root / "deploy/runbook.md")
        assert anchor == name.lower()


def test_each_section_says_what_it_means_what_to_look_at_and_what_to_do(sections):
    for name, text in sections.items():
        assert re.findall(r"^\*\*(.+?)\.\*\*", text, re.MULTILINE) == ["Means", "Look at", "Do"], name


def test_the_alerts_ask_for_series_that_a_worker_exposes(rules, labels_of):
    """A name that nobody exposes is no error: the alert is quiet for ever."""
    recorded = {rule["record"] for rule in rules if "record" in rule}
    for rule in rules:
        named = set(re.findall(r"\bkp[_:][\w:]+", rule["expr"]))
        assert named
        assert named - recorded <= labels_of.keys(), rule["expr"]


def test_the_runbook_names_what_is_there(root, sections, labels_of, panels, commands):
    """Metrics, panels and commands: what is looked for at night must be found."""
    text = "".join(sections.values())
    metrics = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in labels_of}

    assert set(re.findall(r"`(kp_\w+)", text)) <= metrics | labels_of.keys()
    assert set(re.findall(r'panel "([^"]+)"', text)) <= {panel["title"] for panel in panels}
    assert set(re.findall(r"`kp-worker ([\w-]+)", text)) <= commands

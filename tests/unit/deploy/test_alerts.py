"""Prometheus takes the rules; each alert fires and is quiet as told, and has a section in the runbook."""

import json
import re
import subprocess
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import yaml

from support.tools import tool
from worker.demo.processes import LOOPBACK, free_ports, start

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


def test_each_alert_leads_to_its_section_of_the_runbook(alerts, sections):
    """An anchor is the heading in lower case, as Git hosts make it."""
    assert sections.keys() == alerts.keys()
    for name, alert in alerts.items():
        assert alert["annotations"]["runbook_url"] == f"{{{{ $externalLabels.runbook }}}}#{name.lower()}"


def test_where_an_alert_leads_prometheus_serves_the_runbook(compose, host_path, root, tmp_path):
    """With compose's configuration and arguments, but for the port and what a container has elsewhere."""
    (port,) = free_ports(1)
    config = yaml.safe_load(host_path("prometheus", "/etc/prometheus/prometheus.yml").read_bytes())
    config = {"global": config["global"], "rule_files": ["alerts.yml"]}
    rule = {
        "alert": "Always",
        "expr": "vector(1)",
        "annotations": {"url": "{{ $externalLabels.runbook }}"},
    }
    (tmp_path / "alerts.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "always", "interval": "1s", "rules": [rule]}]})
    )
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "runbook.md").symlink_to(host_path("prometheus", "/etc/prometheus/assets/runbook.md"))
    elsewhere = {
        "--config.file": tmp_path / "prometheus.yml",
        "--storage.tsdb.path": tmp_path / "tsdb",
        "--web.user-assets": assets,
    }
    names = [argument.split("=")[0] for argument in compose["services"]["prometheus"]["command"]]
    assert elsewhere.keys() <= set(names)
    command = [tool("prometheus"), *(f"{name}={path}" for name, path in elsewhere.items())]

    with ExitStack() as stack:
        start(stack, [*command, f"--web.listen-address={LOOPBACK}:{port}"], tmp_path / "log")
        (alert,) = until(lambda: json.loads(get(port, "/api/v1/alerts"))["data"]["alerts"])
        url = urlsplit(alert["annotations"]["url"])
        served = get(port, url.path)

    assert f"127.0.0.1:{url.port}:9090" in compose["services"]["prometheus"]["ports"]
    assert served == (root / "deploy/runbook.md").read_bytes()


def get(port, path):
    with urlopen(f"http://{LOOPBACK}:{port}{path}") as answer:
        return answer.read()


def until(look):
    """What a look brings, once it brings something."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(URLError):
            if found := look():
                return found
        time.sleep(0.1)
    pytest.fail("nothing came")


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

"""Prometheus accepts the rules; alerts fire and stay quiet as expected, and have runbook sections."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from generator.alerts import ALERTS, renewed
from knowledgepulse_worker.tools.policies.drift import Distribution, Distributions, reference_rules
from knowledgepulse_worker.verdict import State
from support.tools import promtool

SEVERITIES = {"page", "ticket"}
STORIES = sorted(Path(__file__).parent.glob("alerts*_test.yml"))
"""The files of rule tests."""


@pytest.fixture(scope="module")
def rules(root):
    groups = yaml.safe_load((root / "deploy/prometheus/alerts.yml").read_bytes())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def alerts(rules):
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


@pytest.fixture(scope="module")
def sections(root):
    """Return the texts of the runbook's sections by heading."""
    text = (root / "docs/operators/runbook.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_prometheus_accepts_its_configuration_and_the_rules(host_path):
    """`check config` also checks `rule_files`, at the paths in compose."""
    promtool("check", "config", host_path("prometheus", "/etc/prometheus/prometheus.yml"))
    promtool("check", "rules", host_path("prometheus", "/etc/prometheus/alerts.yml"))


def test_prometheus_reads_the_rules_mounted_by_compose(compose, host_path):
    inside = "/etc/prometheus/prometheus.yml"
    config = yaml.safe_load(host_path("prometheus", inside).read_bytes())

    assert f"--config.file={inside}" in compose["services"]["prometheus"]["command"]
    for path in config["rule_files"]:
        assert host_path("prometheus", f"/etc/prometheus/{path}").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("stories", STORIES, ids=lambda path: path.stem)
def test_alerts_fire_and_stay_quiet_as_expected(root, tmp_path, stories):
    """Each story is told with its own alerts and the recorded series: all rules would take much longer.

    Of the alerts' texts, it repeats the summary, which has the numbers.
    """
    groups = yaml.safe_load((root / "deploy/prometheus/alerts.yml").read_bytes())["groups"]
    written = yaml.load(stories.read_bytes(), yaml.BaseLoader)  # to others, the series 0x10 is a number
    for number, story in enumerate(written.pop("tests")):
        named = {case["alertname"] for case in story["alert_rule_test"]}
        kept = [
            {
                **group,
                "rules": [
                    _summarized(rule) for rule in group["rules"] if rule.get("alert") in {None, *named}
                ],
            }
            for group in groups
            if named & {rule.get("alert") for rule in group["rules"]}
        ]
        (tmp_path / f"rules{number}.yml").write_text(json.dumps({"groups": kept}))
        alone = {**written, "rule_files": [f"rules{number}.yml"], "tests": [story]}
        (tmp_path / f"story{number}.yml").write_text(json.dumps(alone))
    promtool("test", "rules", *tmp_path.glob("story*.yml"))


def _summarized(rule):
    if "alert" not in rule:
        return rule
    return {**rule, "annotations": {"summary": rule["annotations"]["summary"]}}


def test_the_rules_on_states_are_those_of_the_states(root):
    """States and rules judged apart, with other numbers."""
    rules = (root / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
    assert rules == renewed(rules), "run `make tables`"


@pytest.mark.slow
def test_alerts_on_a_state_fire_once_it_has_lasted_and_while_it_does(tmp_path, alerts):
    """Also of a worker that was there for a moment before, and not because it is new."""
    stories = []
    for state in State:
        if (alert := state.alert) is None:
            continue
        name, _ = ALERTS[alert.severity]
        labels = {"severity": alert.severity, "group": "g", "instance": "a", "state": state}
        fires = {"exp_labels": labels, "exp_annotations": {"summary": f"a: {alert.summary}"}}
        series = f'kp_state{{instance="a", group="g", state="{state}"}}'
        for before, values in ((4, "0x4"), (0, "")):
            over = before + 40
            quiet = [over + alert.minutes // 10 + 2] + [before + alert.minutes * 9 // 10 - 1] * (
                alert.minutes > 1
            )
            cases = [{"alertname": name, "eval_time": f"{at}m"} for at in quiet]
            cases.append({"alertname": name, "eval_time": f"{before + 38}m", "exp_alerts": [fires]})
            stories.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": series, "values": f"{values} 1x39 0x40".strip()}],
                    "alert_rule_test": cases,
                }
            )
    kept = [_summarized(alerts[name]) for name, _ in ALERTS.values()]
    rules, tests = tmp_path / "rules.yml", tmp_path / "stories.yml"
    rules.write_text(json.dumps({"groups": [{"name": "states", "rules": kept}]}))
    tests.write_text(json.dumps({"rule_files": [rules.name], "tests": stories}))
    promtool("test", "rules", tests)


def test_a_state_without_an_alert_of_its_own_names_one_that_tells_of_it(alerts):
    named = {state.runbook for state in State if state.alert is None} - {None}
    assert named <= alerts.keys()
    assert {state for state in State if state.runbook is None} == {State.HEALTHY, State.STOPPING}


def test_every_alert_has_a_firing_and_a_quiet_case(alerts):
    outcomes = defaultdict(set)
    for path in STORIES:
        for story in yaml.safe_load(path.read_bytes())["tests"]:
            for case in story["alert_rule_test"]:
                outcomes[case["alertname"]].add(bool(case.get("exp_alerts")))

    assert outcomes == {name: {True, False} for name in alerts}


def test_every_alert_has_a_summary_and_a_severity(alerts):
    assert alerts
    for name, alert in alerts.items():
        assert alert["labels"]["severity"] in SEVERITIES, name
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}, name


def test_every_alert_links_to_its_runbook_section(alerts, sections):
    """Anchors are headings in lower case, as generated by Git hosts; an alert on states has one of each."""
    of_states = {name for name, _ in ALERTS.values()}
    assert sections.keys() == alerts.keys() - of_states | {state for state in State if state.alert}
    for name, alert in alerts.items():
        anchor = "{{ $labels.state }}" if name in of_states else name.lower()
        assert alert["annotations"]["runbook_url"] == f"{{{{ $externalLabels.runbook }}}}#{anchor}"


def test_alerts_of_older_releases_link_to_the_sections_of_their_states(root):
    table = (root / "COMPATIBILITY.md").read_text(encoding="utf-8")
    runbook = (root / "docs/operators/runbook.md").read_text(encoding="utf-8")
    replaced = re.findall(r'^\| `(Kp\w+)` .*?`Kp\w+\{state="(\w+)"\}`', table, re.MULTILINE)
    assert replaced
    for name, state in replaced:
        assert f'<a id="{name.lower()}"></a>\n\n## {state}\n' in runbook


def test_every_runbook_section_has_meaning_checks_and_actions(sections):
    for name, text in sections.items():
        assert re.findall(r"^\*\*(.+?)\.\*\*", text, re.MULTILINE) == ["Means", "Look at", "Do"], name


def test_alerts_use_only_series_that_are_exposed(rules, labels_of, span_labels_of):
    """An unknown name is no error: the alert would never fire."""
    accepted = json.loads(reference_rules(Distributions("", {("", ""): Distribution(0, {0.5: 0})})))
    recorded = {rule["record"] for rule in [*rules, *accepted["groups"][0]["rules"]] if "record" in rule}
    for rule in rules:
        named = set(re.findall(r"\bkp[_:][\w:]+", rule["expr"]))
        assert named
        assert named - recorded <= labels_of.keys() | span_labels_of.keys(), rule["expr"]


def test_the_runbook_names_existing_metrics_panels_and_commands(
    sections, labels_of, span_labels_of, panels, commands
):
    """At night, operators must find what it names."""
    text = "".join(sections.values())
    series = labels_of.keys() | span_labels_of.keys()
    metrics = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in series}

    assert set(re.findall(r"`(kp_\w+)", text)) <= metrics | series
    assert set(re.findall(r'panel "([^"]+)"', text)) <= {panel["title"] for panel in panels}
    assert set(re.findall(r"`kp-worker ([\w-]+)", text)) <= commands

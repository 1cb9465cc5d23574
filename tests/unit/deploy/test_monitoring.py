"""Prometheus finds the workers, and Grafana asks for what they expose."""

import json
import re
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from worker.observe.metrics import Metrics
from worker.policy import Policy

DATASOURCES = "/etc/grafana/provisioning/datasources/prometheus.yml"
PROVIDERS = "/etc/grafana/provisioning/dashboards/dashboards.yml"


@pytest.fixture(scope="module")
def labels_of():
    """The labels of each series that a worker exposes, by the series' name."""
    metrics = Metrics(Policy(), budget=0.1)
    for of_a_partition in (metrics.lag, metrics.cache_size, metrics.recovering, metrics.committed):
        of_a_partition(0, 0)
    _, page = metrics.render("")
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def dashboard(root):
    return json.loads((root / "deploy/grafana/dashboards/worker.json").read_bytes())


@pytest.fixture(scope="module")
def targets(dashboard):
    return [target for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def prometheus(host_path):
    return yaml.safe_load(host_path("prometheus", "/etc/prometheus/prometheus.yml").read_bytes())


@pytest.fixture(scope="module")
def datasource(host_path):
    (datasource,) = yaml.safe_load(host_path("grafana", DATASOURCES).read_bytes())["datasources"]
    return datasource


def test_the_dashboard_asks_for_series_that_a_worker_exposes(targets, labels_of):
    asked = {name for target in targets for name in re.findall(r"\bkp_\w+", target["expr"])}

    assert asked
    assert asked - labels_of.keys() == set()


def test_the_dashboard_groups_by_labels_that_the_series_have(targets, labels_of):
    """Grouping by a label that is not there is no error: all is added up, and the panel looks right."""
    for target in targets:
        (name,) = re.findall(r"\bkp_\w+", target["expr"])
        grouped = set(re.findall(r"by \((\w+)\)", target["expr"]))
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))

        assert shown <= grouped <= labels_of[name], target["expr"]


def test_panels_are_told_apart_and_do_not_overlap(dashboard):
    panels = dashboard["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)


def test_the_dashboard_asks_the_datasource_that_is_provisioned(dashboard, targets, datasource):
    asked = [part["datasource"] for part in (*dashboard["panels"], *targets)]

    assert [one for one in asked if one != {"type": datasource["type"], "uid": datasource["uid"]}] == []


def test_the_datasource_is_prometheus_in_compose(compose, datasource):
    url = urlsplit(datasource["url"])

    assert compose["services"][url.hostname]["image"].startswith("prom/prometheus:")
    assert compose["services"][url.hostname]["ports"][0].endswith(f":{url.port}")


def test_rates_are_taken_over_the_scrape_interval(prometheus, datasource):
    assert datasource["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]


def test_grafana_finds_the_dashboards(compose, host_path):
    (provider,) = yaml.safe_load(host_path("grafana", PROVIDERS).read_bytes())["providers"]
    home = compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]

    assert list(host_path("grafana", provider["options"]["path"]).glob("*.json"))
    assert host_path("grafana", home).is_file()


def test_prometheus_finds_every_worker(prometheus, worker_settings):
    """A name of Docker's DNS has an address for each replica; a static target would be any one of them."""
    (job,) = prometheus["scrape_configs"]
    (discovery,) = job["dns_sd_configs"]

    assert discovery["type"] == "A"
    assert discovery["names"] == ["worker"]
    assert discovery["port"] == worker_settings("worker").web.port

"""Prometheus finds the workers, and Grafana finds Prometheus and the dashboard."""

from urllib.parse import urlsplit

import pytest
import yaml

PROVIDERS = "/etc/grafana/provisioning/dashboards/dashboards.yml"


@pytest.fixture(scope="module")
def prometheus(host_path):
    return yaml.safe_load(host_path("prometheus", "/etc/prometheus/prometheus.yml").read_bytes())


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
    """Docker's DNS resolves the name to all replicas; a static target would reach only one of them."""
    (job,) = prometheus["scrape_configs"]
    (discovery,) = job["dns_sd_configs"]

    assert discovery["type"] == "A"
    assert discovery["names"] == ["worker", "assemble", "evaluations", "contributions"]
    assert {worker_settings(name).web.port for name in discovery["names"]} == {discovery["port"]}

"""docker-compose.yml is consistent, and publishes ports on loopback only."""

import re

import pytest

OWN = ["topics", "worker", "assemble", "evaluations", "contributions"]
"""The services with the worker's image."""

WITHOUT_DIGEST = {"apache/kafka:4.4.0"}
"""Images that the next release pins (CONTRIBUTING.md): the registry was out of reach when they changed."""


def own(compose):
    """Return the services with the worker's image."""
    services = compose["services"]
    return {
        name: service for name, service in services.items() if service["image"] == services["worker"]["image"]
    }


def test_every_mounted_file_exists(compose, root):
    named = set()
    for service in compose["services"].values():
        named |= {volume.split(":")[0] for volume in service.get("volumes", ()) if volume.startswith(".")}
        if build := service.get("build"):
            named |= {build["context"], build["dockerfile"]}

    assert {path for path in named if not (root / path).exists()} == set()


def test_every_image_is_built_or_pinned_by_its_digest(compose, dockerfile):
    """Otherwise, the same files may start something else tomorrow: a tag can be moved."""
    built = {service["image"] for service in compose["services"].values() if "build" in service}
    stages = {arguments.split(" AS ")[1] for _, arguments in dockerfile if " AS " in arguments}
    used = {service["image"] for service in compose["services"].values()} - built
    used |= {arguments.split()[0] for instruction, arguments in dockerfile if instruction == "FROM"} - stages

    release = r"[\w./-]+:v?\d[\w.-]*\.\d[\w.-]*@sha256:[0-9a-f]{64}"
    assert {image for image in used if not re.fullmatch(release, image)} == WITHOUT_DIGEST


def test_ports_are_published_on_loopback_only(compose):
    published = [port for service in compose["services"].values() for port in service.get("ports", ())]

    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_every_service_is_bounded_and_keeps_few_logs(compose):
    for name, service in compose["services"].items():
        assert {"mem_limit", "pids_limit", "logging"} <= service.keys(), name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_the_worker_writes_nothing(compose):
    assert all(service["read_only"] and service["tmpfs"] == ["/tmp"] for service in own(compose).values())


def test_replicas_do_not_compete_for_ports_or_names(compose, worker_settings):
    """``docker compose up --scale worker=3`` assigns free ports to replicas without a fixed one."""
    worker = compose["services"]["worker"]

    assert worker["ports"] == [f"127.0.0.1::{worker_settings('worker').web.port}"]
    assert "container_name" not in worker


def test_the_settings_are_mounted_in_a_folder(compose, root):
    """Editors and git replace files, and a mount of a single file would keep the old one."""
    sources = [volume.split(":")[0] for service in own(compose).values() for volume in service["volumes"]]

    assert all((root / source).is_dir() for source in sources if source.startswith("."))


@pytest.mark.parametrize("service", OWN)
def test_services_run_existing_commands(compose, service, parse_command):
    parse_command(compose["services"][service]["command"])


@pytest.mark.parametrize("service", OWN)
def test_the_settings_are_accepted_and_reach_the_broker(compose, service, worker_settings):
    settings = worker_settings(service)

    advertised = compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"://{settings.kafka.bootstrap_servers}," in advertised
    assert settings.kafka.bootstrap_servers.split(":")[0] in compose["services"]


def test_the_default_settings_reach_the_broker_from_the_host(compose):
    """``kp-worker publish`` on the host needs no settings."""
    kafka = compose["services"]["kafka"]

    assert kafka["ports"] == ["127.0.0.1:9092:9092"]
    assert kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"].endswith("://127.0.0.1:9092")


def test_the_single_broker_can_begin_transactions(compose):
    """Its transaction log would need three brokers by default."""
    environment = compose["services"]["kafka"]["environment"]

    assert environment["KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR"] == 1
    assert environment["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == 1


@pytest.mark.parametrize("service", OWN[1:])
def test_metrics_are_served_to_the_other_containers(service, worker_settings):
    assert worker_settings(service).web.host == "0.0.0.0"


@pytest.mark.parametrize("service", ["worker", "assemble"])
def test_a_stopped_worker_has_time_to_drain(compose, service, worker_settings):
    """Otherwise, Docker kills the worker, and its uncommitted records are processed again."""
    (seconds,) = re.fullmatch(r"(\d+)s", compose["services"][service]["stop_grace_period"]).groups()

    assert int(seconds) > worker_settings(service).limits.drain

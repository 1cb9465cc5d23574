"""The Kubernetes manifests name what is there, and leave a worker room to start, work and stop."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from knowledgepulse_worker.http import probes
from knowledgepulse_worker.http.server import METRICS
from knowledgepulse_worker.process.supervisor import STOP_MARGIN
from knowledgepulse_worker.settings import ENV_PREFIX, NESTED, load_settings, sections
from support.tools import promtool

WORKER = "app.kubernetes.io/name"
COMPONENTS = ["assemble", "evaluations", "contributions"]
DEPLOYMENTS = ["kp-worker", *(f"kp-worker-{name}" for name in COMPONENTS)]
DRAINING = ["kp-worker", "kp-worker-assemble"]
"""The deployments that finish records when they stop."""


@pytest.fixture(scope="module")
def folder(root):
    return root / "deploy/kubernetes"


@pytest.fixture(scope="module")
def documents(folder):
    """Every document, with its file; a kustomization is none of the cluster's."""
    found = [
        (file, document)
        for file in sorted(folder.rglob("*.yaml"))
        if file.name not in ("kustomization.yaml", "kafka-secret.yaml", "prometheusrule.head.yaml")
        for document in yaml.safe_load_all(file.read_bytes())
    ]
    assert found
    return found


@pytest.fixture(scope="module")
def kustomizations(folder, root):
    files = [*folder.rglob("kustomization.yaml"), root / "deploy/grafana/dashboards/kustomization.yaml"]
    return {file: yaml.safe_load(file.read_bytes()) for file in files}


@pytest.fixture(scope="module")
def settings_files(folder):
    return sorted(folder.rglob("worker.toml"))


def only(documents, kind, name="kp-worker"):
    (found,) = (
        document
        for _, document in documents
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    )
    return found


def pods(documents):
    """The specifications of the worker's image's pods."""
    return [
        document["spec"]["template"]["spec"]
        for _, document in documents
        if document["kind"] in ("Deployment", "Job", "StatefulSet")
    ]


def test_kustomizations_name_existing_files(kustomizations):
    for file, kustomization in kustomizations.items():
        named = [*kustomization.get("resources", ()), *kustomization.get("components", ())]
        named += [
            name for generator in kustomization.get("configMapGenerator", ()) for name in generator["files"]
        ]
        named += [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]
        assert named
        assert [name for name in named if not (file.parent / name).exists()] == []


def test_the_settings_are_accepted(settings_files):
    assert len(settings_files) == 2
    for file in settings_files:
        settings = load_settings(file)
        assert settings.web.host == "0.0.0.0"
        assert settings.log.format == "auto"


def test_files_named_in_settings_are_mounted(folder):
    overlay = folder / "overlays/kafka-tls"
    patch = yaml.safe_load((overlay / "kafka-secret.yaml").read_bytes())
    mounts = {change["value"]["mountPath"] for change in patch if change["path"].endswith("volumeMounts/-")}
    kafka = tomllib.loads((overlay / "worker.toml").read_text())["kafka"]
    files = [Path(value) for key, value in kafka.items() if key.endswith("file")]

    assert {str(file.parent) for file in files} == mounts
    described = (overlay / "kustomization.yaml").read_text()
    assert all(f"--from-file={file.name}" in described for file in files)


def test_environment_variables_are_settings(folder):
    named = re.findall(
        rf"\b{ENV_PREFIX}[A-Z_]+", "".join(file.read_text() for file in folder.rglob("*.yaml"))
    )
    assert named
    for variable in named:
        section, key = variable.removeprefix(ENV_PREFIX).lower().split(NESTED)
        assert key in sections()[section].model_fields


def test_the_settings_are_mounted_as_a_folder(folder):
    assert "subPath:" not in "".join(file.read_text() for file in folder.rglob("*.yaml"))


@pytest.mark.parametrize(
    ("kind", "name"), [("Job", "kp-worker-topics"), *(("Deployment", name) for name in DEPLOYMENTS)]
)
def test_containers_run_existing_commands_with_mounted_settings(documents, parse_command, kind, name):
    (container,) = only(documents, kind, name)["spec"]["template"]["spec"]["containers"]
    parse_command(container["args"])
    config = Path(container["args"][container["args"].index("--config") + 1])
    assert str(config.parent) in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert config.name == "worker.toml"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_ports_and_paths_are_the_workers(documents, name, settings_files):
    (container,) = only(documents, "Deployment", name)["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert {load_settings(file).web.port for file in settings_files} == {port["containerPort"]}
    (ingress,) = only(documents, "NetworkPolicy")["spec"]["ingress"]
    assert ingress["ports"] == [{"port": port["containerPort"]}]
    (endpoint,) = only(documents, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == (port["name"], METRICS)
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in asked.values()} == {port["name"]}
    assert [asked[name]["path"] for name in asked] == [probes.LIVE, probes.LIVE, probes.READY]


def test_the_single_broker_can_begin_transactions(documents):
    """Its transaction log would need three brokers by default."""
    (container,) = only(documents, "StatefulSet", "kafka")["spec"]["template"]["spec"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}

    assert environment["KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR"] == "1"
    assert environment["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == "1"


def test_the_brokers_can_be_reached(documents, folder):
    (broker,) = only(documents, "NetworkPolicy")["spec"]["egress"][1]["ports"]
    settings = load_settings(folder / "base/worker.toml")
    assert settings.kafka.bootstrap_servers.endswith(f":{broker['port']}")
    service = only(documents, "Service", "kafka")
    assert settings.kafka.bootstrap_servers == f"kafka:{service['spec']['ports'][0]['port']}"
    overlay = (folder / "overlays/kafka-tls/kustomization.yaml").read_text()
    tls = load_settings(folder / "overlays/kafka-tls/worker.toml").kafka
    assert f"/spec/egress/1/ports/0/port, value: {tls.bootstrap_servers.split(':')[1]} " in overlay


@pytest.mark.parametrize("name", DRAINING)
def test_the_grace_period_covers_a_workers_drain(documents, name, settings_files):
    pod = only(documents, "Deployment", name)["spec"]["template"]["spec"]
    longest = max(load_settings(file).limits.drain for file in settings_files)
    assert pod["terminationGracePeriodSeconds"] > longest + STOP_MARGIN


def test_every_pod_is_restricted(documents, final_stage):
    """As the namespace enforces it."""
    (user,) = (int(arguments) for instruction, arguments in final_stage if instruction == "USER")
    namespace = only(documents, "Namespace", "knowledgepulse")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in pods(documents):
        assert pod["enableServiceLinks"] is pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert "memory" in container["resources"]["limits"]
            if container["image"] == "knowledgepulse-worker":
                assert container["securityContext"]["readOnlyRootFilesystem"]
                assert pod["securityContext"]["runAsUser"] == user


def test_selectors_select_the_workers(documents):
    for name in DEPLOYMENTS:
        deployment = only(documents, "Deployment", name)["spec"]
        assert (
            deployment["selector"]["matchLabels"]
            == deployment["template"]["metadata"]["labels"]
            == {WORKER: name}
        )
    assert only(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == {WORKER: "kp-worker"}
    (scraped,) = only(documents, "PodMonitor")["spec"]["selector"]["matchExpressions"]
    assert scraped == {"key": WORKER, "operator": "In", "values": DEPLOYMENTS}
    (connected,) = only(documents, "NetworkPolicy")["spec"]["podSelector"]["matchExpressions"]
    topics = only(documents, "Job", "kp-worker-topics")["spec"]["template"]["metadata"]["labels"][WORKER]
    assert connected == {"key": WORKER, "operator": "In", "values": ["kp-worker", topics]}


def test_the_port_is_open_to_one_namespace(documents):
    """A label of a pod is anybody's who may start one, and the page and the metrics have no login."""
    (ingress,) = only(documents, "NetworkPolicy")["spec"]["ingress"]
    (source,) = ingress["from"]

    assert source["namespaceSelector"]["matchLabels"].keys() == {"kubernetes.io/metadata.name"}
    assert source["podSelector"]["matchLabels"] == {WORKER: "prometheus"}


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_components_pods_can_connect(folder, component):
    """It adds their label to the network policy."""
    kustomization = yaml.safe_load((folder / f"components/{component}/kustomization.yaml").read_bytes())
    (patch,) = kustomization["patches"]
    (operation,) = yaml.safe_load(patch["patch"])

    assert patch["target"] == {"kind": "NetworkPolicy", "name": "kp-worker"}
    assert operation == {
        "op": "add",
        "path": "/spec/podSelector/matchExpressions/0/values/-",
        "value": f"kp-worker-{component}",
    }


def test_scales_up_to_the_partition_count(documents):
    scaled = only(documents, "ScaledObject")["spec"]
    (container,) = only(documents, "Job", "kp-worker-topics")["spec"]["template"]["spec"]["containers"]
    arguments = container["args"]

    assert scaled["scaleTargetRef"]["name"] == "kp-worker"
    assert scaled["maxReplicaCount"] == int(arguments[arguments.index("--partitions") + 1])


def test_scales_by_the_lag_that_the_workers_know(documents, folder, tmp_path):
    """KEDA accepts one number; that of another group is none of its."""
    (trigger,) = only(documents, "ScaledObject")["spec"]["triggers"]
    group = load_settings(folder / "base/worker.toml").kafka.group
    lags = {
        f'group="{group}",instance="a",partition="0"': 3,
        f'group="{group}",instance="b",partition="0"': 2,
        f'group="{group}",instance="b",partition="1"': 4,
        'group="other",instance="c",partition="0"': 90,
    }
    series = [
        {"series": f"kp_consumer_lag_records{{{labels}}}", "values": f"{lag}x4"}
        for labels, lag in lags.items()
    ]
    query = trigger["metadata"]["query"]
    case = {"expr": query, "eval_time": "2m", "exp_samples": [{"labels": query, "value": 7}]}
    rules, story = tmp_path / "rules.yml", tmp_path / "story.yml"
    rules.write_text(json.dumps(only(documents, "PrometheusRule")["spec"]))
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": [case]}]
    story.write_text(json.dumps({"rule_files": [rules.name], "tests": tests}))

    assert trigger["type"] == "prometheus"
    promtool("test", "rules", story)


def test_the_operators_rules_match_prometheus(documents, root):
    """`make tables` writes them."""
    rules = yaml.safe_load((root / "deploy/prometheus/alerts.yml").read_bytes())
    assert only(documents, "PrometheusRule")["spec"] == rules

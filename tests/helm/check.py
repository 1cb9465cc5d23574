"""`make check NAME=helm`: the chart makes what kustomize makes, but for what is named here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm"
TLS = ROOT / "deploy/kubernetes/overlays/kafka-tls"
NAMESPACE = "knowledgepulse"
HELM_LABELS = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by"}
"""Labels that only the chart's resources have."""

PART_OF = "app.kubernetes.io/part-of"
"""The base's label; the chart's components have it, too."""


def resources(text):
    """Return resources by kind and name."""
    found = {}
    for each in filter(None, yaml.safe_load_all(text)):
        key = each["kind"], each["metadata"]["name"]
        assert key not in found
        found[key] = each
    return found


def template(*values):
    # Built by `go install`, Helm takes Kubernetes for 1.20.
    place = ["--namespace", NAMESPACE, "--kube-version", "1.27"]
    command = [os.environ["HELM"], "template", "kp", str(CHART), *place, *values]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(*values):
    done = template(*values)
    assert done.returncode == 0, done.stderr
    return resources(done.stdout)


def built(folder):
    """Return what kustomize makes, without the Namespace, which `helm install` creates."""
    command = [os.environ["KUSTOMIZE"], "build", str(folder)]
    made = resources(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return {key: each for key, each in made.items() if each["kind"] != "Namespace"}


def overlay(folder, *names):
    """Return a folder with an overlay of the base with components."""
    kubernetes = os.path.relpath(ROOT / "deploy/kubernetes", folder)
    components = [f"{kubernetes}/components/{name}" for name in names]
    content = {"namespace": NAMESPACE, "resources": [f"{kubernetes}/base"], "components": components}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return folder


def assert_same(chart, kustomize):
    jobs = {
        ("Job", f"{name}-1" if kind == "Job" else name): (kind, name)
        for kind, name in kustomize
        if kind == "Job"
    }
    chart = {jobs.get(key, key): each for key, each in chart.items()}
    assert chart.keys() == kustomize.keys()
    for key, each in kustomize.items():
        metadata, own = each["metadata"], chart[key]["metadata"]
        labels, added = metadata.pop("labels", {}), own.pop("labels")
        assert added.items() >= labels.items()
        assert added.keys() - labels.keys() <= HELM_LABELS | {PART_OF}
        metadata["name"] = own["name"]  # of a Job: each upgrade has its own
        assert chart[key] == each


def test_without_values_the_chart_is_the_base():
    assert_same(rendered(), built(ROOT / "deploy/kubernetes/base"))


def test_kafka_over_tls_is_the_overlay():
    (image,) = yaml.safe_load((TLS / "kustomization.yaml").read_text())["images"]
    values = [
        f"image={image['newName']}:{image['newTag']}",
        "brokers.port=9093", "brokers.secret=kp-worker-kafka", "prometheusOperator=true",
    ]  # fmt: skip
    arguments = [argument for value in values for argument in ("--set", value)]
    assert_same(rendered(*arguments, "--set-file", f"config={TLS / 'worker.toml'}"), built(TLS))


@pytest.mark.parametrize(
    "components",
    [
        ["prometheus-operator", "keda"],
        ["assemble"],
        ["evaluations"],
        ["contributions"],
        ["assemble", "evaluations", "contributions"],
    ],
)
def test_components_are_those_of_kustomize(components, tmp_path):
    values = [name.replace("prometheus-operator", "prometheusOperator") for name in components]
    arguments = [argument for name in values for argument in ("--set", f"{name}=true")]
    assert_same(rendered(*arguments), built(overlay(tmp_path, *components)))


def test_each_value_is_where_it_belongs():
    made = rendered(
        *("--set", "image=registry.example/worker:1,replicas=0,partitions=8,brokers.servers=kafka:9094"),
        *("--set", "resources.limits.memory=3Gi,modelVolume.persistentVolumeClaim.claimName=models"),
        *("--set", "pod.nodeSelector.pool=scoring,prometheusOperator=true,keda=true"),
    )
    worker = made["Deployment", "kp-worker"]["spec"]
    pod, job = worker["template"]["spec"], made["Job", "kp-worker-topics-1"]["spec"]["template"]["spec"]
    (container,), (creating,) = pod["containers"], job["containers"]

    assert worker["replicas"] == 0
    assert container["image"] == creating["image"] == "registry.example/worker:1"
    assert (
        container["env"]
        == creating["env"]
        == [{"name": "KP_KAFKA__BOOTSTRAP_SERVERS", "value": "kafka:9094"}]
    )
    assert container["resources"] == {"limits": {"memory": "3Gi"}}
    assert pod["volumes"][-1] == {"name": "model", "persistentVolumeClaim": {"claimName": "models"}}
    assert container["volumeMounts"][-1] == {"name": "model", "mountPath": "/model", "readOnly": True}
    assert pod["nodeSelector"] == {"pool": "scoring"}
    assert creating["args"][-2:] == ["--partitions", "8"]
    assert made["ScaledObject", "kp-worker"]["spec"]["maxReplicaCount"] == 8


@pytest.mark.parametrize(
    ("config", "values", "group"),
    [
        ('[kafka]\ngroup = "mine"\n', (), "mine"),
        ("kafka.group='mine'", (), "mine"),
        ('[kafka]\n# group = "mine"\n', (), "knowledgepulse-worker"),
        ('[kafka]\ngroup = "mine"\n', ("--set", "env.KP_KAFKA__GROUP=yours"), "yours"),
    ],
)
def test_keda_scales_by_the_lag_of_the_workers_own_group(tmp_path, config, values, group):
    """Its query named the default group, so workers of another one were never scaled."""
    (tmp_path / "worker.toml").write_text(config)
    made = rendered(
        *("--set", "prometheusOperator=true,keda=true,prometheus=http://p:9090", *values),
        *("--set-file", f"config={tmp_path / 'worker.toml'}"),
    )
    (trigger,) = made["ScaledObject", "kp-worker"]["spec"]["triggers"]
    query = f'kp:consumer_lag_records:sum{{group="{group}"}}'
    assert (trigger["metadata"]["query"], trigger["metadata"]["serverAddress"]) == (query, "http://p:9090")


def test_all_pods_have_the_environment_the_annotations_and_the_labels():
    made = rendered(
        "--set", "env.KP_LOG__LEVEL=debug,annotations.owner=us,labels.team=traces,evaluations=true"
    )
    for kind, name in (
        ("Deployment", "kp-worker"),
        ("Deployment", "kp-worker-evaluations"),
        ("Job", "kp-worker-topics-1"),
    ):
        template = made[kind, name]["spec"]["template"]
        assert template["spec"]["containers"][0]["env"] == [{"name": "KP_LOG__LEVEL", "value": "debug"}]
        assert template["metadata"]["annotations"]["owner"] == "us"
        assert template["metadata"]["labels"]["team"] == "traces"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("tag=1", "tag"),
        ("replicas=two", "replicas"),
        ("brokers.server=kafka:9092", "server"),
        ("brokers.servers=kafka", "servers"),
        ("keda=true", "prometheusOperator"),
        ("pod.containers=1", "pod"),
    ],
)
def test_a_value_that_is_none_is_refused_by_its_name(value, named):
    done = template("--set", value)
    assert done.returncode == 1
    assert named in done.stderr

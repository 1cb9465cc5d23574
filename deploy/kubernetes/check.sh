#!/usr/bin/env bash
# Applies the base, every overlay, every component and the Helm chart to a real kube-apiserver with etcd. What the server refuses or
# warns about fails the check. There are no controllers and no nodes: the check creates each workload's pod itself, for
# the namespace's Pod Security Standard to admit or refuse, and nothing runs.
#
# Needs go 1.26, openssl and python3. Server and kubectl are built from their Go modules, in 11 minutes of CPU time; the
# operators' modules contain their CRDs. HELM is Helm, as `make check NAME=kubernetes` builds it. The programs are kept in KP_CHECK_DIR, as by deploy/check.sh, for the next call.
set -euo pipefail

HERE=$(cd "$(dirname "$0")" && pwd)
WORK=${KP_CHECK_DIR:-${TMPDIR:-/tmp}/kp-deploy-check}/kubernetes
KUBERNETES=37.2
ETCD=v3.7.3
CRDS=(
  github.com/kedacore/keda/v2@v2.21.0:config/crd/bases
  github.com/prometheus-operator/prometheus-operator@v0.94.1:example/prometheus-operator-crd
)
NAMESPACE=knowledgepulse
umask 077
mkdir -p "$WORK"

say() { printf '\n== %s  %s\n' "$(date +%T)" "$*"; }
die() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
of_module() { go mod download -json "$2" | sed -n "s/.*\"$1\": \"\(.*\)\",*/\1/p"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
kubectl() {
  "$WORK/bin/kubectl" --kubeconfig /dev/null --server "$server" --certificate-authority certificates/apiserver.crt --token "$token" "$@"
}
pods() {  # of workloads, as their controllers would create them
  python3 -c '
import json, sys
pods = []
for workload in json.load(sys.stdin)["items"]:
    spec, name = workload["spec"], workload["metadata"]["name"]
    pod = {"apiVersion": "v1", "kind": "Pod", **spec["template"]}
    pod["metadata"] = {"generateName": f"{name}-", "labels": pod["metadata"]["labels"]}
    for claim in (claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())):
        volume = {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}-0"}}
        pod["spec"].setdefault("volumes", []).append(volume)
    pods.append(pod)
json.dump({"apiVersion": "v1", "kind": "List", "items": pods}, sys.stdout)'
}

triggers() {  # of ScaledObjects, whose metadata the CRD leaves open: KEDA publishes what each scaler accepts
  python3 -c '
import json, sys
with open(sys.argv[1]) as file:
    scalers = {scaler["type"]: scaler["parameters"] for scaler in json.load(file)["scalers"]}
for scaled in json.load(sys.stdin)["items"]:
    for trigger in scaled["spec"]["triggers"]:
        kind, given, accepted = trigger["type"], trigger["metadata"].keys(), scalers[trigger["type"]]
        needed = {each["name"] for each in accepted if not each.get("optional") and "default" not in each}
        wrong = (needed - given) | (given - {each["name"] for each in accepted})
        if wrong:
            sys.exit(f"trigger {kind}: KEDA needs, or does not know: {sorted(wrong)}")
        print(f"trigger {kind} accepted")' "$(of_module Dir "${CRDS[0]%:*}")/schema/generated/scalers-schema.json"
}

build() {
  mkdir -p "$WORK/module"
  cd "$WORK/module"
  [ -f go.mod ] || go mod init check
  # Its own go.mod replaces some modules by folders that its module does not contain; they are published, too.
  sed -n "s|^\t\(k8s.io/[a-z-]*\) => \./staging/.*|-replace=\1=\1@v0.$KUBERNETES|p" \
    "$(of_module GoMod k8s.io/kubernetes@v1.$KUBERNETES)" | xargs go mod edit
  go get k8s.io/kubernetes/cmd/{kube-apiserver,kubectl}@v1.$KUBERNETES go.etcd.io/etcd/server/v3@$ETCD
  go build -trimpath -o "$WORK/bin/etcd" go.etcd.io/etcd/server/v3
  go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.$KUBERNETES" -o "$WORK/bin/" \
    k8s.io/kubernetes/cmd/{kube-apiserver,kubectl}
}

start() {
  local etcd peer
  etcd=http://127.0.0.1:$(free_port) peer=http://127.0.0.1:$(free_port)
  port=$(free_port) server=https://127.0.0.1:$port token=$(openssl rand -hex 16)
  "$WORK/bin/etcd" --data-dir etcd --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" >etcd.log 2>&1 &
  openssl genrsa -out service-accounts.key 2>/dev/null
  echo "$token,admin,admin,system:masters" >tokens.csv
  "$WORK/bin/kube-apiserver" --etcd-servers "$etcd" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 \
    --secure-port "$port" --cert-dir certificates --endpoint-reconciler-type none --service-cluster-ip-range 10.0.0.0/24 \
    --authorization-mode RBAC --token-auth-file tokens.csv --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file service-accounts.key --service-account-signing-key-file service-accounts.key \
    >apiserver.log 2>&1 &
  local end=$((SECONDS + 120))
  until kubectl get --raw /readyz >/dev/null 2>&1; do
    ((SECONDS < end)) || { tail -20 "$PWD"/*.log; die "the server does not start"; }
    sleep 1
  done
  kubectl version
}

[ -x "$WORK/bin/kube-apiserver" ] && [ -x "$WORK/bin/kubectl" ] || { say "build"; build >"$WORK/build.log" 2>&1 || die "see $WORK/build.log"; }

data=$(mktemp -d)
# Nothing is worth a graceful end, which takes minutes.
trap 'kill -KILL $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$data"' EXIT
cd "$data"
say "start"
start

say "CRDs"
for crds in "${CRDS[@]}"; do kubectl apply --server-side -f "$(of_module Dir "${crds%:*}")/${crds#*:}"; done
kubectl wait --for condition=Established --timeout 60s crd --all >/dev/null

# Not every component is in an overlay.
cp -r "$HERE/.." deploy
mkdir deploy/kubernetes/overlays/components
{
  printf 'namespace: %s\nresources: [../../base]\ncomponents:\n' $NAMESPACE
  (cd deploy/kubernetes/overlays && printf -- '- ../%s\n' ../components/*)
} >deploy/kubernetes/overlays/components/kustomization.yaml

apply() {  # manifests.yaml
  kubectl apply --server-side --warnings-as-errors -f manifests.yaml
  kubectl get scaledobjects -n $NAMESPACE -o json | triggers
  # What a controller creates.
  kubectl get serviceaccount default -n $NAMESPACE >/dev/null 2>&1 || kubectl create serviceaccount default -n $NAMESPACE
  kubectl get deployments,jobs,statefulsets -n $NAMESPACE -o json | pods |
    kubectl create --warnings-as-errors -n $NAMESPACE -f -
  # A Job cannot be changed.
  kubectl delete deployments,jobs,statefulsets,pods --all -n $NAMESPACE >/dev/null
}

for folder in deploy/kubernetes/base deploy/kubernetes/overlays/*; do
  say "${folder#deploy/kubernetes/}"
  kubectl kustomize "$folder" >manifests.yaml
  apply
done

VALUES=(
  ""
  "replicas=2,partitions=8,brokers.servers=kafka:9093,brokers.port=9093,brokers.secret=kafka,prometheusOperator=true,keda=true"
  "resources.limits.memory=3Gi,modelVolume.persistentVolumeClaim.claimName=models,pod.nodeSelector.pool=scoring"
)
for values in "${VALUES[@]}"; do
  say "chart $values"
  "$HELM" template kp-worker deploy/helm --namespace $NAMESPACE --kube-version 1.${KUBERNETES%.*} --set "$values" >manifests.yaml
  apply
done

say "an unrestricted pod"
if kubectl run unrestricted --image image -n $NAMESPACE 2>refusal; then die "it was admitted"; fi
grep -o 'violates PodSecurity "[^"]*"' refusal
say "done"

#!/usr/bin/env bash
# Runs the deployment on a Debian machine that cannot pull images: starts an engine, makes stand-ins for the base images,
# builds, starts, publishes, breaks, audits, and removes it all. It takes some 8 minutes, and 10 more the first time, most of
# them for Compose.
#
#   deploy/check.sh            every step, in order; exits with 0 if all went well
#   deploy/check.sh up load    only these; the steps before must have been run
#   deploy/check.sh clean      removes containers and volumes and stops the engine; `purge` also deletes the folder
#
# Needs root, mvn (for Kafka's jars) and, unless Compose v2 is installed, go, to build it from its Go module. A copy of the
# project is run. Everything is kept in KP_CHECK_DIR (kp-deploy-check under TMPDIR by default) for the next call.
# KP_CHECK_COPIES (10) is how many times 154 traces a load has. The step `prometheus_go`, which is not run by
# default, builds the Prometheus version of the compose file from its Go module (10 minutes); otherwise it is Debian's.
#
# The check differs from a deployment in this: the build uses the host's network, certificates, pip and apt settings; there
# is no Grafana; Python is Debian's; and Kafka runs on Debian's Java 17, configured by its image's own KafkaDockerWrapper.
set -euo pipefail

REPO=$(cd "$(dirname "$0")/.." && pwd)
WORK=${KP_CHECK_DIR:-${TMPDIR:-/tmp}/kp-deploy-check}
SRC=$WORK/src
COPIES=${KP_CHECK_COPIES:-10}
COMPOSE_MODULE=github.com/docker/compose/v2@v2.40.3
SERVICES=(kafka topics worker prometheus)
ALL=(source tools engine base kafka_image prometheus_image build image up load watch policy stop scale broker again clean)
export DOCKER_HOST=unix://$WORK/docker.sock DOCKER_CONFIG=$WORK/docker-config COMPOSE_PROGRESS=plain
unset DOCKER_CONTEXT
mkdir -p "$WORK" "$DOCKER_CONFIG"

say() { printf '\n== %s  %s\n' "$(date +%T)" "$*"; }
die() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
until_true() {  # SECONDS COMMAND...
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do ((SECONDS < end)) || return 1; sleep 1; done
}
image_of() {  # SERVICE: the image without its digest, which no stand-in can have
  sed -n "/^  $1:/,/^  [a-z]/s/^    image: *\([^@]*\).*/\1/p" "$SRC/docker-compose.yml" | head -1
}
have_image() { docker image inspect "$1" >/dev/null 2>&1; }
plain_build() { DOCKER_BUILDKIT=0 docker build --network host -q -t "$1" "$2" 2>/dev/null; }
compose() (
  cd "$SRC"
  files=(-f docker-compose.yml -f "$WORK/override.yml")
  if [ -x "$WORK/bin/docker-compose" ]; then exec "$WORK/bin/docker-compose" "${files[@]}" "$@"; fi
  exec docker compose "${files[@]}" "$@"
)
up() { compose up -d "$@" "${SERVICES[@]}" 2>&1 | grep -E 'Healthy|Exited|rror' || true; }
container() { compose ps -aq worker | sed -n "${1:-1}p"; }
ready() {
  docker exec "$(container "${1:-1}")" python -c \
    "from urllib.request import urlopen; urlopen('http://127.0.0.1:6066/readyz', timeout=4)"
}
in_force() {  # SHARE: whether the worker decides by it
  docker exec "$(container)" python -c "
from urllib.request import urlopen
from prometheus_client.parser import text_string_to_metric_families as families
page = urlopen('http://127.0.0.1:6066/metrics').read().decode()
shares = [s for f in families(page) for s in f.samples if s.name == 'kp_share' and s.labels['domain'] == 'default']
assert [s.value for s in shares] == [$1]"
}
kp() {  # a kp-worker command in a container of its own, with the deployment's settings
  docker run --rm -i --network knowledgepulse_default -v "$SRC/deploy/config:/etc/kp-worker:ro" \
    knowledgepulse-worker:local "$@" --config /etc/kp-worker/worker.toml
}
traces() {  # COPIES TAG: that many copies of the real traces, each with its own id and objective
  python3 - "$SRC/worker/knowledgepulse_worker/tools/demo/real_traces.jsonl" "$1" "$2" <<'E'
import json, sys, uuid
path, copies, tag = sys.argv[1], int(sys.argv[2]), sys.argv[3] + str(uuid.uuid4())
lines = open(path, encoding="utf-8").read().splitlines()
for copy in range(copies):
    for number, line in enumerate(lines):
        trace = json.loads(line)
        trace["id"] = f"kp:trace:{uuid.uuid5(uuid.NAMESPACE_URL, f'{tag}/{copy}/{number}')}"
        trace["task"]["objective"] = f"{tag} {copy}: {trace['task']['objective']}"
        print(json.dumps(trace, ensure_ascii=False))
E
}
publish() { traces "$1" "$2" | kp publish - 2>&1 | tail -1; }
slowly() { python3 -c '
import sys, time
for line in sys.stdin:
    sys.stdout.write(line); sys.stdout.flush(); time.sleep(0.04)'; }
why_it_waits() {  # a transaction that hangs on the broker, or what the workers say
  compose exec -T kafka sh -c "java -cp '/opt/kafka/libs/*' org.apache.kafka.tools.TransactionsCommand \\
    --bootstrap-server kafka:19092 find-hanging --broker-id 1" 2>&1 | tail -5 || true
  compose logs --tail 20 worker || true
}
audit() {  # waits until nothing waits, or fewer do no more; then nothing may be missing or differ
  local end=$((SECONDS + 400)) waiting= before=
  until [ "$waiting" = 0 ]; do
    [ -z "$waiting" ] || [ "$waiting" = "$before" ] || end=$((SECONDS + 400)) before=$waiting
    ((SECONDS < end)) || { why_it_waits; die "still waiting: $waiting"; }
    waiting=$(kp audit --json 2>/dev/null | python3 -c 'import json,sys; print(json.load(sys.stdin)["waiting"])' 2>/dev/null) || sleep 2
  done
  kp audit || die "the audit says so"
}
api() {  # PATH PYTHON: prints what the code makes of the answer's data
  python3 -c 'import json,sys,urllib.request as u
data = json.load(u.urlopen("http://127.0.0.1:9090/api/v1/" + sys.argv[1]))["data"]
exec(sys.argv[2])' "$1" "$2"
}

step_source() {
  say "a copy of $REPO"
  rm -rf "$SRC"; mkdir -p "$SRC"
  (cd "$REPO" && git ls-files -co --exclude-standard -z | tar --null -T - -c) | tar -C "$SRC" -x
  git -C "$REPO" log --oneline -1
}

step_tools() {
  say "tools"
  local missing=()
  command -v dockerd >/dev/null || missing+=(docker.io)
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  command -v iptables >/dev/null || missing+=(iptables)
  if [ ${#missing[@]} != 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-remove --no-install-recommends "${missing[@]}" >/dev/null
  fi
  if ! docker compose version >/dev/null 2>&1 && [ ! -x "$WORK/bin/docker-compose" ]; then
    mkdir -p "$WORK/compose-src" "$WORK/bin"
    (
      cd "$WORK/compose-src"
      [ -f go.mod ] || go mod init standin/compose
      printf '//go:build tools\n\npackage tools\n\nimport _ "%s/cmd"\n' "${COMPOSE_MODULE%@*}" >tools.go
      go get "$COMPOSE_MODULE"
      go mod tidy
      go build -trimpath -ldflags "-s -w -X ${COMPOSE_MODULE%@*}/internal.Version=${COMPOSE_MODULE#*@}" \
        -o "$WORK/bin/docker-compose" "${COMPOSE_MODULE%@*}/cmd"
    ) >"$WORK/compose-build.log" 2>&1 || die "see $WORK/compose-build.log"
  fi
  {
    printf 'services:\n  topics:\n    build: { network: host, args: { PYTHON_IMAGE: standin-base } }\n'
    for service in kafka prometheus; do printf '  %s:\n    image: %s\n' "$service" "$(image_of "$service")"; done
  } >"$WORK/override.yml"
}

step_engine() {
  say "engine"
  if ! docker info >/dev/null 2>&1; then
    # What dockerd changes of the machine, to be put back.
    [ -f "$WORK/before" ] || printf '%s %s\n' "$(sysctl -n net.ipv4.ip_forward)" "$(iptables -S FORWARD | sed -n 's/^-P FORWARD //p')" >"$WORK/before"
    setsid dockerd --data-root "$WORK/docker-data" --exec-root "$WORK/docker-exec" -H "$DOCKER_HOST" \
      --pidfile "$WORK/dockerd.pid" >>"$WORK/dockerd.log" 2>&1 </dev/null &
    until_true 60 docker info || die "see $WORK/dockerd.log"
  fi
  docker version --format 'engine {{.Server.Version}}'
}

step_base() {
  say "base image"
  local root=$WORK/rootfs mirror
  have_image standin-base && return
  rm -rf "$root"
  # The host's own mirror, the one that is not for security updates.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1)
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm \
    "$root" "${mirror%/}" >"$WORK/debootstrap.log" 2>&1 || die "see $WORK/debootstrap.log"
  ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
  cp /etc/apt/apt.conf.d/99* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" -c . | docker import --change 'CMD ["python3"]' \
    --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' - standin-base
  rm -rf "$root"
}

step_kafka_image() {
  local tag dir=$WORK/kafka; tag=$(image_of kafka)
  say "stand-in for $tag"
  have_image "$tag" && return
  mkdir -p "$dir"
  cat >"$dir/pom.xml" <<E
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>standin</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${tag##*:}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>${tag##*:}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.5</version></dependency>
</dependencies></project>
E
  [ -d "$dir/libs" ] || mvn -q -B -f "$dir/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir/libs"
  cat >"$dir/log4j2.yaml" <<'E'
Configuration:
  Appenders: { Console: { name: STDOUT, PatternLayout: { pattern: "[%d] %p %m (%c)%n" } } }
  Loggers: { Root: { level: INFO, AppenderRef: { ref: STDOUT } } }
E
  cat >"$dir/run" <<'E'
#!/usr/bin/env bash
set -e
: "${CLUSTER_ID:=5L6g3nShT-eMCtK--X86sw}" "${KAFKA_HEAP_OPTS:=-Xmx1G -Xms1G}"
export CLUSTER_ID
java=(java $KAFKA_HEAP_OPTS -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml -cp '/opt/kafka/libs/*')
cp -n /etc/kafka/docker/*.yaml /opt/kafka/config/
rm -f /opt/kafka/config/server.properties
# The settings, of the KAFKA_ variables alone; it formats the storage, too, and that this was done before is no error.
result=$("${java[@]}" kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
  --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config 2>&1) \
  || grep -qi 'already formatted' <<<"$result" || { echo "$result"; exit 1; }
exec "${java[@]}" kafka.Kafka /opt/kafka/config/server.properties
E
  cat >"$dir/Dockerfile" <<'E'
FROM standin-base
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null && rm -rf /var/lib/apt/lists/*
COPY libs /opt/kafka/libs
COPY log4j2.yaml /etc/kafka/docker/log4j2.yaml
COPY log4j2.yaml /etc/kafka/docker/tools-log4j2.yaml
COPY run /etc/kafka/docker/run
RUN touch /etc/kafka/docker/server.properties && chmod +x /etc/kafka/docker/run \
 && useradd --create-home --shell /bin/bash appuser \
 && mkdir -p /opt/kafka/config /mnt/shared/config /var/lib/kafka/data /etc/kafka/secrets \
 && chown -R appuser /opt/kafka /mnt/shared/config /var/lib/kafka /etc/kafka
USER appuser
VOLUME ["/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"]
CMD ["/etc/kafka/docker/run"]
E
  plain_build "$tag" "$dir"
}

step_prometheus_go() {
  local version dir=$WORK/prometheus; version=$(image_of prometheus); version=${version##*:v}
  say "Prometheus $version, from its Go module"
  [ ! -x "$dir/bin/prometheus" ] || return 0
  mkdir -p "$dir/go" "$dir/bin"
  (
    cd "$dir/go"
    IFS=. read -r major minor patch <<<"$version"
    [ -f go.mod ] || go mod init standin/prometheus
    # As its own go.mod has it.
    go mod edit -replace github.com/fsnotify/fsnotify@v1.8.0=github.com/fsnotify/fsnotify@v1.7.0
    printf '//go:build tools\n\npackage tools\n\nimport (\n\t_ "%s/prometheus"\n\t_ "%s/promtool"\n)\n' \
      github.com/prometheus/prometheus/cmd github.com/prometheus/prometheus/cmd >tools.go
    go get "github.com/prometheus/prometheus@v0.$major$(printf %02d "$minor").$patch"
    go mod tidy
    go build -trimpath -ldflags "-s -w -X github.com/prometheus/common/version.Version=$version" -o "$dir/bin/" \
      github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool
  ) >"$WORK/prometheus-build.log" 2>&1 || die "see $WORK/prometheus-build.log"
}

step_prometheus_image() {
  local tag dir=$WORK/prometheus; tag=$(image_of prometheus)
  say "stand-in for $tag"
  have_image "$tag" && return
  mkdir -p "$dir/bin"
  cat >"$dir/Dockerfile" <<'E'
FROM standin-base
COPY bin /opt/bin
RUN if [ -x /opt/bin/prometheus ]; then mv /opt/bin/* /usr/local/bin/; else \
      apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus >/dev/null && rm -rf /var/lib/apt/lists/*; fi \
 && mkdir -p /prometheus /etc/prometheus && chown 65534:65534 /prometheus
USER 65534
EXPOSE 9090
VOLUME ["/prometheus"]
WORKDIR /prometheus
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
E
  printf '%s\n' go >"$dir/.dockerignore"
  plain_build "$tag" "$dir"
}

step_build() {
  say "compose config, build"
  compose config -q
  compose build >"$WORK/build.log" 2>&1 || { tail -30 "$WORK/build.log"; die "see $WORK/build.log"; }
  docker image inspect -f '{{.Size}} bytes, user {{.Config.User}}, {{len .RootFS.Layers}} layers' knowledgepulse-worker:local
  docker history --format '{{.Size}}	{{.CreatedBy}}' knowledgepulse-worker:local
}

step_image() {
  say "the image by itself: no network, nothing to write to but /tmp, no capabilities, any user"
  head -n 3 "$SRC/worker/knowledgepulse_worker/tools/demo/real_traces.jsonl" | docker run --rm -i --network none --read-only --tmpfs /tmp \
    --cap-drop ALL --security-opt no-new-privileges --user 54321:0 knowledgepulse-worker:local score - | cut -c1-120
}

step_up() {
  say "up"
  up
  until_true 180 ready || { compose logs --tail 40 worker; die "the worker is not ready"; }
  compose ps -a --format '{{.Name}}  {{.Status}}'
  compose logs --no-log-prefix topics | tail -5
}

step_load() {
  say "publish, audit"
  publish 1 first
  audit
}

step_watch() {
  say "Prometheus and the status page, from the host"
  until_true 60 api targets 'assert data["activeTargets"] and all(t["health"] == "up" for t in data["activeTargets"])' || die "a target is down"
  api targets 'for t in data["activeTargets"]: print("target", t["scrapeUrl"], t["health"])'
  until_true 90 api rules 'assert all(r["health"] == "ok" for g in data["groups"] for r in g["rules"])' || die "a rule is not well"
  api rules 'rules = [r for g in data["groups"] for r in g["rules"]]
print(len(rules), "rules; alerts that are not quiet:", [(r["name"], r["state"]) for r in rules if r.get("state", "inactive") != "inactive"])'
  api 'query?query=sum(kp_traces_total)by(outcome)' 'print({r["metric"]["outcome"]: r["value"][1] for r in data["result"]})'
  python3 -c 'import json,sys,urllib.request as u
page = u.urlopen("http://" + sys.argv[1] + "/").read(); status = json.load(u.urlopen("http://" + sys.argv[1] + "/api/status"))
print("status page:", len(page), "bytes;", status["outcomes"]["total"], "; content shown:", status["content_shown"])' "$(compose port worker 6066)"
}

step_policy() {
  say "the policy changes while it runs: written in place, then replaced as editors and git do"
  local file=$SRC/deploy/config/worker.toml share
  cp "$file" "$WORK/worker.toml"
  for share in 0.5 0.6; do
    sed "s/^share = [0-9.]*/share = $share/" "$WORK/worker.toml" >"$file.new"
    if [ $share = 0.5 ]; then cat "$file.new" >"$file"; rm "$file.new"; else mv "$file.new" "$file"; fi
    until_true 30 in_force $share || die "the policy was not taken over: share = $share"
    echo "share $share is in force"
  done
  cat "$WORK/worker.toml" >"$file"
  docker restart -t 60 "$(container)" >/dev/null
  until_true 120 ready || die "not ready again"
}

step_stop() {
  say "docker stop while it works"
  publish 2 stop
  local id began; id=$(container)
  sleep 2; began=$(date +%s%N)
  docker stop -t 60 "$id" >/dev/null
  docker inspect -f "status {{.State.ExitCode}} after $((($(date +%s%N) - began) / 1000000)) ms" "$id"
  [ "$(docker inspect -f '{{.State.ExitCode}}' "$id")" = 0 ] || die "it did not end well"
  docker start "$id" >/dev/null
  audit
}

step_scale() {
  say "two workers, of which one dies by SIGKILL while traces come"
  up --no-recreate --scale worker=2
  until_true 180 ready 2 || die "the second worker is not ready"
  compose ps worker --format '{{.Name}}  {{.Ports}}'
  publish "$COPIES" kill & local publisher=$!
  sleep 5
  local id; id=$(container 1)
  kill -KILL "$(docker inspect -f '{{.State.Pid}}' "$id")"
  wait $publisher
  audit
  docker inspect -f '{{.Name}}: {{.State.Status}}, restarted {{.RestartCount}} times' "$id"
}

step_broker() {
  say "Kafka restarted while traces come"
  traces 4 restart | slowly | kp publish - >"$WORK/publish.log" 2>&1 & local publisher=$!
  sleep 10; compose restart kafka 2>/dev/null
  wait $publisher && tail -1 "$WORK/publish.log" || echo "the publisher gave up; see $WORK/publish.log"
  audit
  say "Kafka away for 90 s, with records waiting; what the first worker answers meanwhile"
  publish "$COPIES" away
  local url prober; url=http://$(compose port worker 6066)
  python3 - "$url" 100 <<'E' & prober=$!
import sys, time, urllib.error, urllib.request
def answer(path):
    try:
        return str(urllib.request.urlopen(sys.argv[1] + path, timeout=2).status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError:
        return "nothing"
began, last, silent, longest = time.time(), None, None, 0.0
while time.time() < began + float(sys.argv[2]):
    now = f"/livez {answer('/livez')}, /readyz {answer('/readyz')}"
    if now != last:
        print(f"{time.time() - began:5.0f} s: {now}", flush=True)
        last = now
    silent = (silent or time.time()) if "livez nothing" in now else None
    longest = max(longest, time.time() - silent if silent else 0)
    time.sleep(1)
print(f"nobody answered /livez for {longest:.0f} s at a stretch")
sys.exit(longest > 3)
E
  compose stop kafka 2>/dev/null; sleep 90; wait $prober || die "a liveness probe would have restarted the worker"
  compose ps -a --format '{{.Name}}  {{.Status}}'
  compose start kafka 2>/dev/null
  audit
}

step_again() {
  say "down, and up: topics, ledger and metrics stay"
  compose down 2>/dev/null
  step_up
  docker logs "$(container)" 2>&1 | grep -o 'recovered the ledgers.*records'
  publish 1 again
  audit
}

step_clean() {
  say "clean"
  if docker info >/dev/null 2>&1; then compose down -v --remove-orphans >/dev/null 2>&1 || true; fi
  if [ -f "$WORK/dockerd.pid" ]; then
    local pid; pid=$(<"$WORK/dockerd.pid")
    kill "$pid" 2>/dev/null || true
    until_true 60 bash -c "! kill -0 $pid" || die "dockerd ($pid) does not end"
  fi
  if [ -f "$WORK/before" ]; then
    local forward policy; read -r forward policy <"$WORK/before"
    ip link delete docker0 2>/dev/null || true
    iptables-save | grep -vi docker | sed "s/^:FORWARD [A-Z]*/:FORWARD $policy/" | iptables-restore
    sysctl -qw net.ipv4.ip_forward="$forward"
    rm "$WORK/before"
  fi
}

step_purge() { say "purge"; umount "$WORK"/docker-exec/netns/* 2>/dev/null || true; rm -rf "$WORK"; }

[ $# != 0 ] || set -- "${ALL[@]}"
for step; do "step_$step"; done
say "done"

#!/bin/sh
# Build the image and try it: its version, and, beside a broker, what would keep a worker from starting. Needs a Docker engine.
set -eu
cd "$(dirname "$0")/.."

trap 'docker compose down --volumes --remove-orphans' EXIT
docker compose build
docker run --rm --network none --read-only --tmpfs /tmp --cap-drop ALL knowledgepulse-worker:local --version
docker compose up --detach worker
docker compose exec --no-TTY worker kp-worker check --config /etc/kp-worker/worker.toml

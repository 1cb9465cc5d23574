#!/usr/bin/env bash
# Expected: an exactly-once Faust app has one transactional producer, as Kafka Streams since KIP-447.
# Seen: it opens one for each partition that it is assigned, each with its own transactional id.
# Versions: faust-streaming 0.15.3, aiokafka 0.14.0, broker 4.4.0, 2026-11-28
# So: the worker has one producer for all of its partitions, beside Faust ("The decisions behind the design", CONTRIBUTING.md).
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
packages faust-streaming==0.15.3 aiokafka==0.14.0
jars org.apache.kafka:kafka-tools:4.4.0 tools
quietly java -cp 'tools/*' org.apache.kafka.tools.TopicCommand \
    --bootstrap-server "$bootstrap" --create --topic work --partitions 6

cat >app.py <<'PY'
import asyncio
import os

import faust

app = faust.App(
    "app",
    broker=f"kafka://{os.environ['BOOTSTRAP']}",
    processing_guarantee="exactly_once",
    store="memory://",
    topic_allow_declare=False,
    topic_disable_leader=True,
    web_enabled=False,
)


@app.agent(app.topic("work"))
async def work(values):
    async for _ in values:
        pass


@app.task
async def end():
    await asyncio.sleep(15)
    os._exit(0)
PY
BOOTSTRAP=$bootstrap venv/bin/faust --app app worker --without-web >worker.log 2>&1 || true
java -cp 'tools/*' org.apache.kafka.tools.TransactionsCommand --bootstrap-server "$bootstrap" list 2>/dev/null |
    awk 'NR > 1 { print $1 }' | sort | tee output
diff - output <<'SEEN'
app-0-0
app-0-1
app-0-2
app-0-3
app-0-4
app-0-5
SEEN

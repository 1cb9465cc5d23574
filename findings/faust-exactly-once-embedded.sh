#!/usr/bin/env bash
# Expected: processing_guarantee="exactly_once" has a Faust app read committed records, however it is started.
# Seen: only under `faust worker`. Started with `app.start()` in a running event loop, the same app reads uncommitted ones.
# Versions: faust-streaming 0.15.3, aiokafka 0.14.0, broker 4.4.0, 2026-11-28
# So: docs/consumers/consume.md has Faust's apps set the level themselves, and the worker does not consume through Faust.
set -euo pipefail
source "$(dirname "$0")/support/broker.sh"
transactions results
packages faust-streaming==0.15.3 aiokafka==0.14.0

cat >app.py <<'PY'
import asyncio
import collections
import json
import os
from pathlib import Path

import faust

how = os.environ["HOW"]
app = faust.App(
    how,
    broker=f"kafka://{os.environ['BOOTSTRAP']}",
    processing_guarantee="exactly_once",
    store="memory://",
    topic_allow_declare=False,
    topic_disable_leader=True,
    topic_partitions=1,
    value_serializer="raw",
    web_enabled=False,
)
read = collections.Counter()


@app.agent(app.topic("results", value_type=bytes))
async def count(values):
    async for value in values:
        read[value.decode()] += 1


@app.task
async def end():
    await asyncio.sleep(15)
    Path(how).write_text(json.dumps(read, sort_keys=True))
    os._exit(0)


async def embedded():
    await app.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(embedded())
PY
HOW=embedded BOOTSTRAP=$bootstrap venv/bin/python app.py >embedded.log 2>&1 &
HOW=worker BOOTSTRAP=$bootstrap venv/bin/faust --app app worker --without-web >worker.log 2>&1 || true
wait $!
grep . worker embedded | tee output
diff - output <<'SEEN'
worker:{"committed": 3}
embedded:{"aborted": 2, "committed": 3}
SEEN

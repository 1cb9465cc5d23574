"""A plain Faust agent: python -m bench.peers.faust_loop SERVERS SOURCE TARGET.

What is built on Faust can hardly be faster.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

import faust
from faust.types import StreamT

from bench.peers.loop import COMMIT_INTERVAL, SESSION, Task, parse_task, scored


def main(task: Task, folder: str) -> None:
    app = faust.App(
        task.group,
        broker=f"kafka://{task.servers}",
        store="memory://",
        datadir=folder,
        web_enabled=False,
        autodiscover=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        broker_session_timeout=SESSION,
        broker_heartbeat_interval=SESSION / 4,
        broker_request_timeout=SESSION + 10,
        broker_commit_interval=COMMIT_INTERVAL,
        stream_wait_empty=False,
        producer_acks=-1,
        producer_linger=0.005,
        producer_max_batch_size=2**20,
    )
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    target = app.topic(task.target, **raw)

    async def score(stream: StreamT[bytes]) -> None:
        async for event in stream.events():
            await target.send(key=event.key, value=scored(event.value))

    app.agent(app.topic(task.source, **raw))(score)
    faust.Worker(app, loglevel="WARNING", redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(parse_task(), folder)

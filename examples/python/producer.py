"""Publish the trace of one run: producer.py [SERVERS [TOPIC]]."""

import asyncio
import sys

from aiokafka import AIOKafkaProducer

from knowledgepulse_schemas import ReasoningTrace


async def main(servers: str = "localhost:9092", topic: str = "raw-traces") -> None:
    trace = ReasoningTrace.new(
        objective="Fix the failing build",
        steps=[
            {"type": "thought", "content": "The lock file is stale."},
            {"type": "tool_call", "tool": {"name": "shell"}, "input": {"command": "npm install"}},
            {"type": "observation", "tool": {"name": "shell"}, "content": "added 214 packages"},
        ],
        result_summary="The build is green.",
        confidence=0.5,
        success=True,
        task_domain="code",
        agent_id="builder-python",
    )
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, trace.to_json(), key=b"builder-python")
    print(trace.id)


asyncio.run(main(*sys.argv[1:]))

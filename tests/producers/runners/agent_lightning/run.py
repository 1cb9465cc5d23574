import asyncio
import os
from pathlib import Path

import httpx
import uvicorn
from agentlightning.server.app import create_app
from bakery import MODEL, OUTPUT, SCRIPT
from chat_loop import bake
from openai import OpenAI

SETTINGS = {
    "key": "",
    "default_proxy": {"model_name": MODEL, "train": {"temperature": 1}, "val": {"temperature": 0.7}},
}


def play(address):
    """Play a rollout as a training program and its runner do."""
    api = httpx.Client(base_url=f"{address}/api")
    api.post("/models", json=[{"model": MODEL, "endpoint": os.environ["OPENAI_BASE_URL"]}]).raise_for_status()
    [rollout] = api.post("/rollouts", json=[{"input": {"data_id": "loaf"}}]).raise_for_status().json()
    name = rollout["rollout_id"]
    bake(OpenAI(base_url=f"{address}/proxy/rollout/{name}/attempt/0/mode/train/openai/v1"))
    for value in SCRIPT["rewards"].values():
        event = {"event_type": "reward", "data": {"value": value, "source": "agent"}}
        api.post(f"/rollouts/{name}/attempt/0/events", json=event).raise_for_status()
    Path(OUTPUT, "events.json").write_text(api.get(f"/rollouts/{name}/events").raise_for_status().text)


async def main():
    server = uvicorn.Server(uvicorn.Config(create_app(SETTINGS), port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        await asyncio.to_thread(play, f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        await serving


asyncio.run(main())

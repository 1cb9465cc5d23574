import asyncio
import json
import os

import art
from bakery import MODEL, OBJECTIVE, OUTPUT, SCRIPT, VARIANT, weigh
from openai import AsyncOpenAI

WEIGH = {
    "type": "function",
    "function": {
        "name": "weigh",
        "description": "Weigh a thing.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    },
}


def answered(call):
    try:
        content = weigh(**json.loads(call.function.arguments))
    except RuntimeError as error:
        content = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "content": content}


async def bake(trajectory):
    client = AsyncOpenAI(base_url=os.environ["OPENAI_BASE_URL"])
    messages = [{"role": "user", "content": OBJECTIVE}]
    told = [*messages]
    while True:
        said = await client.chat.completions.create(model=MODEL, messages=messages, tools=[WEIGH])
        message = said.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        told.append(said.choices[0])
        if not message.tool_calls:
            break
        results = list(map(answered, message.tool_calls))
        messages += results
        told += results
    if VARIANT == "messages":
        trajectory.messages_and_choices = told
        trajectory.tools = [WEIGH]


async def main():
    if VARIANT == "captured":
        with art.Trajectory() as trajectory:
            await bake(trajectory)
    else:
        trajectory = art.Trajectory(messages_and_choices=[])
        await bake(trajectory)
    if "reward" in SCRIPT["rewards"]:
        trajectory.reward = SCRIPT["rewards"]["reward"]
    with open(f"{OUTPUT}/trajectories.jsonl", "w") as file:
        file.write(trajectory.model_dump_json(exclude_computed_fields=True) + "\n")


asyncio.run(main())

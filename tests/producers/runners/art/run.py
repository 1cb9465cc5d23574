from pathlib import Path

import art
from bakery import OUTPUT, SCRIPT, VARIANT
from chat_loop import WEIGH, bake
from openai import OpenAI

if VARIANT == "captured":
    with art.Trajectory() as trajectory:
        bake(OpenAI())
else:
    trajectory = art.Trajectory(messages_and_choices=bake(OpenAI()), tools=[WEIGH])
if SCRIPT["rewards"]:
    trajectory.reward = SCRIPT["rewards"]["reward"]
Path(OUTPUT, "trajectories.jsonl").write_text(trajectory.model_dump_json(exclude_computed_fields=True) + "\n")

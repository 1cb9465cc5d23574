"""An evaluation for Inspect, with its mock model: `python apples_inspect.py FOLDER` writes the logs."""

import sys

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.tool import tool

BOXES = 12


@tool
def look():
    async def execute(box: int):
        """Look into a box.

        Args:
            box: its number.
        """
        return f"I see apples in box {box}."

    return execute


def answer(messages, tools, tool_choice, config):
    """Be the model: it is right only where it looks twice, in every other box."""
    box = int(messages[-1 if len(messages) < 3 else 1].text.split()[-1])
    looks = sum(message.role == "tool" for message in messages)
    if looks < 1 + box % 2:
        output = ModelOutput.for_tool_call(
            "mockllm/model", "look", {"box": box}, content=f"Look number {looks}."
        )
    else:
        said = "42" if looks == 2 else "41"
        output = ModelOutput.for_tool_call(
            "mockllm/model", "submit", {"answer": said}, content="I have counted."
        )
    output.usage = ModelUsage()  # else Inspect downloads a tokenizer to count
    return output


samples = [Sample(id=box, input=f"How many apples are in box {box}", target="42") for box in range(BOXES)]
[log] = evaluate(
    Task(name="apples", dataset=samples, solver=react(tools=[look()]), scorer=match(), epochs=2),
    model=get_model("mockllm/model", custom_outputs=answer),
    log_dir=sys.argv[1],
    display="none",
)
if log.status != "success":
    sys.exit(f"the evaluation failed: {log.error}")

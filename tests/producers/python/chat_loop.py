"""An agent that is a loop around OpenAI's client, for programs that evaluate agents and bring none."""

import json
from itertools import count, islice

from bakery import MODEL, OBJECTIVE, weigh

WEIGH = {
    "type": "function",
    "function": {
        "name": "weigh",
        "description": "Weigh a thing.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    },
}


def _answered(call):
    try:
        content = weigh(**json.loads(call.function.arguments))
    except RuntimeError as error:
        content = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def bake(client, limit=None):
    """Run the agent for at most ``limit`` turns; return its messages, with the model's choices among them."""
    messages = [{"role": "user", "content": OBJECTIVE}]
    told = [*messages]
    for _ in islice(count(), limit):
        choice = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEIGH]).choices[0]
        results = list(map(_answered, choice.message.tool_calls or ()))
        messages += [choice.message.model_dump(exclude_none=True), *results]
        told += [choice, *results]
        if not results:
            break
    return told

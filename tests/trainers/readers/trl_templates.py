"""TRL: what its chat templates make of a call, by the form of its arguments."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.resources import files

from transformers.utils.chat_template_utils import render_jinja_template

GIVEN = {"seats": [{"row": 4711, "window": True}], "until": None}
SCHEMA = {"name": "book", "description": "", "parameters": {"type": "object", "properties": {}}}


def rendered(template, arguments):
    call = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "Book a seat."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "booked"},
        {"role": "assistant", "content": "It is booked."},
    ]
    tools = [{"type": "function", "function": SCHEMA}]
    marks = {"bos_token": "", "eos_token": ""}
    try:
        (text,), _ = render_jinja_template([messages], tools=tools, chat_template=template, **marks)
    except Exception as error:  # a template raises what it likes
        return f"raises {type(error).__name__}"
    return text


texts = {}
for path in sorted(files("trl").joinpath("chat_templates").iterdir(), key=lambda path: path.name):
    name, _, suffix = path.name.partition(".")
    if suffix == "jinja":
        template = path.read_text()
        texts[name] = {"text": rendered(template, json.dumps(GIVEN)), "object": rendered(template, GIVEN)}
print(json.dumps({"version": version("trl"), "texts": texts}))

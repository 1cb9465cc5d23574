#!/usr/bin/env bash
# Expected: OpenLLMetry's messages of a LlamaIndex model tell the calls that its finish reason announces.
# Seen: an answer that ended with `tool_call` has a text alone, in outputs and in inputs, and no span has the kind of a
#   tool: they are tasks, of which one has the tool's name and arguments.
# Versions: llama-index-core 0.14.25, opentelemetry-instrumentation-llamaindex 0.62.4, 2026-11-28
# So: calls are read from what stands beside such messages (schemas/knowledgepulse_schemas/convert/spans/genai.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages llama-index-core==0.14.25 llama-index-llms-openai-like==0.8.1 \
    opentelemetry-instrumentation-llamaindex==0.62.4 opentelemetry-sdk

cat >agent.py <<'PY'
import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CALL = {"id": "call_7", "type": "function", "function": {"name": "weigh", "arguments": '{"what": "loaf"}'}}
ANSWERS = [{"content": "I weigh it.", "tool_calls": [CALL]}, {"content": "It weighs 812 g."}]


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", **ANSWERS.pop(0)}
        choice = {"index": 0, "finish_reason": "tool_calls" if ANSWERS else "stop", "message": message}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_): ...


def weigh(what: str) -> str:
    """Weigh a thing."""
    return "812 g"


async def main():
    model = OpenAILike(
        model="scripted",
        api_base=f"http://127.0.0.1:{server.server_port}/v1",
        api_key="unused",
        is_chat_model=True,
        is_function_calling_model=True,
    )
    await FunctionAgent(tools=[weigh], llm=model, streaming=False).run("How heavy is the loaf?")


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
LlamaIndexInstrumentor().instrument(tracer_provider=provider)
asyncio.run(main())
calls = [span.attributes for span in spans.get_finished_spans() if "gen_ai.output.messages" in span.attributes]
for attributes in calls:
    [message] = json.loads(attributes["gen_ai.output.messages"])
    print(f"finish reason {message['finish_reason']}: {[part['type'] for part in message['parts']]}")
given = json.loads(calls[1]["gen_ai.input.messages"])
print("the next input:", [[part["type"] for part in message["parts"]] for message in given])
kinds = [span.attributes.get("traceloop.span.kind") for span in spans.get_finished_spans()]
print(f"spans of tools: {kinds.count('tool')}")
PY
venv/bin/python agent.py 2>log | tee output
diff - output <<'SEEN'
finish reason tool_call: ['text']
finish reason stop: ['text']
the next input: [['text'], ['text'], ['tool_call_response']]
spans of tools: 0
SEEN

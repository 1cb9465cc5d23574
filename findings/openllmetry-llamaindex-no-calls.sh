#!/usr/bin/env bash
# Expected: OpenLLMetry's messages of a LlamaIndex model tell the calls that its finish reason announces.
# Seen: an answer that ended with `tool_call` has a text alone, in outputs and in inputs, and no span has the kind of a
#   tool: they are tasks, of which one has the tool's name and arguments.
# Versions: llama-index-core 0.14.25, opentelemetry-instrumentation-llamaindex 0.62.4, 2026-11-28
# So: calls are read from what stands beside such messages (schemas/knowledgepulse_convert/spans/genai.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages llama-index-core==0.14.25 llama-index-llms-openai-like==0.8.1 \
    opentelemetry-instrumentation-llamaindex==0.62.4 opentelemetry-sdk

cat >agent.py <<'PY'
import asyncio
import json

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from scripted_model import serve, weigh


async def main():
    model = OpenAILike(
        model="scripted",
        api_base=serve("I weigh it."),
        api_key="unused",
        is_chat_model=True,
        is_function_calling_model=True,
    )
    await FunctionAgent(tools=[weigh], llm=model, streaming=False).run("How heavy is the loaf?")


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
PYTHONPATH="$support" venv/bin/python agent.py 2>log | tee output
diff - output <<'SEEN'
finish reason tool_call: ['text']
finish reason stop: ['text']
the next input: [['text'], ['text'], ['tool_call_response']]
spans of tools: 0
SEEN

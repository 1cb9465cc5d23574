#!/usr/bin/env bash
# Expected: OpenInference's instrumentation of Haystack tells what a tool answered, in messages or in a span.
# Seen: tools have no spans, calls no ids, and the message with a result has a role alone. The result is only in the
#   call's whole input, as Python represents a `ChatMessage`.
# Versions: haystack-ai 3.4.1, openinference-instrumentation-haystack 0.1.46, 2026-11-28
# So: such texts are read (schemas/knowledgepulse_convert/common/python_repr.py) where messages lack responses.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages haystack-ai==3.4.1 openinference-instrumentation-haystack==0.1.46

cat >agent.py <<'PY'
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from openinference.instrumentation.haystack import HaystackInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from scripted_model import serve, weigh

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
HaystackInstrumentor().instrument(tracer_provider=provider)
generator = OpenAIChatGenerator(api_key=Secret.from_token("unused"), model="scripted", api_base_url=serve(None))
Agent(chat_generator=generator, tools=[create_tool_from_function(weigh)]).run([ChatMessage.from_user("How heavy?")])
recorded = [span.attributes for span in spans.get_finished_spans()]
kinds = [attributes.get("openinference.span.kind") for attributes in recorded]
print(f"spans of tools: {kinds.count('TOOL')}")
first, last = (attributes for attributes in recorded if "llm.output_messages.0.message.role" in attributes)
print("the call:", sorted(name.rsplit(".", 1)[1] for name in first if ".tool_call." in name))
print("the result:", [name for name in last if name.startswith("llm.input_messages.2.")])
print("in the whole input:", "result='812 g'" in last["input.value"])
PY
HAYSTACK_TELEMETRY_ENABLED=false PYTHONPATH="$support" venv/bin/python agent.py 2>log | tee output
diff - output <<'SEEN'
spans of tools: 0
the call: ['arguments', 'name']
the result: ['llm.input_messages.2.message.role']
in the whole input: True
SEEN

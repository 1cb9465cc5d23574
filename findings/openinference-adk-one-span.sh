#!/usr/bin/env bash
# Expected: OpenInference's instrumentation of Google's ADK writes a span for each call of the model.
# Seen: all calls of an agent write to one span, over each other: the last answer's text stands beside an earlier
#   answer's call of a tool, and the span of the tool that was called is within that of the model.
# Versions: google-adk 2.13.0, openinference-instrumentation-google-adk 1.0.5, 2026-11-28
# So: a model whose span is around its tools answers after them (schemas/knowledgepulse_convert/spans/tree.py),
#   and a call that an output tells again although it has been answered is none.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages google-adk==2.13.0 openinference-instrumentation-google-adk==1.0.5

cat >agent.py <<'PY'
import asyncio

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from openinference.instrumentation.google_adk import GoogleADKInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
GoogleADKInstrumentor().instrument(tracer_provider=provider)


class Scripted(BaseLlm):
    asked: int = 0

    async def generate_content_async(self, llm_request, stream=False):
        self.asked += 1
        call = types.Part(function_call=types.FunctionCall(name="weigh", args={"what": "loaf"}))
        parts = [call] if self.asked == 1 else [types.Part(text="It weighs 812 g.")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def weigh(what: str) -> str:
    """Weigh a thing."""
    return "812 g"


async def main():
    model = Scripted(model="scripted")
    runner = InMemoryRunner(LlmAgent(name="baker", model=model, tools=[weigh]), app_name="bakery")
    session = await runner.session_service.create_session(app_name="bakery", user_id="guest")
    asked = types.Content(role="user", parts=[types.Part(text="How heavy is the loaf?")])
    async for _ in runner.run_async(user_id="guest", session_id=session.id, new_message=asked):
        pass
    print(f"the model was asked {model.asked} times")


asyncio.run(main())
by_id = {span.context.span_id: span for span in spans.get_finished_spans()}
for span in by_id.values():
    kind = span.attributes.get("openinference.span.kind")
    if kind == "TOOL":
        around = by_id[span.parent.span_id].attributes
        print(f"a span of kind TOOL, within one of kind {around['openinference.span.kind']}")
    elif kind == "LLM":
        told = {name: value for name, value in span.attributes.items() if name.startswith("llm.output_messages")}
        texts = [value for name, value in told.items() if name.endswith("message_content.text")]
        calls = [value for name, value in told.items() if name.endswith("function.name")]
        print(f"a span of kind LLM: output {texts}, with calls of {calls}")
PY
venv/bin/python agent.py 2>log | tee output
diff - output <<'SEEN'
the model was asked 2 times
a span of kind TOOL, within one of kind LLM
a span of kind LLM: output ['It weighs 812 g.'], with calls of ['weigh']
SEEN

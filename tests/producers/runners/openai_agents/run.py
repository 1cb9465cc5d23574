import asyncio
import json
import os
from pathlib import Path

from agents import (
    Agent,
    MaxTurnsExceeded,
    Runner,
    function_tool,
    set_default_openai_api,
    set_trace_processors,
)
from agents.tracing import TracingProcessor
from bakery import (
    INSTRUCTIONS,
    MODEL,
    OBJECTIVE,
    OUTPUT,
    RUN,
    SCRIPT,
    VARIANT,
    by_openinference,
    by_openllmetry,
    told,
    weigh,
)


class Writer(TracingProcessor):
    """Writes the SDK's own spans as it exports them."""

    def on_trace_start(self, trace): ...
    def on_span_start(self, span): ...
    def on_trace_end(self, trace):
        self._write(trace)

    def on_span_end(self, span):
        self._write(span)

    def _write(self, item):
        with Path(OUTPUT, "spans.jsonl").open("a") as file:
            file.write(json.dumps(item.export()) + "\n")

    def shutdown(self): ...
    def force_flush(self): ...


def instrument():
    if VARIANT.startswith("own"):
        set_trace_processors([Writer()])
    elif VARIANT.startswith("openinference"):
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        by_openinference(OpenAIAgentsInstrumentor)
    elif VARIANT == "openllmetry":
        from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        set_trace_processors([])
        by_openllmetry(OpenAIAgentsInstrumentor)
    elif VARIANT == "logfire":
        import logfire

        set_trace_processors([])
        logfire.configure(send_to_logfire=False, console=False)
        logfire.instrument_openai_agents()
    elif VARIANT == "mlflow":
        import mlflow

        set_trace_processors([])
        mlflow.openai.autolog()


def team():
    tool = function_tool(weigh)
    baker = Agent(name="baker", instructions=INSTRUCTIONS, model=MODEL, tools=[tool])
    if RUN == "handoff":
        return Agent(name="host", instructions="Hand over.", model=MODEL, handoffs=[baker])
    if RUN == "sub_agent":
        asked = baker.as_tool(tool_name="ask_baker", tool_description="Ask the baker.")
        return Agent(name="host", instructions="Ask.", model=MODEL, tools=[asked])
    return baker


async def main():
    set_default_openai_api(os.environ.get("OPENAI_AGENTS_API", "responses"))
    instrument()
    turns = SCRIPT["limit"] or 10
    try:
        if SCRIPT["stream"]:
            async for _ in Runner.run_streamed(team(), OBJECTIVE, max_turns=turns).stream_events():
                pass
        else:
            await Runner.run(team(), OBJECTIVE, max_turns=turns)
    except MaxTurnsExceeded as error:
        told(error)


asyncio.run(main())

import asyncio
from pathlib import Path

from bakery import INSTRUCTIONS, OBJECTIVE, OUTPUT, RUN, SCRIPT, VARIANT, told, tracer_provider, weigh
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.google_llm import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types


def instrument():
    provider = tracer_provider()
    if VARIANT == "openinference":
        from openinference.instrumentation.google_adk import GoogleADKInstrumentor

        GoogleADKInstrumentor().instrument(tracer_provider=provider)
    if VARIANT == "logs":
        from opentelemetry._logs import set_logger_provider
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        logs = LoggerProvider()
        logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        set_logger_provider(logs)


def weighing(what: str) -> dict:
    """Weigh a thing."""
    try:
        return {"result": weigh(what)}
    except RuntimeError as error:
        return {"error": str(error)}


weighing.__name__ = "weigh"


def agent(name, tools=(), **options):
    model = Gemini(model="gemini-scripted")
    return LlmAgent(name=name, model=model, instruction=INSTRUCTIONS, tools=list(tools), **options)


def team():
    baker = agent("baker", [weighing], description="weighs")
    if RUN == "handoff":
        return agent("host", sub_agents=[baker])
    if RUN == "sub_agent":
        return agent("host", [AgentTool(baker)])
    return baker


async def main():
    instrument()
    runner = InMemoryRunner(team(), app_name="bakery")
    session = await runner.session_service.create_session(app_name="bakery", user_id="guest")
    config = RunConfig(
        max_llm_calls=SCRIPT["limit"] or 10,
        streaming_mode=StreamingMode.SSE if SCRIPT["stream"] else StreamingMode.NONE,
    )
    asked = types.Content(role="user", parts=[types.Part(text=OBJECTIVE)])
    try:
        async for _ in runner.run_async(
            user_id="guest", session_id=session.id, new_message=asked, run_config=config
        ):
            pass
    except Exception as error:
        told(error)
    session = await runner.session_service.get_session(
        app_name="bakery", user_id="guest", session_id=session.id
    )
    Path(OUTPUT, "session.json").write_text(session.model_dump_json(by_alias=True, exclude_none=True))


asyncio.run(main())

import asyncio
from pathlib import Path

from bakery import INSTRUCTIONS, MODEL, OBJECTIVE, OUTPUT, RUN, SCRIPT, VARIANT, told, tracer_provider, weigh
from pydantic_ai import Agent, InstrumentationSettings, ModelRetry
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.usage import UsageLimits


def weighing(what: str) -> str:
    """Weigh a thing."""
    try:
        return weigh(what)
    except RuntimeError as error:
        raise ModelRetry(str(error)) from error


def agent(name, tools):
    made = Agent(OpenAIChatModel(MODEL), name=name, instructions=INSTRUCTIONS)
    for called, tool in tools.items():
        made.tool_plain(tool, name=called)
    return made


def team():
    baker = agent("baker", {"weigh": weighing})
    if RUN != "sub_agent":
        return baker

    async def ask(request: str) -> str:
        """Ask the baker."""
        return (await baker.run(request)).output

    return agent("host", {"ask_baker": ask})


async def seen(context, events):
    async for _ in events:
        pass


async def main():
    if VARIANT == "spans":
        Agent.instrument_all(
            InstrumentationSettings(tracer_provider=tracer_provider(), include_content=SCRIPT["content"])
        )
    limits = UsageLimits(request_limit=SCRIPT["limit"])
    try:
        # `run_stream` would take the text before a call as the answer.
        options = {"event_stream_handler": seen} if SCRIPT["stream"] else {}
        run = await team().run(OBJECTIVE, usage_limits=limits, **options)
    except AgentRunError as error:
        told(error)
    else:
        Path(OUTPUT, "messages.json").write_bytes(run.all_messages_json())


asyncio.run(main())

import asyncio

from agent_framework import Agent, tool
from agent_framework.observability import enable_instrumentation
from agent_framework.openai import OpenAIChatClient
from bakery import INSTRUCTIONS, MODEL, OBJECTIVE, RUN, SCRIPT, tracer_provider, weigh


def agent(name, *tools):
    return Agent(OpenAIChatClient(model=MODEL), INSTRUCTIONS, name=name, tools=list(tools))


def team():
    baker = agent("baker", tool(weigh))
    if RUN != "sub_agent":
        return baker
    return agent("host", baker.as_tool(name="ask_baker", description="Ask the baker.", arg_name="request"))


async def main():
    tracer_provider()
    enable_instrumentation(enable_sensitive_data=SCRIPT["content"])
    if SCRIPT["stream"]:
        async for _ in team().run(OBJECTIVE, stream=True):
            pass
    else:
        await team().run(OBJECTIVE)


asyncio.run(main())

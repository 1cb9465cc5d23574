import asyncio

from bakery import INSTRUCTIONS, MODEL, OBJECTIVE, RUN, SCRIPT, tracer_provider, weigh
from strands import Agent, tool
from strands.models.openai import OpenAIModel


def agent(name, *tools):
    return Agent(
        model=OpenAIModel(model_id=MODEL),
        name=name,
        system_prompt=INSTRUCTIONS,
        tools=list(tools),
        callback_handler=None,
    )


def team():
    baker = agent("baker", tool(weigh))
    if RUN != "sub_agent":
        return baker

    @tool
    def ask_baker(request: str) -> str:
        """Ask the baker."""
        return str(baker(request))

    return agent("host", ask_baker)


tracer_provider()
limits = {"turns": SCRIPT["limit"]} if SCRIPT["limit"] else None
asyncio.run(team().invoke_async(OBJECTIVE, limits=limits))

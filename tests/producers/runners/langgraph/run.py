import asyncio
import os

from bakery import (
    INSTRUCTIONS,
    MODEL,
    OBJECTIVE,
    RUN,
    SCRIPT,
    VARIANT,
    by_openinference,
    by_openllmetry,
    told,
    tracer_provider,
    weigh,
)
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError


def instrument():
    if VARIANT == "openinference":
        from openinference.instrumentation.langchain import LangChainInstrumentor

        by_openinference(LangChainInstrumentor)
    elif VARIANT == "openllmetry":
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor

        by_openllmetry(LangchainInstrumentor)
    else:
        os.environ["LANGSMITH_HIDE_INPUTS"] = os.environ["LANGSMITH_HIDE_OUTPUTS"] = str(
            not SCRIPT["content"]
        ).lower()
        tracer_provider()


@wrap_tool_call
async def told_to_the_model(request, handler):
    """Let the model see a tool's error, as the documents of LangChain do it."""
    try:
        return await handler(request)
    except RuntimeError as error:
        return ToolMessage(content=f"Error: {error}", tool_call_id=request.tool_call["id"], status="error")


def team():
    model = ChatOpenAI(model=MODEL)
    tools = {"tools": [tool(weigh, return_direct=RUN == "returned")], "middleware": [told_to_the_model]}
    baker = create_agent(model, system_prompt=INSTRUCTIONS, name="baker", **tools)
    if RUN != "sub_agent":
        return baker

    @tool
    async def ask_baker(request: str) -> str:
        """Ask the baker."""
        result = await baker.ainvoke({"messages": [("user", request)]})
        return result["messages"][-1].content

    return create_agent(model, system_prompt="Ask.", name="host", tools=[ask_baker])


async def main():
    instrument()
    # Each turn of the model takes a step, and so do its tools.
    config = {"recursion_limit": 2 * SCRIPT["limit"] if SCRIPT["limit"] else 20}
    asked = {"messages": [("user", OBJECTIVE)]}
    try:
        if SCRIPT["stream"]:
            async for _ in team().astream(asked, config, stream_mode="messages"):
                pass
        else:
            await team().ainvoke(asked, config)
    except GraphRecursionError as error:
        told(error)


asyncio.run(main())
if VARIANT == "langsmith":
    from langsmith import Client

    Client().flush()

import asyncio
import json
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.teams import Swarm
from autogen_ext.models.openai import OpenAIChatCompletionClient
from bakery import (
    INSTRUCTIONS,
    MODEL,
    OBJECTIVE,
    OUTPUT,
    RUN,
    SCRIPT,
    VARIANT,
    by_openinference,
    tracer_provider,
    weigh,
)

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
    "multiple_system_messages": False,
}


def instrument():
    if VARIANT == "openinference":
        from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
        from openinference.instrumentation.openai import OpenAIInstrumentor

        by_openinference(AutogenAgentChatInstrumentor, OpenAIInstrumentor)
    elif VARIANT == "spans":
        tracer_provider()


def agent(name, tools, **options):
    client = OpenAIChatCompletionClient(model=MODEL, model_info=INFO)
    return AssistantAgent(
        name,
        client,
        tools=tools,
        system_message=INSTRUCTIONS,
        max_tool_iterations=SCRIPT["limit"] or 10,
        **options,
    )


def team():
    baker = agent("baker", [weigh])
    if RUN != "handoff":
        return baker
    return Swarm(
        [agent("host", [], handoffs=["baker"]), baker], termination_condition=TextMessageTermination("baker")
    )


async def main():
    instrument()
    result = await team().run(task=OBJECTIVE)
    messages = [message.model_dump(mode="json") for message in result.messages]
    Path(OUTPUT, "messages.json").write_text(json.dumps(messages))


asyncio.run(main())

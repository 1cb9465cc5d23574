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
    weigh,
)
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


def instrument():
    if VARIANT == "openinference":
        from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

        by_openinference(LlamaIndexInstrumentor)
    else:
        from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor

        by_openllmetry(LlamaIndexInstrumentor)


def team():
    model = OpenAILike(
        model=MODEL,
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key="unused",
        is_chat_model=True,
        is_function_calling_model=True,
    )
    options = {"llm": model, "system_prompt": INSTRUCTIONS, "streaming": SCRIPT["stream"]}
    baker = FunctionAgent(
        name="baker",
        description="weighs",
        tools=[FunctionTool.from_defaults(weigh, return_direct=RUN == "returned")],
        **options,
    )
    if RUN != "handoff":
        return baker
    host = FunctionAgent(name="host", description="greets", can_handoff_to=["baker"], **options)
    return AgentWorkflow(agents=[host, baker], root_agent="host")


async def main():
    instrument()
    limits = {"max_iterations": SCRIPT["limit"]} if SCRIPT["limit"] else {}
    try:
        await team().run(OBJECTIVE, **limits)
    except Exception as error:
        told(error)


asyncio.run(main())

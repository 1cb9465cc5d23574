import os

from bakery import INSTRUCTIONS, MODEL, OBJECTIVE, SCRIPT, VARIANT, by_openinference, tracer_provider, weigh
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function


def instrument():
    if VARIANT == "own":
        os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = str(SCRIPT["content"]).lower()
        provider = tracer_provider()
        from haystack import tracing
        from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer

        tracing.tracer.is_content_tracing_enabled = SCRIPT["content"]
        tracing.enable_tracing(OpenTelemetryTracer(provider.get_tracer("bakery")))
    else:
        from openinference.instrumentation.haystack import HaystackInstrumentor

        by_openinference(HaystackInstrumentor)


instrument()
agent = Agent(
    chat_generator=OpenAIChatGenerator(model=MODEL),
    tools=[create_tool_from_function(weigh)],
    system_prompt=INSTRUCTIONS,
    max_agent_steps=SCRIPT["limit"] or 10,
)
options = {"streaming_callback": lambda chunk: None} if SCRIPT["stream"] else {}
agent.run(messages=[ChatMessage.from_user(OBJECTIVE)], **options)

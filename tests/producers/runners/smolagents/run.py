from bakery import INSTRUCTIONS, MODEL, OBJECTIVE, RUN, SCRIPT, by_openinference, told, weigh
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import AgentError, OpenAIModel, ToolCallingAgent, tool


def agent(name, tools, **options):
    return ToolCallingAgent(
        tools,
        OpenAIModel(MODEL),
        instructions=INSTRUCTIONS,
        name=name,
        stream_outputs=SCRIPT["stream"],
        **options,
    )


def team():
    baker = agent("baker", [tool(weigh)], description="weighs", max_steps=SCRIPT["limit"] or 10)
    return agent("host", [], managed_agents=[baker]) if RUN == "sub_agent" else baker


by_openinference(SmolagentsInstrumentor)
try:
    team().run(OBJECTIVE)
except AgentError as error:
    told(error)

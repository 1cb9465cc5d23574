import os

from bakery import INSTRUCTIONS, MODEL, OBJECTIVE, SCRIPT, VARIANT, by_openinference, by_openllmetry, weigh
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


def instrument():
    if VARIANT == "openinference":
        from openinference.instrumentation.crewai import CrewAIInstrumentor

        by_openinference(CrewAIInstrumentor)
    elif VARIANT == "openinference-openai":
        from openinference.instrumentation.crewai import CrewAIInstrumentor
        from openinference.instrumentation.openai import OpenAIInstrumentor

        by_openinference(CrewAIInstrumentor, OpenAIInstrumentor)
    else:
        from opentelemetry.instrumentation.crewai import CrewAIInstrumentor
        from opentelemetry.instrumentation.openai import OpenAIInstrumentor

        by_openllmetry(CrewAIInstrumentor, OpenAIInstrumentor)


instrument()
baker = Agent(
    role="baker",
    goal="weigh",
    backstory=INSTRUCTIONS,
    llm=LLM(model=f"openai/{MODEL}", base_url=os.environ["OPENAI_BASE_URL"], api_key="unused"),
    tools=[tool("weigh")(weigh)],
    max_iter=SCRIPT["limit"] or 10,
)
task = Task(description=OBJECTIVE, expected_output="the weights", agent=baker)
Crew(agents=[baker], tasks=[task]).kickoff()

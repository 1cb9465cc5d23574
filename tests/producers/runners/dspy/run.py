import dspy
from bakery import MODEL, OBJECTIVE, SCRIPT, by_openinference, weigh
from openinference.instrumentation.dspy import DSPyInstrumentor

by_openinference(DSPyInstrumentor)
dspy.configure(lm=dspy.LM(f"openai/{MODEL}", cache=False))
dspy.ReAct("question -> answer", tools=[weigh], max_iters=SCRIPT["limit"] or 10)(question=OBJECTIVE)

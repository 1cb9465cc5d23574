"""An agent that is a loop of some lines, as many are, with what a recorder's documents say to add."""

import json
import os

from bakery import INSTRUCTIONS, MODEL, OBJECTIVE, VARIANT, tracer_provider, weigh

WEIGH = {
    "name": "weigh",
    "description": "Weigh a thing.",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
}


def plain(function):
    return function


def recorder():
    """Return the model's call, and the decorators of the agent and of its tools."""
    if VARIANT == "litellm":
        import litellm

        litellm.callbacks = ["otel"]
        return (
            litellm.completion,
            tracer_provider().get_tracer("bakery").start_as_current_span("baker"),
            plain,
        )
    if VARIANT == "langfuse":
        os.environ["LANGFUSE_BASE_URL"] = os.environ["PRODUCER_RECEIVER_URL"]
        from langfuse import observe
        from langfuse.openai import OpenAI

        return OpenAI().chat.completions.create, observe(as_type="agent"), observe(as_type="tool")
    if VARIANT == "openlit":
        import openlit

        openlit.init(otlp_endpoint=os.environ["PRODUCER_RECEIVER_URL"], disable_metrics=True)
        decorators = (openlit.trace, openlit.trace)
    elif VARIANT == "traceloop":
        from traceloop.sdk import Traceloop
        from traceloop.sdk.decorators import agent, tool

        Traceloop.init(app_name="bakery", api_endpoint=os.environ["PRODUCER_RECEIVER_URL"])
        decorators = (agent(name="baker"), tool())
    elif VARIANT == "mlflow":
        import mlflow

        mlflow.openai.autolog()
        decorators = (mlflow.trace(span_type="AGENT"), mlflow.trace(span_type="TOOL"))
    elif VARIANT == "logfire":
        import logfire

        logfire.configure(send_to_logfire=False, console=False)
        logfire.instrument_openai()
        decorators = (logfire.instrument("agent"), logfire.instrument("tool"))
    else:
        from openinference.instrumentation.openai import OpenAIInstrumentor

        provider = tracer_provider()
        OpenAIInstrumentor().instrument(tracer_provider=provider)
        from openinference.instrumentation import OITracer, TraceConfig

        tracer = OITracer(provider.get_tracer("bakery"), TraceConfig())
        decorators = (tracer.agent, tracer.tool)
    from openai import OpenAI

    return OpenAI().chat.completions.create, *decorators


complete, as_agent, as_tool = recorder()
weighing = as_tool(weigh)


def answered(call):
    try:
        content = weighing(**json.loads(call.function.arguments))
    except RuntimeError as error:
        content = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "content": content}


@as_agent
def baker(request):
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": request}]
    model = f"openai/{MODEL}" if VARIANT == "litellm" else MODEL
    while True:
        said = complete(model=model, messages=messages, tools=[{"type": "function", "function": WEIGH}])
        message = said.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        messages += map(answered, message.tool_calls)


baker(OBJECTIVE)
if VARIANT == "langfuse":
    from langfuse import get_client

    get_client().flush()

"""How runs are found in a tracer's tree of calls, and how they ended."""

import json

import pytest

from knowledgepulse_convert import convert


def span(number, parent=0, **attributes):
    values = [{"key": name.replace("__", "."), "value": {"stringValue": v}} for name, v in attributes.items()]
    return {
        "traceId": f"{1:032x}",
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": attributes.get("gen_ai__agent__name", ""),
        "startTimeUnixNano": number,
        "endTimeUnixNano": number + 1,
        "attributes": values,
    }


def chat(number, parent, said, *calls):
    parts = [{"type": "text", "content": said}] if said else []
    parts += [{"type": "tool_call", "id": name, "name": name, "arguments": {"a": 1}} for name in calls]
    asked = {"role": "user", "parts": [{"type": "text", "content": "Please weigh the loaf."}]}
    return span(
        number,
        parent,
        gen_ai__operation__name="chat",
        gen_ai__input__messages=json.dumps([asked]),
        gen_ai__output__messages=json.dumps([{"role": "assistant", "parts": parts}]),
    )


def agent(number, parent, name):
    return span(number, parent, gen_ai__operation__name="invoke_agent", gen_ai__agent__name=name)


def traces_of(*spans):
    conversions = convert({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})
    return [conversion.trace for conversion in conversions]


@pytest.mark.parametrize(("call", "success"), [("weigh", False), ("final_result", True)])
def test_a_run_may_end_with_a_call_that_gives_the_answer(call, success):
    (trace,) = traces_of(agent(1, 0, "baker"), chat(2, 1, "", call))
    assert trace.metadata.success is success


@pytest.mark.parametrize(("name", "runs"), [("transfer_to_baker", 1), ("transfer_to_cook", 2), ("baker", 2)])
def test_an_agent_that_another_hands_over_to_continues_its_run(name, runs):
    spans = [
        span(1),
        agent(2, 1, "host"),
        chat(3, 2, "Over.", name),
        agent(5, 1, "baker"),
        chat(6, 5, "812 g."),
    ]
    assert len(traces_of(*spans)) == runs


def step(number, parent, returned):
    """As smolagents has them by OpenInference, which export a run's own span only at its end."""
    return span(
        number, parent, openinference__span__kind="CHAIN", **({"output__value": returned} if returned else {})
    )


@pytest.mark.parametrize("is_exported", [False, True])
def test_what_a_step_returned_is_no_answer_of_a_run_that_was_interrupted_behind_it(is_exported):
    whole = [agent(1, 0, "baker")] if is_exported else []
    (trace,) = traces_of(*whole, step(2, 1, "812 g"), chat(3, 2, "I weigh it.", "weigh"), step(4, 1, None))
    assert (trace.metadata.ending, trace.metadata.success) == ("cut_off", False)
    assert "812 g" not in [each.content for each in trace.steps]


@pytest.mark.parametrize(
    ("part", "advice"),
    [({"type": "text"}, "enable content capture"), ({"type": "text", "content": "812 g"}, "may hold some")],
)
def test_messages_that_no_reader_knows_are_named_only_if_they_have_content(part, advice):
    """As Pydantic AI writes them: of a run without content, only their roles and types."""
    others = json.dumps([{"role": "assistant", "parts": [part], "finish_reason": "stop"}])
    host = span(1, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="baker", all_messages=others)
    call = span(2, 1, gen_ai__operation__name="chat")
    (conversion,) = convert({"resourceSpans": [{"scopeSpans": [{"spans": [host, call]}]}]})
    assert advice in str(conversion)

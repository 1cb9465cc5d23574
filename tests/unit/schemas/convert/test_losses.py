"""Nothing is lost silently: a text is in the trace or in the loss report."""

import copy
import json
from itertools import count

import pytest

from knowledgepulse_schemas.convert import Conversion, Losses, convert
from support.exports import DOCUMENTS

LENGTH = 1000
"""Length of each planted text: longer than all other losses of a document together."""


def objects(value):
    """Yield every object of a document, except those in JSON texts."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(one)


def converted(document):
    losses, written = Losses(), ""
    for outcome in convert(document):
        assert isinstance(outcome, Conversion), outcome
        losses.merge(outcome.losses)
        written += outcome.trace.to_json().decode()
    return written, sum(loss.characters for loss in losses.values())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_unknown_members_are_reported_at_every_level(name):
    document = json.loads(json.dumps(DOCUMENTS[name]))
    for number in range(len(list(objects(document)))):
        planted = copy.deepcopy(document)
        holder = list(objects(planted))[number]
        if "stringValue" in holder or "p1" in holder:  # OTLP's one-member values, Jaeger's map of processes
            continue
        holder["a member that no one knows"] = "planted" + "x" * LENGTH

        written, lost = converted(planted)

        kept = "planted" in written
        assert kept or lost >= LENGTH, f"lost from {sorted(holder)}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_text_is_in_the_trace_or_in_the_loss_report(name):
    document, numbers = json.loads(json.dumps(DOCUMENTS[name])), count()
    names = {
        "content",
        "text",
        "thinking",
        "thought",
        "observation",
        "message",
        "input",
        "output",
        "response",
    }
    for holder in objects(document):
        for member, value in holder.items():
            if member in names and isinstance(value, str):
                holder[member] = f"planted {next(numbers)} " + "x" * LENGTH

    written, lost = converted(document)

    missing = sum(f"planted {number} " not in written for number in range(next(numbers)))
    assert lost // LENGTH >= missing


def planted_fault(document):
    """Replace the first member with messages or content by a number."""
    for holder in objects(document):
        for member in (
            "observations",
            "messages",
            "traj",
            "steps",
            "inputs",
            "input",
            "span_data",
            "message",
        ):
            if member in holder:
                holder[member] = 7
                return


@pytest.mark.parametrize("name", ["openai", "anthropic", "langchain", "atif", "tau_bench", "langfuse trace"])
def test_a_malformed_item_does_not_stop_the_rest_of_its_list(name):
    whole = DOCUMENTS[name] if isinstance(DOCUMENTS[name], list) else [DOCUMENTS[name]]
    good, broken = json.loads(json.dumps([whole[0], whole[0]]))
    planted_fault(broken)

    outcomes = list(convert([good, broken, good], name.split()[0]))

    assert [isinstance(outcome, Conversion) for outcome in outcomes] == [True, False, True]
    assert "[1]" in str(outcomes[1])

"""Nothing is lost silently: a text is in the trace or in the loss report."""

import json
import re
from itertools import count

import pytest

from knowledgepulse_convert import Conversion, Losses, Options, convert
from knowledgepulse_convert.common.reading import parse_json
from support.conversions import FOLDER, read_cases, small_documents

MEMBER = "a member that no one knows"
LENGTH = 1000
"""Length of each planted text: longer than all other losses of a document together."""
DOCUMENTS = small_documents()
CASES = {file.stem: read_cases(file) for file in sorted(FOLDER.glob("*.jsonl"))}
NAMING = {"id", "uuid", "parentUuid", "name", "logfire.msg"}
"""Members whose values are names or ids, and no texts."""
TOLD_TWICE = {"art", "mini_swe_agent", "swe_agent"}
"""Formats that record the same text in several members, of which one is read."""
MADE_OF_IDS = {"subagents are runs of their own linked to their parent"}
"""Cases whose texts are ids of others."""
UNREPORTED = {
    "only one member of a value is set": (
        r".*attributes\[.*\][.]value([.](arrayValue|kvlistValue|values\[.*\]|value))*"
    ),
    "the members are ids": r".*[.]data\[\][.]processes",
    "the arguments of a call that is recorded twice": (
        r"(jaeger|lang.*|openai_agents|otel_sdk|otlp|phoenix|tempo): .*"
        r"([.]arguments|[.]args|\[TOOL\][.]input|\[tool\][.]inputs|[.]span_data[.]input"
        r"|[.]attributes[.]input[.]value|content\[tool(_use|-call)\][.](input|args)"
        r"|\[(.*arguments|.*_args|ai[.]toolCall[.]args|input[.]value|tool_input|.*span[.]?[iI]nputs?"
        r"|langfuse[.]observation[.]input)\][.]value([.]string_?[vV]alue)?)"
    ),
    "the response of a call that is recorded twice": (
        r"otlp: .*\[ai[.]prompt[.]messages\].*content\[tool-result\][.](output[.]value|result)"
    ),
    "a later line replaces this one": (
        r"gemini_cli: (a gemini session is a run 3\[gemini\]"
        r"|messages that a session no longer has are a loss\[user\]"
        r"|(0.61 writes|a resumed session tells) .*\[(gemini|user)\].*)"
    ),
    "the definition of a tool that each request repeats": (
        r"(agent_lightning|weave): .*[.]tools\[function\].*"
        r"|otlp: ADK for Java .*[.]functionDeclarations\[\][.]parameters.*"
    ),
    "what the trajectory in a row has, too": (
        r"art: rows of a Parquet file.*[.](group_json|messages|metadata|metrics|tools).*"
    ),
    "the input of a tool that the model's answer has": r"braintrust: .*\[\][.]input",
    "an id that looks like JSON": r"claude_code: .*[.]uuid.*",
}
"""Places whose unknown members are in no loss report, by the reason."""


def objects(value):
    """Yield every object of a document, except those in JSON texts."""
    if isinstance(value, dict):
        yield value
    for _, member in members(value):
        yield from objects(member)


def plantings(value, path=""):
    """Plant a member into one object of a document after another, also in JSON texts, and yield its path."""
    if isinstance(value, dict):
        value[MEMBER] = "planted" + "x" * LENGTH
        yield path
        del value[MEMBER]
    for key, member in list(members(value)):
        below = f"{path}.{key}" if isinstance(key, str) else f"{path}[{type_of(member)}]"
        parsed = parse_json(member)
        for place in plantings(parsed, below):
            if parsed is not member:
                value[key] = json.dumps(parsed)
            yield place
        value[key] = member


def members(value):
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def type_of(item):
    kinds = (item.get(name) for name in ("key", "type", "run_type")) if isinstance(item, dict) else ()
    return next((kind for kind in kinds if isinstance(kind, str)), "")


def converted(document, case=()):
    case, losses, written = dict(case), Losses(), ""
    lines = iter(document) if case.get("lines") else document
    for outcome in convert(lines, case.get("from", "auto"), Options(**case.get("options", {}))):
        assert isinstance(outcome, Conversion), outcome
        losses.merge(outcome.losses)
        written += outcome.trace.to_json().decode()
    return written, sum(loss.characters for loss in losses.values())


def has_an_error(case):
    return any(isinstance(outcome, str) for outcome in case.get("expected", ()))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_unknown_members_are_reported_at_every_level(name):
    for case in CASES[name]:
        if has_an_error(case):
            continue
        document = json.loads(json.dumps(case["document"]))
        _, before = converted(document, case)
        for path in plantings(document):
            place = f"{name}: {case['name']}{path}"
            if any(re.fullmatch(pattern, place) for pattern in UNREPORTED.values()):
                continue

            written, lost = converted(document, case)

            assert "planted" in written or lost - before >= LENGTH, f"lost from {place}"


def with_planted_texts(value, numbers, name=""):
    """Return a document in which each text of three words differs from all others, also in JSON texts."""
    if isinstance(value, dict):
        return {key: with_planted_texts(member, numbers, key) for key, member in value.items()}
    if isinstance(value, list):
        return [with_planted_texts(item, numbers, name) for item in value]
    if name in NAMING:
        return value
    if isinstance(parsed := parse_json(value), dict | list):
        return json.dumps(with_planted_texts(parsed, numbers, name))
    if not isinstance(value, str) or len(value.split()) < 3:
        return value
    return f"{value} planted {next(numbers)} " + "x" * LENGTH


@pytest.mark.parametrize("name", sorted(CASES.keys() - TOLD_TWICE))
def test_every_text_is_in_the_trace_or_in_the_loss_report(name):
    """Attributes of spans were left out, so that a call that another span repeats in other words was lost."""
    for case in CASES[name]:
        if has_an_error(case) or case["name"] in MADE_OF_IDS:
            continue
        numbers = count()

        written, lost = converted(with_planted_texts(case["document"], numbers), case)

        missing = sum(f"planted {number} " not in written for number in range(next(numbers)))
        assert lost // LENGTH >= missing, case["name"]


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


def test_a_suspect_loss_stays_suspect_in_a_total():
    total, losses = Losses(), Losses()
    losses.add_unknown("line", {"text": "Go on"})
    total.add("line", "x")
    total.merge(losses)

    assert total["line"].suspect


ENCODED = ".value.stringValue"
"""A member of OTLP's own encoding, which no tracer writes otherwise."""
NAMES, ARGUMENTS = ("name", "toolName", "tool_name", "toolCallName"), ("arguments", "args", "toolKwargs")


def called_in(value):
    """Yield the names of tools in objects with a name and arguments, at any depth, also in JSON texts."""
    value = parse_json(value)
    if isinstance(value, dict) and any(isinstance(parse_json(value.get(each)), dict) for each in ARGUMENTS):
        yield from (value[name] for name in NAMES if isinstance(value.get(name), str))
    for _, member in members(value):
        yield from called_in(member)


def broken(value, path=""):
    """Rename one member after another in which a call is, as a reader that knows no such member sees it."""
    for key, member in list(members(value)):
        below = f"{path}.{key}" if isinstance(key, str) else path
        if isinstance(value, dict) and any(called_in({key: member})):
            value[MEMBER] = value.pop(key)
            yield below
            value[key] = value.pop(MEMBER)
        yield from broken(member, below)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_call_that_a_reader_does_not_find_is_a_step_or_a_suspect_loss(name):
    """Calls in members that no reader knew vanished with a plain loss, and the run counted as a success."""
    document, options = json.loads(json.dumps(DOCUMENTS[name])), Options(objective="What is asked?")
    tools = set(called_in(document))
    for path in broken(document):
        if path.endswith(ENCODED):
            continue
        outcomes = list(convert(document, name.split()[0], options))
        traces = [outcome for outcome in outcomes if isinstance(outcome, Conversion)]
        told = "".join(outcome.to_json().decode() for outcome in traces)
        is_suspect = any(loss.suspect for outcome in traces for loss in outcome.losses.values())

        assert len(traces) < len(outcomes) or is_suspect or all(tool in told for tool in tools), path

"""What producers wrote and `make check NAME=producers` recorded, against the script that they had played."""

import json
from dataclasses import replace
from functools import cache

import pytest

from knowledgepulse_convert import AUTO, Options
from knowledgepulse_worker.tools.convert.file_conversion import convert_lines
from producers.comparison import Truth, Verdict, differences
from producers.producer import producers
from producers.record import recorded_runs
from producers.report import FILE

PRODUCERS = {producer.name: producer for producer in producers()}
RECORDED = {f"{recorded['producer']}: {recorded['run']}": recorded for recorded in recorded_runs()}
RUNS = {
    producer: [name for name in RECORDED if name.startswith(f"{producer}: ")]
    for producer in sorted({recorded["producer"] for recorded in RECORDED.values()})
}
FAILED = "pydantic_ai/spans: failed"


def traces_of(recorded):
    """Convert a recorded run as the file that it was."""
    producer, document = PRODUCERS[recorded["producer"]], recorded["document"]
    given = Options(objective=producer.truth(recorded["run"]).objective) if producer.convert else Options()
    is_one = producer.document.endswith(".json") or not isinstance(document, list)
    lines = [json.dumps(line).encode() + b"\n" for line in ([document] if is_one else document)]
    conversions = [conversion for _, conversion in convert_lines("recorded", lines, AUTO, given)]
    return [conversion.trace.model_dump(mode="json", exclude_unset=True) for conversion in conversions]


@cache
def converted(name):
    """Return the traces of a recorded run, for tests that change none."""
    return traces_of(RECORDED[name])


def compared(recorded, traces):
    followed = PRODUCERS[recorded["producer"]].truth(recorded["run"])
    text = json.dumps([recorded["document"], traces])
    differs, _ = differences(followed, set(recorded["seen"]), text, traces)
    return differs


@pytest.mark.parametrize("producer", RUNS)
def test_recorded_runs_are_converted_to_what_happened(producer):
    for name in RUNS[producer]:
        assert compared(RECORDED[name], converted(name)) == [], name


@pytest.mark.parametrize("name", [name for name in RECORDED if name.endswith(": sub_agent")])
def test_a_run_that_a_call_started_names_the_run_of_the_call(name):
    lead, *started = converted(name)

    parents = [trace["metadata"].get("parent_id") for trace in started]

    assert parents == [lead["id"]] * len(started)


TOLD_BY = {"why the answer ended": {"finish reasons"}, "that a call failed": {"exit codes", "failed calls"}}
"""What traces name as unrecorded, by what a comparison excuses."""


def runs_of(producer):
    """Return the last verdicts on a producer's runs."""
    return json.loads((producer.folder / FILE).read_text())[producer.name]["runs"]


@pytest.mark.parametrize("producer", RUNS)
def test_traces_name_what_their_records_never_tell_and_nothing_else(producer):
    runs = runs_of(PRODUCERS[producer])
    excused = {reason for run in runs.values() for reason in run.get("untold", ())}

    for name in RUNS[producer]:
        for trace in converted(name):
            unrecorded = set(trace["metadata"].get("unrecorded", ()))
            if trace["metadata"]["success"]:  # else it is no failure that is told as a success
                assert all(unrecorded & TOLD_BY[reason] for reason in excused), name
            assert "finish reasons" not in unrecorded or runs.get("cut_off", {}).get("verdict") != "right", (
                name
            )


LONG = " and so on" * 30
"""What makes a text longer than all that a reader might take for a name or a title."""


def lengthened(followed, document):
    """Return a script and a document whose texts of the user and the agent are long."""
    texts = [text for each in followed.conversations for text in (each.objective, *of_turns(each))]
    for text in sorted({text for text in texts if text and text in document}):
        document = document.replace(text, text + LONG)
        followed = with_text(followed, text)
    return followed, document


def of_turns(script):
    return [text for turn in script.turns for text in (turn.text, turn.asked)]


def with_text(script, text):
    def long(own):
        return own + LONG if own == text else own

    turns = [replace(turn, text=long(turn.text), asked=long(turn.asked)) for turn in script.turns]
    agents = {name: with_text(agent, text) for name, agent in script.agents.items()}
    return replace(script, objective=long(script.objective), turns=tuple(turns), agents=agents)


IN_PIECES = {"google_adk/spans: streamed"}


@pytest.mark.parametrize("producer", RUNS)
def test_every_text_of_a_recorded_run_is_in_its_trace_once_and_whole(producer):
    for name in RUNS[producer]:
        if name in IN_PIECES:
            continue
        recorded = RECORDED[name]
        truth = PRODUCERS[producer].truth(recorded["run"])
        followed, document = lengthened(truth, json.dumps(recorded["document"]))

        traces = traces_of(recorded | {"document": json.loads(document)})

        differs, _ = differences(followed, set(recorded["seen"]), document + json.dumps(traces), traces)
        assert [part for part in differs if part not in {"calls", "arguments", "results"}] == [], name


def told_twice(trace):
    trace["steps"].insert(1, trace["steps"][0])


def without_a_call(trace):
    del trace["steps"][1]


def with_another_argument(trace):
    trace["steps"][1]["input"] = {"what": "pan"}


def with_another_result(trace):
    trace["steps"][2]["content"] = "813 g"


def without_a_recovery(trace):
    trace["steps"][6]["type"] = "thought"


def out_of_order(trace):
    steps = trace["steps"]
    steps[0], steps[1] = steps[1], steps[0]


@pytest.mark.parametrize(
    ("damage", "differs"),
    [
        (told_twice, {"thoughts", "order"}),
        (without_a_call, {"calls", "arguments"}),
        (with_another_argument, {"arguments"}),
        (with_another_result, {"results"}),
        (without_a_recovery, {"failures"}),
        (out_of_order, {"order"}),
        (lambda trace: trace["task"].update(objective="Hello"), {"objective"}),
        (lambda trace: trace["outcome"].update(result_summary="Hello"), {"answer"}),
        (lambda trace: trace["metadata"].update(success=False), {"success"}),
        (lambda trace: trace["metadata"].update(ending="cut_off"), {"success"}),
        (lambda trace: trace["metadata"].update(rewards=[{"name": "reward", "value": 1}]), {"rewards"}),
        (lambda trace: trace["metadata"].update(outcome_source="label"), {"rewards"}),
    ],
)
def test_the_comparison_names_what_differs(damage, differs):
    recorded = RECORDED[FAILED]
    (trace,) = traces_of(recorded)
    damage(trace)
    assert set(compared(recorded, [trace])) == differs


@pytest.mark.parametrize("rewards", [[], [{"name": "reward", "value": 1.0}]])
def test_the_comparison_names_a_reward_that_is_not_told_as_it_was_given(rewards):
    recorded = RECORDED["art/messages: graded_half"]
    (trace,) = traces_of(recorded)
    trace["metadata"]["rewards"] = rewards
    assert compared(recorded, [trace]) == ["rewards"]


def test_a_text_that_a_document_does_not_hold_is_named_and_not_expected():
    followed = PRODUCERS["pydantic_ai/spans"].truth("plain")
    truth = Truth(followed, set(), "I weigh the loaf. The loaf weighs 812 g, and the tin 95 g.")
    assert truth.unrecorded == ["Now the tin."]
    assert truth.has_thoughts(["I weigh the loaf.", "The loaf weighs 812 g, and the tin 95 g."])


def test_calls_that_are_made_at_a_time_may_come_in_any_order():
    parallel, sequence = (
        Truth(
            PRODUCERS["pydantic_ai/spans"].truth(run), set(), "I weigh both. I weigh the loaf. Now the tin."
        )
        for run in ("parallel", "plain")
    )
    turned = parallel.called[::-1]
    assert parallel.in_turns(turned) == parallel.in_turns(parallel.called)
    assert sequence.in_turns(turned) != sequence.in_turns(sequence.called)


def test_a_wrong_end_is_excused_only_where_documents_hold_no_reason_for_it():
    followed = PRODUCERS["pydantic_ai/spans"].truth("cut_off")
    (untold, told) = (
        Verdict("partly", ["success"], unrecorded=Truth(followed, set(), text).unrecorded)
        for text in ('"I weigh the loaf. The loaf weighs 81"', '{"reason": "length", "max_tokens": null}')
    )
    assert (untold.untold, untold.silently_wrong) == (["why the answer ended"], False)
    assert told.silently_wrong

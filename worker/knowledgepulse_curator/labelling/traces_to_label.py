"""The traces to label, and the text that the page shows of a trace."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Literal

import msgspec

from knowledgepulse_curator.labelling.label_session import ToLabel
from knowledgepulse_curator.labels.labelled_inputs import LabelledInputs
from knowledgepulse_curator.labels.labels import Labels, drawn_place, label_of
from knowledgepulse_curator.promises.alarm import due, watch_of
from knowledgepulse_curator.promises.plan import Plan
from knowledgepulse_curator.promises.sample import Stream
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.decode_content import texts_of
from knowledgepulse_worker.records.output_headers import trace_of
from knowledgepulse_worker.scoring import (
    Content,
    ScoredRecord,
    StepText,
    explain_score,
    override_effects,
    scores_under,
    similarity_text,
)
from knowledgepulse_worker.tools.policies.command_inputs import Inputs
from knowledgepulse_worker.tools.policies.scored_files import raw_trace
from knowledgepulse_worker.tools.terminal.lines import located_lines

TraceName = tuple[str, str]
"""Source and id: offsets start over when a raw topic is recreated."""


def traces_to_label(
    given: LabelledInputs,
    labels: Labels,
    policy: Policy,
    count: int,
    watch: Path | None = None,
    planned: Callable[[Stream], Plan] | None = None,
) -> list[ToLabel]:
    """Return a sample of the traces without a label; only these are held in memory.

    The sample depends only on the arguments, so two labellers get the same sample, and so does a labeller who
    continues.

    ``labels``: the labels of traces that nobody needs to label again. ``watch``: a file of promises, to take
    the traces that are due for them. ``planned``: makes a plan, to take all traces of its steps instead, with
    and without a label, and a sample of the domains without steps.
    """
    recorded = given.records()
    records = [
        replace(record, score=score, policy=policy.digest)
        for record, score in zip(recorded, scores_under(recorded, policy), strict=True)
    ]
    sampling: Literal["random", "passing"] | None = None if given.is_selection else "random"
    steps = set[str]()
    if planned is not None:
        plan = planned(Stream(records, policy))
        steps = set(plan.ids)
        free = [one for one in records if not plan.domains.get(policy.profile(one.task_domain).domain)]
        named = {record.id: record for record in records if record.id in steps}
        sample = [*named.values(), *sample_to_label(free, labels, policy, count)]
    elif watch is None:
        sample = sample_to_label(records, labels, policy, count)
    else:
        promises, stream = watch_of(watch).promises.values(), Stream(records, policy)
        waiting = [record for promise in promises if promise.key for record in due(promise, stream)]
        sample = [record for record in waiting if label_of(record, labels) is None][:count]
        sampling = "passing"
    runs = defaultdict[str | None, dict[str, None]](dict)  # the ids of each task, once each
    for record in records:
        runs[record.task][record.id] = None
    wanted = {(record.source, record.id) for record in sample}
    if given.files:
        values = _values_of_files(given, {location for location, _ in wanted})
        by_name = {(location, name): values[location] for location, name in wanted if location in values}
    else:
        by_name = asyncio.run(_values_of_topics(given, wanted))
    traces = [
        ToLabel(
            record,
            by_name.get((record.source, record.id)),
            tuple(name for name in runs[record.task] if name != record.id) if record.task else (),
            "step" if record.id in steps else sampling,
        )
        for record in sample
    ]
    for trace in traces:
        if trace.value is None and trace.record.content is None:
            raise InputError(
                f"{trace.record.source}: has no steps to judge, only a score; give the raw traces"
            )
    return traces


def sample_to_label(
    records: Iterable[ScoredRecord], labels: Labels, policy: Policy, count: int
) -> list[ScoredRecord]:
    """Return a random sample of the traces without a label; domains take turns.

    A trace's place depends on its id alone, so more traces add to the sample and do not shuffle it.
    """
    waiting: defaultdict[str, list[ScoredRecord]] = defaultdict(list)
    for record in {record.id: record for record in records}.values():
        if label_of(record, labels) is None:
            waiting[policy.profile(record.task_domain).domain].append(record)
    drawn = [sorted(waiting[name], key=lambda record: drawn_place(record.id)) for name in sorted(waiting)]
    in_turns = (trace for trace in chain.from_iterable(zip_longest(*drawn)) if trace is not None)
    return list(islice(in_turns, count))


def _values_of_files(given: Inputs, wanted: Collection[str]) -> dict[str, bytes]:
    """Return the raw traces among the wanted lines; output of `kp-worker score` has no steps of its own."""
    lines = (located for path in given.files for located in located_lines(path) if located[0] in wanted)
    traces = ((location, raw_trace(location, line, given.settings)) for location, line in lines)
    return {location: trace for location, trace in traces if trace is not None}


async def _values_of_topics(given: Inputs, wanted: Collection[TraceName]) -> dict[TraceName, bytes]:
    from knowledgepulse_worker.tools.policies.scored_topics import open_scored_topics  # noqa: PLC0415 - files need no Kafka

    async with open_scored_topics(given.settings) as topics:
        return {
            name: trace_of(record)
            async for record, scored in topics.read(given.period)
            if (name := (scored.source, scored.id)) in wanted
        }


def text_view(value: bytes | None, content: Content | None) -> dict[str, Any]:
    """Return the objective, the steps and the result of a trace, or of its shortened content without it."""
    objective, steps, result = "", list[StepText](), ""
    if value is not None:
        objective, steps, result, *_ = texts_of(value)
    elif content is not None:
        objective, result = content.objective, content.result
        cut = (step.partition(":") for step in content.steps)
        steps = [StepText(kind, "", said.strip(), "", "") for kind, _, said in cut]
    shown = [
        {name: getattr(step, name) for name in ("type", "tool", "content", "output")}
        | {"arguments": _arguments(step.input.encode())}
        for step in steps
    ]
    return {"objective": objective, "steps": shown, "result": result}


def _arguments(text: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a call's input; JSON that is not an object has no name."""
    if text in (b"", b"null"):
        return []
    if not text.startswith(b"{"):
        return [("", _readable(text))]
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return [(name, _readable(bytes(value))) for name, value in members.items()]


def _readable(text: bytes) -> str:
    """Return a string as its text, and other JSON indented, with its numbers and escapes unchanged."""
    if text.startswith(b'"'):
        return msgspec.json.decode(text, type=str)
    return msgspec.json.format(text, indent=2).decode()


def score_view(record: ScoredRecord, policy: Policy) -> dict[str, Any]:
    """Return a trace's score under a policy, with its explanation.

    ``record``: the trace, with its score under this policy.
    """
    score, explanation = record.score, explain_score(record, policy)
    return {
        **score.as_dict(),
        "decision": score.decision,
        "policy": policy.digest,
        "success": record.success,
        "confidence": record.confidence,
        "ending": record.ending,
        "judged": record.judged,
        "similarity": similarity_text(score),
        "effects": override_effects(score),
        "why": explanation and asdict(explanation),
    }

"""The traces to label, with their JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.tools.policies.inputs import Inputs
from knowledgepulse_worker.tools.policies.labelling.session import ToLabel
from knowledgepulse_worker.tools.policies.labels import Labels
from knowledgepulse_worker.tools.policies.queue import labelling_queue
from knowledgepulse_worker.tools.policies.scored_files import is_raw, lines_of

Name = tuple[str, str]
"""Source and id: offsets start over when a raw topic is recreated."""


def traces_to_label(given: Inputs, labels: Labels, policy: Policy, count: int) -> list[ToLabel]:
    """Return the traces of the labelling queue; only these are held in memory.

    The queue depends on its arguments alone, so two labellers, and one who continues, get the same.

    ``labels``: of traces that nobody needs to label again.
    """
    queue = labelling_queue(given.records(), labels, policy, count)
    wanted = {(one.record.source, one.record.id) for one in queue}
    if given.files:
        values = _values_of_files(given.files, {place for place, _ in wanted})
        by_name = {(place, name): values[place] for place, name in wanted if place in values}
    else:
        by_name = asyncio.run(_values_of_topics(given, wanted))
    traces = [
        ToLabel(
            replace(one.record, score=one.score, policy=policy.digest),
            by_name.get((one.record.source, one.record.id)),
        )
        for one in queue
    ]
    for one in traces:
        if one.value is None and one.record.content is None:
            raise InputError(f"{one.record.source}: has no steps to judge, only a score; give the raw traces")
    return traces


def _values_of_files(paths: Iterable[Path], wanted: Collection[str]) -> dict[str, bytes]:
    """Return the raw traces among the wanted lines; output of `kp-worker score` has no steps of its own."""
    lines = (one for path in paths for one in lines_of(path))
    return {place: line for place, line in lines if place in wanted and is_raw(place, line)}


async def _values_of_topics(given: Inputs, wanted: Collection[Name]) -> dict[Name, bytes]:
    from knowledgepulse_worker.tools.policies.scored_topics import open_scored_topics  # noqa: PLC0415 - files need no Kafka

    async with open_scored_topics(given.settings) as topics:
        return {
            name: record.value or b""
            async for record, scored in topics.read(given.period)
            if (name := (scored.source, scored.id)) in wanted
        }

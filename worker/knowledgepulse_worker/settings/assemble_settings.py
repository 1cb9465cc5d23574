"""The section of `kp-worker assemble`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from knowledgepulse_worker.settings.section import Section, TopicName


class AssembleSettings(Section):
    """The assembly of agent runs from spans; times are measured on the spans' record timestamps."""

    spans: TopicName = Field(
        "otlp_spans",
        description="topic to which the OpenTelemetry Collector writes spans",
    )
    late: TopicName = Field(
        "late-spans",
        description="topic for spans that arrive after their run was published",
    )
    key: Literal["id", "agent_id", "task_domain"] = Field(
        "id", description="record key of the traces; those with the same key are compared with each other"
    )
    grace: float = Field(
        30.0, ge=0, description="seconds from the arrival of a run's root span until the run is complete"
    )
    idle: float = Field(
        1800.0,
        gt=0,
        description="seconds without a new span until a run is complete even without its root span",
    )
    longest_wait: float = Field(
        14_400.0, gt=0, description="seconds from the first span of a run until it is published as it is"
    )
    run_spans: int = Field(
        10_000,
        ge=1,
        description="largest number of spans of a run; a run with more is published as it is, and its "
        "remaining spans are late",
    )
    run_bytes: int = Field(
        16_777_216, ge=1024, description="largest size of a run's spans in bytes, with the same effect"
    )
    open_bytes: int = Field(
        134_217_728,
        ge=1024,
        description="bytes of memory that the open runs of a partition may take; beyond it, the oldest run "
        "is published as it is",
    )

"""The registry of sources: detect a document's format and convert it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from knowledgepulse_schemas.convert import (
    agentdojo,
    anthropic,
    atif,
    bedrock,
    claude_code,
    codex,
    gemini,
    gemini_cli,
    inspect_logs,
    langchain,
    langfuse,
    langsmith,
    mini_swe_agent,
    openai,
    openai_agents,
    opencode,
    openhands,
    spans,
    swe_agent,
    tau_bench,
    vercel,
)
from knowledgepulse_schemas.convert.errors import ConversionError, NoRunError
from knowledgepulse_schemas.convert.hub import Run
from knowledgepulse_schemas.convert.losses import Losses
from knowledgepulse_schemas.convert.messages import messages_of
from knowledgepulse_schemas.convert.reading import unwrap
from knowledgepulse_schemas.convert.sessions import requests_of
from knowledgepulse_schemas.convert.trace import Conversion, Options, to_trace

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Source:
    """An input format.

    Attributes:
        name: its name on the command line.
        recognises: whether a document has this format.
        runs: yields the runs of a document, with an error in place of a run that cannot be read.
        is_fragment: whether a line of a file is part of a larger document rather than a document of its
            own: the spans of one trace may be on several lines.
        streams: whether ``runs`` also takes an iterator of a file's lines, known or not.
    """

    name: str
    recognises: Callable[[Any], bool]
    runs: Callable[[Any], Iterator[Run | ConversionError]]
    is_fragment: Callable[[Any], bool] = lambda line: False
    streams: bool = False

    @property
    def members(self) -> set[str]:
        """Names by which a reader knows the format."""
        return set(_MEMBERS[self.name].split())


_MEMBERS = {
    spans.OTLP: "resourceSpans",
    spans.TEMPO: "batches",
    spans.JAEGER: "traceID spanID operationName",
    spans.PHOENIX: "context span_kind attributes",
    inspect_logs.NAME: "version eval plan",
    agentdojo.NAME: "suite_name pipeline_name messages",
    atif.NAME: "schema_version agent steps",
    openhands.NAME: "kind source timestamp",
    swe_agent.NAME: "trajectory history info",
    mini_swe_agent.NAME: "trajectory_format messages info",
    tau_bench.NAME: "task_id reward traj",
    langsmith.NAME: "id run_type inputs outputs",
    langfuse.NAME: "id traceId type startTime",
    openai_agents.NAME: "object trace_id span_data",
    langchain.NAME: "type content",
    bedrock.NAME: "messages toolConfig",
    anthropic.NAME: "messages stop_reason",
    openai.NAME: "role content",
    "vercel": "toolCallId toolName",
    "gemini": "role parts",
    claude_code.NAME: "type uuid parentUuid sessionId message",
    codex.NAME: "timestamp type payload",
    gemini_cli.NAME: "sessionId projectHash messages",
    opencode.NAME: "info messages",
}


def _spans(name: str) -> Source:
    return Source(
        name,
        lambda document: spans.source_of(document) == name,
        partial(spans.runs, source=name),
        is_fragment=lambda line: True,
    )


def _session(source: Any) -> Source:
    return Source(source.NAME, source.recognises, source.runs, lambda line: True, streams=True)


def _chat(name: str, recognises: Callable[[Any], bool]) -> Source:
    def runs(document: Any) -> Iterator[Run]:
        losses = Losses()
        yield Run(name, list(messages_of(document, "user", "messages", losses)), losses=losses)

    return Source(name, recognises, runs)


def _are_vercels(document: Any) -> bool:
    objects = isinstance(document, list) and all(isinstance(one, dict) for one in document)
    return objects and vercel.recognises(document)


def _are_geminis(document: Any) -> bool:
    contents = unwrap(document, "contents")
    return isinstance(contents, list) and bool(contents) and all(map(gemini.recognises, contents))


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        _spans(spans.OTLP),
        _spans(spans.TEMPO),
        _spans(spans.JAEGER),
        _spans(spans.PHOENIX),
        _session(claude_code),
        _session(codex),
        _session(gemini_cli),
        _session(opencode),
        Source(inspect_logs.NAME, inspect_logs.recognises, inspect_logs.runs),
        Source(agentdojo.NAME, agentdojo.recognises, agentdojo.runs),
        Source(atif.NAME, atif.recognises, atif.runs),
        Source(openhands.NAME, openhands.recognises, openhands.runs, openhands.is_fragment),
        Source(swe_agent.NAME, swe_agent.recognises, swe_agent.runs),
        Source(mini_swe_agent.NAME, mini_swe_agent.recognises, mini_swe_agent.runs),
        Source(tau_bench.NAME, tau_bench.recognises, tau_bench.runs),
        Source(langsmith.NAME, langsmith.recognises, langsmith.runs, lambda line: True),
        Source(langfuse.NAME, langfuse.recognises, langfuse.runs, langfuse.is_observation),
        Source(openai_agents.NAME, openai_agents.recognises, openai_agents.runs, lambda line: True),
        Source(langchain.NAME, langchain.recognises, langchain.runs),
        _chat("vercel", _are_vercels),
        _chat("gemini", _are_geminis),
        Source(bedrock.NAME, bedrock.recognises, bedrock.runs),
        Source(anthropic.NAME, anthropic.recognises, anthropic.runs),
        Source(openai.NAME, openai.recognises, openai.runs),
    )
}
"""Every source by name. The most specific come first: later ones would also recognise their documents."""


def source_of(document: Any) -> Source | None:
    """Detect a document's source; None if no source recognises it."""
    return next((source for source in SOURCES.values() if _recognises(source, document)), None)


def _recognises(source: Source, document: Any) -> bool:
    try:
        return source.recognises(document)
    except RecursionError:
        return False


def convert(
    document: Any, source: str = AUTO, options: Options | None = None
) -> Iterator[Conversion | ConversionError]:
    """Convert each run in a document; yield an error in place of a run that cannot be converted.

    Args:
        document: plain JSON: objects, lists, strings, numbers, booleans, None.
        source: the name of its format, or ``auto`` to detect it.
        options: settings that a source cannot provide.
    """
    try:
        found = source_of(document) if source == AUTO else SOURCES[source]
        if found is None:
            yield _unknown(document)
            return
        empty = True
        for run in found.runs(document):
            empty = False
            for one in _pieces(run, options):
                yield _convert_run(one, options)
        if empty:
            yield NoRunError(f"no agent run in the document, which was read as {found.name}")
    except ConversionError as error:
        yield error
    except RecursionError:
        yield ConversionError("nested too deeply")
    except Exception as error:  # noqa: BLE001 - a defect here costs one document, not the ones after it
        yield ConversionError(f"the converter failed: {error!r}")


def _pieces(run: Run | ConversionError, options: Options | None) -> Iterable[Run | ConversionError]:
    """Return a run, or its requests if they are to be traces of their own."""
    return requests_of(run) if isinstance(run, Run) and options and options.per_request else [run]


def _unknown(document: Any) -> ConversionError:
    """Return an error that names the nearest format, and why the document does not have it."""
    first = _first(document)
    members = first.keys() | _first(first.get("messages")).keys()
    near = max(SOURCES.values(), key=lambda source: len(members & source.members) / len(source.members))
    if 2 * len(members & near.members) < len(near.members):
        return ConversionError(f"unknown format; accepted are {', '.join(SOURCES)}")
    missing = ", ".join(sorted(near.members - members))
    reason = f"no {missing}" if missing else _first_error(near, document)
    return ConversionError(f"unknown format; the nearest is {near.name}: {reason}")


def _first(value: Any) -> dict[str, Any]:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, dict) else {}


def _first_error(source: Source, document: Any) -> ConversionError:
    try:
        errors = (run for run in source.runs(document) if isinstance(run, ConversionError))
        return next(errors, ConversionError("differs from it"))
    except ConversionError as error:
        return error


def _convert_run(run: Run | ConversionError, options: Options | None) -> Conversion | ConversionError:
    if isinstance(run, ConversionError):
        return run
    try:
        return to_trace(run, options)
    except ConversionError as error:
        return error if run.native_id is None else ConversionError(f"{run.native_id}: {error}")

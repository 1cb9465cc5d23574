"""The conversion of a run, in a process of its own: what strangers write may take any time."""

from __future__ import annotations

import logging
from typing import Self

import msgspec

from knowledgepulse_convert import Conversion, ConversionError, NoRunError, Options, convert
from knowledgepulse_convert.spans.exports import OTLP, has_agent, has_calls
from knowledgepulse_convert.spans.otlp import is_logs
from knowledgepulse_worker.child import ChildFunction
from knowledgepulse_worker.child_process import CallError, ChildProcess
from knowledgepulse_worker.tools.assemble.collector_exports import join, read
from knowledgepulse_worker.tools.assemble.open_runs import SpanRun

logger = logging.getLogger(__name__)

CONVERSION_LIMIT = 20.0
"""Seconds that the conversion of a run may take."""

_FACTORY = f"{__name__}:converting"
_NO_ROOT = (
    "neither a root span nor an agent's span arrived, so its messages cannot be told from those of other runs"
)
_NO_AGENT = "its spans say that a model or a tool was called, but have no content in a form that is read"
_FAILURES = {
    "timeout": f"its conversion took longer than {CONVERSION_LIMIT:g} s",
    "crashed": "its conversion ended the process",
}


class CompleteRun(msgspec.Struct):
    """The spans of a complete run.

    Attributes:
        trace_id: in lower-case hexadecimal.
        has_root: whether its root span arrived.
        exports: its spans, joined.
    """

    trace_id: str
    has_root: bool
    exports: list[bytes]

    @classmethod
    def of(cls, run: SpanRun) -> Self:
        """Return a run that is closed."""
        return cls(run.trace_id, run.root_time is not None, join(run.spans.values()))


class ConvertedRun(msgspec.Struct):
    """The traces of a run in JSON, and the class and message of each error.

    Neither, if none of its spans says that a model or a tool was called.
    """

    traces: list[bytes] = []
    errors: list[tuple[str, str]] = []


def convert_run(run: CompleteRun, options: Options) -> ConvertedRun:
    """Convert each outermost agent of a run, and each that a tool ran."""
    try:
        documents = [document for export in run.exports for document in read(export)]
        outcomes = list(convert(documents, OTLP, options))
        documents = [document for document in documents if not is_logs(document)]
        if any(isinstance(result, NoRunError) for result in outcomes):
            if not any(map(has_calls, documents)):
                return ConvertedRun()
            outcomes = [ConversionError(f"trace {run.trace_id}: {_NO_AGENT}")]
        elif not run.has_root and not any(map(has_agent, documents)):
            outcomes = [ConversionError(f"trace {run.trace_id}: {_NO_ROOT}")]
    except Exception as error:  # one run must not stop the others, whatever is wrong with it
        logger.warning("a run cannot be converted", exc_info=error)
        return ConvertedRun(errors=[(type(error).__name__, str(error))])
    converted = ConvertedRun()
    for outcome in outcomes:
        if isinstance(outcome, Conversion):
            converted.traces.append(outcome.to_json())
        else:
            converted.errors.append((type(outcome).__name__, str(outcome)))
    return converted


def converting(options: bytes) -> ChildFunction:
    """Return :func:`convert_run` as a function of the child process."""
    decoded = msgspec.msgpack.decode(options, type=Options)
    decode = msgspec.msgpack.Decoder(CompleteRun).decode
    return lambda run: msgspec.msgpack.encode(convert_run(decode(run), decoded))


class RunConversion(ChildProcess):
    """A process that converts runs; ``options``: the fields that spans cannot provide."""

    def __init__(self, options: Options) -> None:
        super().__init__(_FACTORY, msgspec.msgpack.encode(options), CONVERSION_LIMIT, "conversion")

    async def convert(self, run: CompleteRun) -> ConvertedRun:
        """Convert a run. One that takes too long, or ends the process, has an error in place of its traces.

        Raises:
            SettingsError: the process had ended, and another cannot be started.
        """
        try:
            answer = await self.call(msgspec.msgpack.encode(run))
        except CallError as error:
            failure = _FAILURES.get(error.reason, str(error))
            return ConvertedRun(errors=[(ConversionError.__name__, f"trace {run.trace_id}: {failure}")])
        return msgspec.msgpack.decode(answer, type=ConvertedRun)

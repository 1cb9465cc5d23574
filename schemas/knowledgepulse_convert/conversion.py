"""The conversion of a document of any format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.errors import ConversionError, NoRunError
from knowledgepulse_convert.common.session_log import requests_of
from knowledgepulse_convert.common.trace import Conversion, Options, to_trace
from knowledgepulse_convert.input_formats import INPUT_FORMATS, input_format_of
from knowledgepulse_convert.unread import unknown_format

AUTO = "auto"


def convert(
    document: Any, format_name: str = AUTO, options: Options | None = None
) -> Iterator[Conversion | ConversionError]:
    """Convert each run in a document; yield an error in place of a run that cannot be converted.

    Args:
        document: plain JSON: objects, lists, strings, numbers, booleans, None.
        format_name: the name of its format, or ``auto`` to detect it.
        options: values that the document cannot provide.
    """
    try:
        found = input_format_of(document) if format_name == AUTO else INPUT_FORMATS[format_name]
        if found is None:
            yield unknown_format(document)
            return
        empty = True
        for run in found.runs(document):
            empty = False
            if isinstance(run, ConversionError):
                yield run
                continue
            run.framework = found.name
            found.identify(run, options.path if options else "")
            run.unrecorded = tuple(dict.fromkeys((*found.unrecorded, *run.unrecorded)))
            for request in requests_of(run) if options and options.per_request else [run]:
                yield _convert_run(request, options, found.usual_domain)
        if empty:
            yield NoRunError(f"no agent run in the document, which was read as {found.name}")
    except ConversionError as error:
        yield error
    except RecursionError:
        yield ConversionError("nested too deeply")
    except Exception as error:  # noqa: BLE001 - a defect here costs one document, not the ones after it
        yield ConversionError(f"the converter failed: {error!r}")


def _convert_run(run: ir.Run, options: Options | None, usual_domain: str) -> Conversion | ConversionError:
    try:
        return to_trace(run, options, usual_domain)
    except ConversionError as error:
        return error if run.native_id is None else ConversionError(f"{run.native_id}: {error}")

"""The redaction function, as its process calls it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from knowledgepulse_worker.child import ChildFunction
from knowledgepulse_worker.errors import SettingsError
from knowledgepulse_worker.function_reference import import_function

SETTING = "redaction.function"


def redacting(name: bytes) -> ChildFunction:
    """Return a function from a trace's JSON to that of the redacted trace.

    Args:
        name: the redaction function as ``module:function``.

    Raises:
        SettingsError: it cannot be imported.
    """
    function: Callable[[Any], Any] = import_function(SETTING, name.decode())
    if inspect.iscoroutinefunction(function):
        raise SettingsError(f"{SETTING}: {name.decode()}: is an async function; use a regular function")

    def redacted(trace: bytes) -> bytes:
        result = json.dumps(function(json.loads(trace)), ensure_ascii=False, allow_nan=False)
        return result.encode("utf-8", "replace")

    return redacted

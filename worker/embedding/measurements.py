"""Measurements made once per machine, and stored for later starts."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from pydantic import TypeAdapter

from worker import __version__

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def measured_once(
    folder: Path | None,
    kind: type[Result],
    conditions: Mapping[str, Any],
    measure: Callable[[], Result],
) -> Result:
    """Return an earlier start's measurement under the same conditions; otherwise measure, and store it.

    If the stored file is unreadable or invalid, measure again; if it cannot be written, the next start
    measures again.

    Args:
        folder: stores the results; None stores none.
        kind: the result's type, a dataclass.
        conditions: what the result depends on, JSON-serializable, besides the machine and the worker's
            version.
        measure: performs the measurement, which takes seconds.
    """
    if folder is None:
        return measure()
    about = json.dumps([conditions, _machine()], sort_keys=True)
    name = f"{kind.__name__.lower()}-{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"
    file = folder / name
    adapter = TypeAdapter(kind)
    try:
        result = adapter.validate_json(file.read_bytes())
    except (OSError, ValueError):
        result = measure()
        _write(file, adapter.dump_json(result))
    else:
        logger.info("using the measurement of an earlier start: %s", file)
    return result


def _machine() -> dict[str, Any]:
    import joblib  # noqa: PLC0415 - comes with the extra `worker`, as the models that are measured do

    return {"worker": __version__, "processor": _processor(), "cores": joblib.cpu_count()}


def _processor() -> list[str]:
    """Return the processor's name and instruction sets, as far as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return [platform.machine(), platform.processor()]
    return sorted(
        {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    )


def _write(file: Path, content: bytes) -> None:
    """Write the file atomically."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=file.parent, prefix="new-", delete=False) as new:
            new.write(content)
        Path(new.name).replace(file)
    except OSError as error:
        logger.warning("the next start measures again: %s cannot be written: %s", file, error.strerror)

"""Description of the machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from knowledgepulse_worker.embedding.bert import read_bert
from knowledgepulse_worker.embedding.cores import usable_cores
from knowledgepulse_worker.embedding.transformer import automatic_precision
from knowledgepulse_worker.embedding.weights import find_model
from knowledgepulse_worker.tools.demo.brokers import Broker

_DISTRIBUTIONS = (
    "openvino",
    "torch",
    "transformers",
    "sentence-transformers",
    "numpy",
    "aiokafka",
    "faust-streaming",
    "confluent-kafka",
    "pydantic",
)

_WHY = {
    "bfloat16": "the processor has instructions for it",
    "int16": "the processor has none for bfloat16",
    "float32": "the processor has none for bfloat16, and the worker none for integers",
}
"""Why ``auto`` selects a precision; see :func:`automatic_precision`."""


def cores() -> list[int]:
    """Return the usable cores, within the limits of a container."""
    return sorted(os.sched_getaffinity(0))[: usable_cores()]


def describe(broker: Broker | None) -> dict[str, str]:
    """Return a description of the machine, to interpret the figures.

    Args:
        broker: the broker of the run; None if it needs none.
    """
    versions = {name: _version(name) for name in _DISTRIBUTIONS}
    return {
        "CPU": processor(),
        "cores": f"{len(cores())} usable of {os.cpu_count()}",
        "precision of auto": _automatic(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load before the start": f"{os.getloadavg()[0]:.2f}",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "broker": _place(broker),
    }


def processor() -> str:
    """Return the processor's name and the instructions that count for the model."""
    info = _cpu_info()
    flags = info.get("flags", "").split()
    known = {
        "amx_bf16": "AMX",
        "avx512_bf16": "AVX512-BF16",
        "avx512_vnni": "AVX512-VNNI",
        "avx512f": "AVX512",
        "avx2": "AVX2",
    }
    best = next((name for flag, name in known.items() if flag in flags), "unknown instructions")
    return f"{info.get('model name', platform.processor() or 'unknown')} with {best}"


def _automatic() -> str:
    precision = automatic_precision(read_bert(find_model(None, None, None).path))
    return f"{precision}, because {_WHY[precision]}"


def _place(broker: Broker | None) -> str:
    if broker is None:
        return "none needed"
    here = broker.kind != "configured" or broker.bootstrap_servers.startswith(("127.", "localhost"))
    where = "on this machine, not pinned: it shares the cores" if here else "elsewhere"
    return f"{broker.description}, {where}; the publisher ran on this machine, not pinned"


def _cpu_info() -> dict[str, str]:
    """Return the first processor in /proc/cpuinfo; empty if there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"

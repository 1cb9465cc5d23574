"""The instructions that the processor has, within the limit that oneDNN's variable sets.

oneDNN is OpenVINO's library of matrix products. Its variable limits our own products, too, so that one
setting shows how a worker behaves on another processor.
"""

from __future__ import annotations

import os
from pathlib import Path

from knowledgepulse_bert import Instructions, processor_flags

_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""The variables that limit oneDNN's instructions, by its present and its former name; the first counts."""
_BEFORE_AVX2 = {"SSE41", "AVX"}
_BEFORE_VNNI = _BEFORE_AVX2 | {"AVX2", "AVX2_VNNI", "AVX512_CORE"}
_BEFORE_BFLOAT16 = _BEFORE_VNNI | {"AVX512_CORE_VNNI"}
_BFLOAT16 = {"avx512_bf16", "amx_bf16"}
"""Linux's names of the instructions that make bfloat16 the fastest precision."""


def allows(instructions: Instructions) -> bool:
    """Return whether the limit allows a set of our instructions."""
    return _limit() not in (_BEFORE_VNNI if instructions == "avx512vnni" else _BEFORE_AVX2)


def allows_bfloat16() -> bool:
    """Return whether the limit allows instructions for bfloat16, which OpenVINO lists in any case."""
    return _limit() not in _BEFORE_BFLOAT16


def has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether Linux lists instructions for bfloat16, which takes less memory than to ask OpenVINO."""
    return allows_bfloat16() and not _BFLOAT16.isdisjoint(processor_flags(cpuinfo))


def _limit() -> str:
    return next((os.environ[name] for name in _LIMITS if name in os.environ), "").upper()

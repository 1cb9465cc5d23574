"""Checksums of record batches, by the processor's instruction where there is one.

aiokafka's own take longer than everything else that is done to read a batch. ``crc32c.c`` is compiled where
the package is installed with a C compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka.record.util import calc_crc32c

Checksum = Callable[[Any, int, int], int]
"""Returns the CRC-32C of the bytes from a start to an end."""


def _by_instruction() -> Checksum | None:
    file = Path(__file__).with_name("crc32c.so")
    if not file.exists():
        return None
    library = ctypes.PyDLL(str(file))
    if not library.open_crc32c():
        return None
    library.crc32c.restype = ctypes.c_uint32
    library.crc32c.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
    checksum: Checksum = library.crc32c
    return checksum


def by_client(data: bytes | bytearray, start: int, end: int) -> int:
    """Return the checksum without the instruction."""
    return int(calc_crc32c(bytes(data[start:end])))


checksum: Checksum = _by_instruction() or by_client


def checksum_of_array(data: bytearray, start: int) -> int:
    """Return the checksum of an array from a start to its end, where there is the instruction."""
    return checksum((ctypes.c_char * len(data)).from_buffer(data), start, len(data))

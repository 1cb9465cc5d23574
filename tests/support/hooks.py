"""The conversion of a hook, in the test's own process, where a child would take most of the test's time."""

from __future__ import annotations

import msgspec

from knowledgepulse_worker.tools.convert import apart


def converted_here(files, format_name, options, take):
    """Do what :func:`~knowledgepulse_worker.tools.convert.apart.converted_apart` does."""
    convert = apart.converting(msgspec.msgpack.encode({"format_name": format_name, "options": options}))
    for name in files:
        answer = convert(name.encode("utf-8", "surrogateescape"))
        take(name, msgspec.msgpack.decode(answer, type=apart.ConvertedFile))

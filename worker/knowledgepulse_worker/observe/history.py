"""What the status page shows of finished records, kept for the processes that follow this one.

The supervisor makes an anonymous file, which each of its processes inherits. A process writes its recent
events there once a second, if there are new ones, and begins with those that it finds. The file has no name,
and ends with the supervisor.
"""

from __future__ import annotations

import logging
import os
import struct
from typing import Any
from zlib import crc32

import msgspec

from knowledgepulse_worker.observe.recent import History, Recent
from knowledgepulse_worker.policy import Policy

logger = logging.getLogger(__name__)

KEEP_INTERVAL = 1.0
"""Seconds between two writes, and the most that a process loses when it is killed."""

_HEAD = struct.Struct("<QI")
"""Length and checksum of what follows; a process may be killed while it writes."""


class _Kept(msgspec.Struct, array_like=True):
    """The content of the file.

    Attributes:
        policies: the policies of the traces, by digest.
        history: the history, in which digests stand for policies.
    """

    policies: dict[str, str]
    history: msgspec.Raw


class HistoryFile:
    """A process's view of the file.

    Args:
        descriptor: the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._policies: dict[str, str] = {}
        self._written: object = None

    def read(self) -> History | None:
        """Return what the process before has written; None if it has written nothing, or not to the end."""
        length, checksum = _HEAD.unpack(os.pread(self._descriptor, _HEAD.size, 0).ljust(_HEAD.size, b"\0"))
        content = os.pread(self._descriptor, length, _HEAD.size) if length else b""
        if not content or crc32(content) != checksum:
            return None
        try:
            return self._decoded(msgspec.msgpack.decode(content, type=_Kept))
        except (
            msgspec.MsgspecError,
            ValueError,
            KeyError,
        ) as error:  # another release was installed meanwhile
            logger.warning("recent events of the process before cannot be read: %s", error)
            return None

    def _decoded(self, kept: _Kept) -> History:
        policies = {digest: Policy.model_validate_json(text) for digest, text in kept.policies.items()}
        self._policies = kept.policies

        def made(type_: type, value: Any) -> Any:
            return policies[value] if type_ is Policy else range(*value)

        return msgspec.msgpack.decode(kept.history, type=History, dec_hook=made)

    async def keep(self, recent: Recent) -> None:
        """Write the recent events, if there are new ones."""
        self.write(recent)

    def write(self, recent: Recent) -> None:
        """Write the recent events, if there are new ones."""
        newest = recent.last_output, len(recent.skips), len(recent.truncations)
        if newest == self._written:
            return
        policies = dict[str, str]()

        def plain(value: Any) -> Any:
            if isinstance(value, range):
                return value.start, value.stop
            digest = value.digest
            policies[digest] = self._policies.get(digest) or value.model_dump_json()
            return digest

        kept = recent.history()
        try:
            history = msgspec.msgpack.encode(kept, enc_hook=plain)
        except UnicodeEncodeError:  # among the words that a learned value reads, which are a trace's own
            history = msgspec.msgpack.encode(msgspec.structs.replace(kept, traces={}), enc_hook=plain)
        self._policies = policies
        content = msgspec.msgpack.encode(_Kept(policies, msgspec.Raw(history)))
        os.pwrite(self._descriptor, _HEAD.pack(len(content), crc32(content)) + content, 0)
        self._written = newest

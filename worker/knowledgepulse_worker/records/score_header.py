"""The ``kp-score`` header: a score as JSON."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from knowledgepulse_schemas.trace import is_uuid_id
from knowledgepulse_worker.scoring import Score

decode_score = msgspec.json.Decoder(Score).decode
"""Decode the header's value; raise DECODE_ERRORS if it is invalid."""


def encode_score(score: Score) -> bytes:
    """Encode a score, with ``withheld`` only if the trace was withheld."""
    return _encode(score)


def without_content(score: Score) -> Score:
    """Return the score without the nearest trace's id unless it is a UUID; other ids may hold content."""
    tells = score.nearest is not None and not is_uuid_id(score.nearest)
    return replace(score, nearest=None) if tells else score


_encode = msgspec.json.Encoder().encode

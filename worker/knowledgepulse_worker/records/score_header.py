"""The ``kp-score`` header: a score as JSON."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from knowledgepulse_schemas.trace import is_uuid_id
from knowledgepulse_worker.scoring import Score, UnitInterval

decode_score = msgspec.json.Decoder(Score).decode
"""Decode the header's value; raise DECODE_ERRORS if it is invalid."""


class _QualityScore(msgspec.Struct):
    score: UnitInterval


_decode_quality_score = msgspec.json.Decoder(_QualityScore).decode


def decode_quality_score(header: bytes) -> float:
    """Decode only the quality score of a header's value."""
    return _decode_quality_score(header).score


encode_score = msgspec.json.Encoder().encode
"""Encode a score, with ``withheld`` only if the trace was withheld."""


def without_content(score: Score) -> Score:
    """Return the score without the nearest trace's id unless it is a UUID; other ids may hold content."""
    tells = score.nearest is not None and not is_uuid_id(score.nearest)
    return replace(score, nearest=None) if tells else score

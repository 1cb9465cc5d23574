"""The words of statuses and reasons that tell a failure, or an end before the work was done."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

from knowledgepulse_convert.common.words import words

_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_LENGTH = 100
"""The most characters of a status; a longer text is prose, which is never searched."""
_CUT_OFF = words(
    """
    abort aborted blocklist cancel canceled cancelled cancellation exceeded exhausted expired filter
    filtered guardrail incomplete insufficient interrupt interrupted interruption intervened killed length
    limit limited limits malformed max overflow pause paused prohibited recitation refusal refused safety spii
    stuck timed timeout truncated
    """
)
"""Of limits, cancellations and refusals."""
_FAILED = words("crash crashed error errored errors exception fail failed fails failure failures")
_DECLINED = words("declined denied rejected retried")
"""Of a call that was not allowed to run, or that has to be made again."""


def told_by(status: Any) -> Literal["failed", "cut_off"] | None:
    """Return which bad ending a status or a reason tells, such as ``max_tokens``; None if it tells none.

    A limit that is named as an error (``error_max_turns``) is a limit.
    """
    told = _words_of(status)
    if not _CUT_OFF.isdisjoint(told):
        return "cut_off"
    return None if _FAILED.isdisjoint(told) else "failed"


def is_failure(status: Any) -> bool:
    """Return whether the status of a call says that it failed, was cancelled or was not allowed to run."""
    return told_by(status) is not None or not _DECLINED.isdisjoint(_words_of(status))


def _words_of(status: Any) -> frozenset[str]:
    is_short = isinstance(status, str) and len(status) <= _LENGTH
    return _split(status) if is_short else frozenset()


@lru_cache(1000)
def _split(status: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(status))

"""The decoder on what nobody meant to send: damaged bytes of real traces, and almost-traces.

Anything but a trace whose score goes in and comes out, or a RejectedRecord, is a failure.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.results import Outcome
from worker.errors import RejectedRecord
from worker.lane.decode import decode_trace, with_quality_score

LIMIT = 1_048_576
SCORE = 0.123456789

FUZZ = "the decoder fed with damaged traces and with documents that are almost traces"
INPUTS, INPUTS_SHORT = 100_000, 2_000

_TOKENS = [
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"true",
        b"NaN",
        b"-0",
        b"1e999",
        b"Infinity",
    ),
    *(
        rb"\ud800",
        rb"\udc00\ud800",
        rb"\u0000",
        rb"\uD83D\uDE00",
        rb"\\ud800",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
    ),
    *(b'"metadata":', b'"quality_score":0.5,', b'"quality_score":null,', b'"steps":[],', b'"@type":"X",'),
    *(b"\xef\xbb\xbf", b"\x00", b" ", b"\n", b"9" * 50, b"[" * 300, b"]" * 300, b'{"a":' * 250, b"1" * 5000),
]
_DOCUMENT_SHARE = 5
"""One in so many inputs is a document; the rest are damaged bytes."""


def fuzz(lines: Sequence[bytes], inputs: int) -> Outcome:
    """Feed the decoder so many inputs, and count.

    Args:
        lines: real traces.
        inputs: how many; a fifth are documents, the rest damaged bytes.
    """
    started = time.monotonic()
    decoder = _Decoder()
    _feed_documents(decoder, inputs // _DOCUMENT_SHARE)
    rng = random.Random(1)
    while decoder.fed < inputs:
        decoder.feed(damaged(rng.choice(lines), rng))
    told = sum(decoder.told.values())
    return Outcome(
        rounds=1,
        records=decoder.fed,
        outputs=told,
        repeats=0,
        missing=decoder.fed - told - len(decoder.failures),
        differing=len(decoder.failures),
        wrong=decoder.failures[:5],
        audited=0,
        notes=dict(decoder.told.most_common()),
        seconds=time.monotonic() - started,
    )


class _Decoder:
    """The decoder, and what it said.

    Attributes:
        told: how many inputs were traces, or were rejected for which reason.
        failures: inputs that ended otherwise, and how.
    """

    def __init__(self) -> None:
        self.fed = 0
        self.told: Counter[str] = Counter()
        self.failures: list[str] = []

    def feed(self, value: bytes) -> None:
        """Decode one input, and write a score into what is a trace."""
        self.fed += 1
        try:
            decode_trace(value, LIMIT)
        except RejectedRecord as error:
            self.told[error.reason] += 1
            return
        except Exception as error:
            self.failures.append(f"{value[:200]!r}: {error!r}")
            return
        try:
            _assert_passed_through(value, with_quality_score(value, SCORE))
            self.told["traces"] += 1
        except Exception as error:
            self.failures.append(f"{value[:200]!r}: {error!r}")


def damaged(line: bytes, rng: random.Random) -> bytes:
    """A real trace after one to three accidents."""
    value = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        place, length = rng.randrange(len(value) + 1), rng.choice((1, 1, 2, 8, 64))
        match rng.randrange(6):
            case 0:
                value[place : place + length] = rng.randbytes(length)
            case 1:
                del value[place : place + length]
            case 2:
                value[place:place] = rng.choice(_TOKENS)
            case 3:
                value[place : place + length] = rng.choice(_TOKENS)
            case 4:
                source = rng.randrange(len(value) + 1)
                value[place:place] = value[source : source + length]
            case _:
                del value[place:]
    return bytes(value)


def _feed_documents(decoder: _Decoder, count: int) -> None:
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(_almost_traces())
    def feed(value: bytes) -> None:
        decoder.feed(value)

    feed()


@st.composite
def _almost_traces(draw: st.DrawFn) -> bytes:
    """A trace of which some members are anything, some are missing, and some are new."""
    number = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**40)
    anything = st.recursive(
        st.none() | st.booleans() | number | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
    steps = st.lists(
        st.fixed_dictionaries(
            {
                "step_id": st.integers(-1, 5),
                "type": st.sampled_from(["thought", "tool_call", "observation", "x"]),
            },
            optional={
                "content": st.text(),
                "tool": st.fixed_dictionaries({"name": st.text()}),
                "latency_ms": number,
            },
        ),
        max_size=3,
    )
    trace: dict[str, Any] = {
        "@context": "https://openknowledgepulse.org/schema/v1",
        "@type": "ReasoningTrace",
        "id": "kp:trace:" + draw(st.text(max_size=5)),
        "metadata": {
            "created_at": "2026-01-01T00:00:00Z",
            "task_domain": draw(st.text(min_size=1, max_size=5)),
            "success": draw(st.booleans()),
            "visibility": "private",
            "privacy_level": "private",
            **draw(st.dictionaries(st.text(max_size=8) | st.just("quality_score"), anything, max_size=2)),
        },
        "task": {"objective": draw(st.text(min_size=1))},
        "steps": draw(steps),
        "outcome": {"result_summary": draw(st.text()), "confidence": draw(st.floats(-0.1, 1.1))},
    }
    for name in draw(st.lists(st.sampled_from([*trace]), max_size=1)):
        trace[name] = draw(anything)
    trace |= draw(st.dictionaries(st.text(max_size=5), anything, max_size=2))
    return json.dumps(
        trace, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 2]))
    ).encode("utf-8", "surrogatepass")


def _assert_passed_through(value: bytes, scored: bytes) -> None:
    """Read both by another parser: all members in order, numbers as they were written, but for the score."""
    assert decode_trace(scored, 2 * LIMIT).metadata.quality_score == SCORE
    before, after = _members(value), _members(scored)
    assert _take_score(after) == json.dumps(SCORE), "the score is not in the output"
    _take_score(before)
    assert before == after, "more than the score changed"


def _members(text: bytes) -> list[tuple[str, Any]]:
    return json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)


def _take_score(members: list[tuple[str, Any]]) -> Any:
    """Remove the score from the last of the `metadata` members, and return it; None where there is none."""
    metadata = [value for name, value in members if name == "metadata"][-1]
    places = [place for place, (name, _) in enumerate(metadata) if name == "quality_score"]
    return metadata.pop(places[-1])[1] if places else None

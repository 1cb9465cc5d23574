"""Fuzz the decoder with damaged bytes of real traces, and with documents that resemble traces.

The only accepted outcomes are a RejectedRecord, and a trace whose score can be written and read back.
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
from worker.records.decode import decode_trace, with_quality_score

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
"""Every n-th input is a generated document; the others are damaged bytes."""


def fuzz(lines: Sequence[bytes], inputs: int) -> Outcome:
    """Run the decoder on generated inputs and count the outcomes.

    Args:
        lines: real traces.
        inputs: number of inputs; a fifth are documents, the others damaged bytes.
    """
    started = time.monotonic()
    decoder = _Decoder()
    _feed_documents(decoder, inputs // _DOCUMENT_SHARE)
    rng = random.Random(1)
    while decoder.fed < inputs:
        decoder.feed(damaged(rng.choice(lines), rng))
    decided = sum(decoder.outcomes.values())
    return Outcome(
        rounds=1,
        records=decoder.fed,
        outputs=decided,
        repeats=0,
        missing=decoder.fed - decided - len(decoder.failures),
        differing=len(decoder.failures),
        wrong=decoder.failures[:5],
        audited=0,
        notes=dict(decoder.outcomes.most_common()),
        seconds=time.monotonic() - started,
    )


class _Decoder:
    """The decoder and its outcomes.

    Attributes:
        outcomes: number of inputs that were traces, and that were rejected, by reason.
        failures: inputs with any other outcome.
    """

    def __init__(self) -> None:
        self.fed = 0
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []

    def feed(self, value: bytes) -> None:
        """Decode an input, and write a score into it if it is a trace."""
        self.fed += 1
        try:
            decode_trace(value, LIMIT)
        except RejectedRecord as error:
            self.outcomes[error.reason] += 1
            return
        except Exception as error:
            self.failures.append(f"{value[:200]!r}: {error!r}")
            return
        try:
            _assert_passed_through(value, with_quality_score(value, SCORE))
            self.outcomes["traces"] += 1
        except Exception as error:
            self.failures.append(f"{value[:200]!r}: {error!r}")


def damaged(line: bytes, rng: random.Random) -> bytes:
    """Return a real trace with one to three kinds of damage."""
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
    """Return a trace with some members replaced by arbitrary values, some missing, and some added."""
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
    """Compare both by another parser, with member order and number formats, ignoring the score."""
    assert decode_trace(scored, 2 * LIMIT).metadata.quality_score == SCORE
    before, after = _members(value), _members(scored)
    assert _take_score(after) == json.dumps(SCORE), "the score is not in the output"
    _take_score(before)
    assert before == after, "more than the score changed"


def _members(text: bytes) -> list[tuple[str, Any]]:
    return json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)


def _take_score(members: list[tuple[str, Any]]) -> Any:
    """Remove and return the score of the last `metadata` member; None if there is none."""
    metadata = [value for name, value in members if name == "metadata"][-1]
    places = [place for place, (name, _) in enumerate(metadata) if name == "quality_score"]
    return metadata.pop(places[-1])[1] if places else None

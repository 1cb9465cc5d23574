"""Every raw record ends in exactly one output, with nothing changed but its score."""

from __future__ import annotations

import json
import time

import psutil
import pytest

from chaos.embedder import Order, Orders
from chaos.process import MUTE, ORDERS
from support import metrics_page as page
from support.streams import Message, headers_of, score_of, source_of

pytestmark = pytest.mark.integration

MiB = 1024 * 1024


def changed(line, **members):
    """A real trace with some of its members replaced."""
    return json.dumps({**json.loads(line), **members}).encode()


def with_text(line, text):
    """A real trace with a member of its own, whose JSON is the given text."""
    return line[:-1] + b', "x": ' + text + b"}"


BAD = {
    "not utf-8": ("not_json", lambda line: line.replace(b"ReasoningTrace", b"\xff\xfe")),
    "not json": ("not_json", lambda line: b"no trace at all"),
    "NaN": ("not_json", lambda line: with_text(line, b"NaN")),
    "truncated": ("not_json", lambda line: line[: len(line) // 2]),
    "nested too deep": ("not_json", lambda line: with_text(line, b"[" * 100_000 + b"]" * 100_000)),
    "an array": ("invalid_trace", lambda line: b"[" + line + b"]"),
    "another @type": ("invalid_trace", lambda line: changed(line, **{"@type": "Trace"})),
    "a missing field": ("invalid_trace", lambda line: json.dumps({"id": json.loads(line)["id"]}).encode()),
    "a wrong field": ("invalid_trace", lambda line: changed(line, steps="none")),
    "confidence 1.5": (
        "invalid_trace",
        lambda line: changed(line, outcome={"result_summary": "done", "confidence": 1.5}),
    ),
    "an empty value": ("empty", lambda line: b""),
    "a null value": ("empty", lambda line: None),
    "5 MB": ("too_large", lambda line: with_text(line, b'"' + b"x" * 5 * MiB + b'"')),
}

ODD = {
    "unknown fields": b'{"deep": {"er": [1, null, true]}}',
    "a 30-digit integer": b"123456789012345678901234567890",
    "1.10": b"1.10",
    "1e400": b"1e400",
    "lone surrogates, escaped": rb'"\ud800 \uDFFF \\ud800"',
    "every Unicode plane": json.dumps(
        [chr(plane << 16 | 0xABCD) for plane in range(17)], ensure_ascii=False
    ).encode(),
    "escapes and white space": b'  "\\u0041\\/\\t"  ',
}


async def test_bad_records_are_dead_letters_and_their_neighbours_are_scored(make_stream, real_traces):
    stream = await make_stream(2)
    messages = []
    for number, (make, line) in enumerate(zip([bad for _, bad in BAD.values()], real_traces, strict=False)):
        place = {"partition": number % 2, "headers": [("trace", b"1"), ("trace", None), ("", b"\xff")]}
        messages.append(Message(make(line), b"key" if number % 3 else None, **place))
        messages.append(Message(line, b"good", partition=number % 2))
    raw = await stream.publish(messages)

    async with stream.worker() as worker:
        outputs = {source_of(record): record for record in await stream.outputs(worker, raw)}
        await worker.published(len(raw))
        counted = await worker.metrics()
        assert await worker.stop() == 0

    assert len(outputs) == len(raw)
    reasons = [reason for reason, _ in BAD.values()]
    originals = {(record.partition, record.offset): record for record in raw}
    dead = {
        source: record
        for source, record in outputs.items()
        if record.topic == stream.settings.topics.dead_letter
    }
    assert sorted(headers_of(record)["kp-reason"] for record in dead.values()) == sorted(reasons)
    for source, record in dead.items():
        original = originals[source]
        assert (record.key, record.value, record.partition, record.timestamp) == (
            original.key,
            original.value,
            original.partition,
            original.timestamp,
        )
        assert record.headers[: len(original.headers)] == original.headers
        headers = headers_of(record)
        assert headers["__streams.errors.topic"] == stream.settings.topics.raw
        assert headers["__streams.errors.exception"] == "InvalidRecordError"
        assert headers["__streams.errors.message"]
    for reason in set(reasons):
        assert page.value(counted, "kp_dead_letters_total", reason=reason) == reasons.count(reason)


async def test_outputs_carry_everything_through_but_the_score(make_stream, real_traces):
    stream = await make_stream(4)
    second = time.time_ns() // 10**9 * 1000  # of today: what is older than its topic's retention is deleted
    texts = [with_text(line, odd) for odd, line in zip(ODD.values(), real_traces, strict=False)]
    texts += [
        json.dumps(json.loads(line), indent=2, ensure_ascii=False).encode() for line in real_traces[20:25]
    ]
    without = json.loads(real_traces[30])
    del without["metadata"]["quality_score"]
    texts.append(json.dumps(without).encode())
    raw = await stream.publish(
        Message(
            text,
            key=f"key-{number}".encode() if number % 4 else None,
            partition=number % 4,
            timestamp_ms=second + 1 + number,  # milliseconds that seconds as a double would lose
            headers=[("traceparent", b"00-4bf92f-00f067-01"), ("a", None), ("a", b""), ("a", b"\x00\xff")],
        )
        for number, text in enumerate(texts)
    )

    async with stream.worker() as worker:
        outputs = {source_of(record): record for record in await stream.outputs(worker, raw)}
        assert await worker.stop() == 0

    for original in raw:
        record = outputs[original.partition, original.offset]
        assert record.topic != stream.settings.topics.dead_letter, headers_of(record)
        assert (record.key, record.partition, record.timestamp) == (
            original.key,
            original.partition,
            original.timestamp,
        )
        assert record.headers[: len(original.headers)] == original.headers
        ours = [name for name, _ in record.headers[len(original.headers) :]]
        assert ours == ["kp-source", "kp-score", "kp-policy"]
        score = json.dumps(score_of(record)["score"]).encode()
        if b'"quality_score"' in original.value:
            before, after = original.value.split(b'"quality_score": 0')
            assert record.value == before + b'"quality_score": ' + score + after.removeprefix(b".0")
        else:
            assert record.value.replace(b'"quality_score":' + score + b",", b"", 1) == original.value


async def test_a_stop_may_take_as_long_as_it_is_given_to_drain(make_stream, real_traces, tmp_path):
    """However short limits.heartbeat is: that watches for an event loop that hangs."""
    stream = await make_stream(1, kafka={"session_timeout": 6}, limits={"heartbeat": 2, "drain": 6})
    orders = Orders(tmp_path / "orders.json", Order())
    async with stream.worker(module="chaos.process", environment={ORDERS: str(orders.path)}) as worker:
        await stream.publish([Message(real_traces[0])])
        await worker.published(1)
        (child,) = psutil.Process(worker.process.pid).children()
        child.send_signal(MUTE)  # so that what is scored waits, and cannot be drained
        await worker.logged("Heartbeat session expired")
        await stream.publish(Message(line) for line in real_traces[:10])
        await worker.logged("the transaction was aborted")

        assert await worker.stop() == 0

    assert "no heartbeat from the worker" not in worker.log()

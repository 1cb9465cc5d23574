"""The audit of wrapped traces: each output under the setting that its headers name."""

import json

import pytest
from msgspec.structs import replace

from knowledgepulse_worker.settings import RecordSettings

UNWRAP = ("frame", "/data", "text")


def wrapped_values(stream):
    source = stream()
    source.publish(3, seed="wrapped")
    texts = [record.value.decode() for record in source.raw]
    yield b"\0\0\0\0\1" + texts[0].encode()
    yield json.dumps({"subject": "s", "data": json.loads(texts[1])}).encode()
    yield json.dumps({"data": texts[2]}).encode()


def set_records(stream, **changes):
    records = RecordSettings(**changes)
    stream.settings = stream.settings.model_copy(update={"records": records})


@pytest.fixture
def changing(stream):
    """A stream whose workers allowed nothing, then some steps, then bare outputs, then less."""
    changing = stream()
    for setting in (
        {},
        {"unwrap": UNWRAP},
        {"unwrap": UNWRAP, "output": "bare"},
        {"unwrap": ["/data"]},
    ):
        set_records(changing, **setting)
        changing.publish(2)
        for value in wrapped_values(stream):
            changing.publish(value=value)
        changing.work()
    return changing


def outcomes(changing):
    names = [{name for name, _ in output.headers} for output in changing.outputs]
    return ["w" if "kp-wrapping" in given else "s" if "kp-score" in given else "d" for given in names]


@pytest.mark.parametrize("now", [{}, {"unwrap": UNWRAP}, {"unwrap": UNWRAP, "output": "bare"}])
def test_a_change_of_the_setting_makes_no_former_output_wrong(changing, now):
    set_records(changing, **now)
    report = changing.audit(in_transactions=True)

    assert "".join(outcomes(changing)) == "ssddd" + "sswww" * 2 + "ssdwd"
    assert (report.differing, report.missing, report.unknown) == ([], [], 0)
    assert report.novelty_exact == 15


@pytest.mark.parametrize(
    ("offset", "changed"),
    [
        (6, lambda output: replace(output, headers=output.headers[:-1])),
        (7, lambda output: replace(output, headers=(*output.headers[:-1], ("kp-wrapping", b"bare frame")))),
        (8, lambda output: replace(output, headers=(*output.headers[:-1], ("kp-wrapping", b"same text")))),
        (5, lambda output: replace(output, headers=(*output.headers, ("kp-wrapping", b"same frame")))),
        (8, lambda output: replace(output, value=output.value.replace(b'"s"', b'"t"'))),
        (13, lambda output: replace(output, value=output.value + b" ")),
    ],
)
def test_an_output_that_is_not_what_its_headers_say_is_told(changing, offset, changed):
    changing.outputs[offset] = changed(changing.outputs[offset])

    report = changing.audit(in_transactions=True)

    assert report.differing[0].offset == offset


def test_a_letter_of_a_trace_that_could_be_read_is_told(changing):
    letter = changing.outputs[2]
    place = next(at for at, (name, _) in enumerate(letter.headers) if name == "kp-form")
    headers = (*letter.headers[: place + 1], ("kp-unwrap", b"frame"), *letter.headers[place + 1 :])
    changing.outputs[2] = replace(letter, headers=headers)

    (difference,) = changing.audit(in_transactions=True).differing

    assert difference.offset == 2
    assert "the record is a trace" in difference.what

"""Displaying dead letters."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker.tools.dead_letters import letter_text as text
from knowledgepulse_worker.tools.dead_letters.letter import DeadLetter
from support.letters import buried, raw_record, records

hostile = st.text() | st.sampled_from(["\x1b[31mred", "\x9b2J", "a\r\nkp-reason: empty", "\u202eabc", "\x07"])


@given(records, hostile, hostile)
def test_output_contains_no_terminal_control_characters(record, message, value):
    """Only the value may have several lines, after everything else."""
    record = msgspec.structs.replace(record, value=value.encode())
    letter = buried(record, message=message)
    read = DeadLetter.read(letter)
    shown = text.details(letter)
    for line in [text.row(read, None), text.as_json(read, None)]:
        assert line.isprintable()
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    value_at = 4 + len(letter.headers)
    assert shown.splitlines()[value_at].startswith("value: ")


@given(st.text(min_size=1), st.none() | st.binary())
def test_shows_text_unchanged_and_escapes_binary_values(value, key):
    shown = text.details(buried(raw_record(value=value.encode(), key=key)))
    if value.isprintable():
        assert shown.endswith(f"\n{value}")
    assert text.details(buried(raw_record(value=b"\xff\x00a"))).endswith(r"\xff\x00a")
    assert "\nkey: null\n" in text.details(buried(raw_record(key=None)))


def test_the_list_does_not_reveal_content():
    secret = b"SECRET"
    letter = DeadLetter.read(
        buried(raw_record(key=secret, value=secret, headers=(("SECRET", secret), ("kp-reason", secret))))
    )
    assert "SECRET" not in text.row(letter, None) + text.as_json(letter, None)


def test_a_json_line_has_all_columns_of_the_table():
    whole = DeadLetter.read(
        buried(raw_record(headers=(("kp-attempt", b"1"),)), message="größer", form="malformed")
    )
    cut = DeadLetter.read(buried(raw_record(value=b"x" * 5000), "too_large", cut=True))
    assert json.loads(text.as_json(whole, "raw-traces/3/40")) == {
        "partition": 3,
        "offset": 5,
        "timestamp_ms": 1769860800000,
        "reason": "not_json",
        "form": "malformed",
        "source": "raw-traces/3/17",
        "attempts": 1,
        "bytes": 8,
        "cut": False,
        "replayed_to": "raw-traces/3/40",
        "exception": "InvalidRecordError",
        "message": "größer",
    }
    assert (json.loads(text.as_json(cut, None))["bytes"], json.loads(text.as_json(cut, None))["cut"]) == (
        5000,
        True,
    )

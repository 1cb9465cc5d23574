"""Labels from files and topics."""

import json
from dataclasses import replace

import pytest

from knowledgepulse_curator.labels.labelled_inputs import labels_to_use
from knowledgepulse_curator.labels.labels import Label, labels_of_files, read_label
from knowledgepulse_curator.labels.labels_topic import labels_of_records
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.kafka.foreign_records import ForeignRecords
from support.scored import dead_letter


def label(**members):
    return json.dumps({"id": "kp:trace:1", **members}).encode()


@pytest.mark.parametrize(
    ("members", "kept"),
    [
        ({"keep": True}, True),
        ({"keep": False}, False),
        ({"reward": 1}, True),
        ({"reward": 0.5}, True),
        ({"reward": 0.4}, False),
        ({"reward": -1}, False),
    ],
)
def test_a_label_has_keep_or_a_reward(members, kept):
    assert read_label("file:1", label(source="me", group=3, **members)).is_kept(0.5) is kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "truncated"),
        (b"yes", "malformed"),
        (b"[]", "Expected `object`"),
        (b'{"keep": true}', "missing required field `id`"),
        (b'{"id": "", "keep": true}', "length >= 1"),
        (label(keep="yes"), "Expected `bool | null`"),
        (label(reward="1"), "Expected `float | null`"),
        (label(), "give either keep (true or false) or reward (a number)"),
        (label(keep=True, reward=1), "give either keep (true or false) or reward (a number)"),
        (b"\xff", "not a label"),
    ],
)
def test_the_error_for_an_invalid_label_names_its_location(text, message):
    with pytest.raises(InputError) as error:
        read_label("labels.jsonl:7", text)
    assert str(error.value).startswith("labels.jsonl:7: not a label: ")
    assert message in str(error.value)


def test_a_traces_last_label_wins(tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_bytes(label(keep=True))
    second.write_bytes(label(keep=False) + b"\n\n" + label(keep=True, source="after a second look"))

    assert labels_to_use(labels_of_files([first, second])) == {
        "kp:trace:1": Label("kp:trace:1", True, source="after a second look")
    }


async def test_a_tombstone_removes_a_label():
    async def records():
        for key, value in [
            (b"kp:trace:1", label(keep=True)),
            (b"kp:trace:2", b'{"id": "kp:trace:2", "keep": false}'),
            (None, None),
            (b"kp:trace:1", None),
            (b"kp:trace:2", None),
            (b"kp:trace:1", label(keep=False)),
        ]:
            yield replace(dead_letter(0), key=key, value=value)

    assert await labels_of_records(records(), ForeignRecords()) == {"kp:trace:1": Label("kp:trace:1", False)}


async def test_a_record_of_a_stranger_is_no_label_and_ends_no_command():
    async def records():
        for offset, value in enumerate([label(keep=True), b"x", b"\xff", b"[" * 100_000, b'{"id": "a"}']):
            yield replace(dead_letter(0), offset=offset, value=value)

    foreign = ForeignRecords()

    assert await labels_of_records(records(), foreign) == {"kp:trace:1": Label("kp:trace:1", True)}
    assert foreign.count == 4
    assert foreign.example.startswith("offset 1 (partition 0: not a label: JSON is malformed")

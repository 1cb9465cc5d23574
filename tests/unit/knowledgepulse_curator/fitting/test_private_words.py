"""Words that a policy does not keep for people to read."""

from __future__ import annotations

import msgspec
import pytest

from knowledgepulse_curator.fitting.private_words import private_words
from knowledgepulse_worker.scoring import Content


@pytest.fixture
def record(make_record, make_counts):
    def make(text="", words=None):
        counts = msgspec.structs.replace(make_counts(4, 1), words=words)
        return make_record((0.5, 0.5, 0.5, 0.5), counts=counts, content=Content("", (text,), ""))

    return make


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("open /home/ann/notes.txt and look", {"home", "ann", "notes", "txt"}),
        (r"open C:\Users\ann\notes and look", {"users", "ann", "notes", "c"}),
        ("write to ann@example.org today", {"ann", "example", "org"}),
        ("open /usr/share/doc and look", set()),
    ],
)
def test_the_words_that_the_cleaner_takes_out_are_private(record, text, hidden):
    assert private_words([record(text)]) == {word.encode() for word in hidden}


def test_a_word_that_stands_elsewhere_more_often_is_not(record):
    texts = ["/home/ann/refund.py", "give a refund", "the refund of ann"]
    assert private_words(map(record, texts)) == {b"home", b"py"}


def test_the_name_of_a_user_is_private_where_only_the_words_are_known(record):
    records = [record(words="look at home ann notes"), record("go to the home page", words="the home page")]
    assert private_words(records) == {b"ann"}

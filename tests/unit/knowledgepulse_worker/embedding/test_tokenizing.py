"""Tokenizing a prefix gives the same first tokens as tokenizing the whole text."""

# ruff: noqa: RUF001 - characters that look like others are the point
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from knowledgepulse_worker.embedding.tokenizing import PrefixTokenizer, read_tokenizer, well_formed
from knowledgepulse_worker.embedding.weights import find_model

pytestmark = pytest.mark.model

WINDOW = 16

# Scripts with and without spaces, marks that join what stands before them, characters that BERT deletes
# or takes for white space, special tokens whole and in parts, words that are too long, lone surrogates.
PIECES = [
    *("word", "größer", "Ünïcödé", "e\u0301", "\u0301", "\u200d", "\u00a0", "\u3000", "\u2028", "\ufeff"),
    *(" ", "  ", "\t", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\x00", "\ufffd", "\x7f"),
    *(
        "[SEP]",
        "[CLS]",
        "[PAD]",
        "[MASK]",
        "[UNK]",
        "[SE",
        "P]",
        "[",
        "]",
        " [MASK] ",
        "##ing",
        "'s",
        "don't",
    ),
    *("構建失敗", "ビルドが失敗した", "かな", "한국어", "العربية", "עברית"),
    *("ไทยไม่มีช่องว่าง", "हिन्दी", "русский", "ελληνικά"),
    *("。", "、", "「引用」", "！", "……", "—", "“quoted”", "…", "€5", "½", "²"),
    *("ﬁ", "𝔘𝔫𝔦", "🙂", "👩‍👩‍👧", "🇩🇪"),
    *("x" * 99, "x" * 100, "x" * 101, "x" * 300, "-" * 40),
    *("a.b.c", "http://a/b?c=d&e", '{"k": [1, 2.5e-3]}', "\\n"),
    *("\ud800", "\udc00", "\ud83d\ude42", "a\ud800b"),
    *("İ", "ẞ", "ǅ", "Å", "가", "か\u3099", "ๆ", "\u0378", "\U000e0001", "\U0001f9ff"),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return read_tokenizer(find_model(None, None, None).path, 30_522)


def same_window(tokenizer, text, window=WINDOW):
    """Compare both truncations with the whole text's tokens."""
    whole = tokenizer.encode(well_formed(text)).ids
    [ids] = PrefixTokenizer(tokenizer, window).ids([text])
    assert (len(ids) > window) == (len(whole) > window)
    assert ids[:window] == whole[:window]
    assert ids[-1] == whole[-1]
    if len(whole) <= window:
        assert ids == whole


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=30), max_size=120).map("".join))
def test_no_prefix_changes_a_token_of_the_window(tokenizer, text):
    same_window(tokenizer, text)


@settings(max_examples=300)
@given(st.sampled_from(PIECES), st.integers(0, 400), st.sampled_from(PIECES), st.integers(0, 40))
def test_no_prefix_that_ends_next_to_a_run_changes_a_token(tokenizer, run, length, next_one, count):
    same_window(tokenizer, run * length + next_one * count + " and so on, until the window is full")


@pytest.mark.parametrize("piece", ["the agent reads the log. ", "ビルド", "構", "x", "\x85", "\ud800 "])
def test_half_a_megabyte_of_a_repeated_piece(tokenizer, piece):
    same_window(tokenizer, piece * (500_000 // len(piece.encode(errors="surrogatepass"))), window=256)


def test_no_more_is_read_than_needed(tokenizer):
    read = []

    class Reading:
        normalizer, pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer

        def encode_batch_fast(self, texts):
            read.extend(map(len, texts))
            return tokenizer.encode_batch_fast(texts)

    PrefixTokenizer(Reading(), 256).ids(["the agent reads the log " * 100_000])

    assert sum(read) < 10_000


def test_a_tokenizer_other_than_bert_s_gets_whole_texts(tokenizer):
    """Its word boundaries are unknown."""
    read = []

    class Other:
        normalizer = pre_tokenizer = None

        def encode_batch_fast(self, texts):
            read.extend(texts)
            return tokenizer.encode_batch_fast(texts)

    text = "word " * 10_000
    PrefixTokenizer(Other(), 16).ids([text])

    assert read == [text]

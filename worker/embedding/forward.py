"""A model's forward pass over texts of equal length, as fast as it goes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import cast

import torch

from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

Forward = Callable[[torch.Tensor], torch.Tensor]
"""Token ids, shape (texts, tokens), to vectors, shape (texts, dimensions), float32."""

_SHAPES = ((1, 3), (2, 256), (3, 100))
"""Texts and tokens of the batches on which a trace must agree with the model."""


class EqualLengths(torch.nn.Module):
    """The model without an attention mask, which texts of equal length do not need.

    Pooling and what follows it are computed in float32, whatever the transformer's precision.

    Args:
        model: its first module is a transformer.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.transformer = cast("torch.nn.Module", model[0].auto_model)
        self.rest = torch.nn.ModuleList(list(model)[1:])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors of the texts with these token ids."""
        tokens = self.transformer(input_ids=ids, attention_mask=None).last_hidden_state
        features = {"token_embeddings": tokens.float(), "attention_mask": torch.ones_like(ids)}
        for module in self.rest:
            features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors


def frozen(forward: EqualLengths) -> Forward:
    """Return the pass as one traced graph, which runs without Python's lock; as it is where that fails.

    PyTorch has deprecated tracing, and its successors need a compiler; so a graph that cannot be had, or
    does not give the model's own vectors at other lengths, is no error.
    """
    batches = [torch.arange(texts * tokens).reshape(texts, tokens) % 1000 for texts, tokens in _SHAPES]
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            graph: Forward = torch.jit.freeze(torch.jit.trace(forward, (batches[0],), check_trace=False))
            # Twice, as the first runs of a graph only watch what it does.
            agrees = all(torch.equal(graph(ids), forward(ids)) for ids in (*batches, *batches))
    except Exception as error:  # noqa: BLE001 - whatever a model cannot be traced for
        logger.warning("embedding in plain PyTorch, which is slower: %s", error)
        return forward
    if not agrees:
        logger.warning("embedding in plain PyTorch, which is slower: the traced model gives other vectors")
        return forward
    return graph

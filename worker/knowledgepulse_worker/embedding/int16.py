"""Run a BERT model on the CPU in 13-bit integers, with :mod:`knowledgepulse_bert`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_bert import Encoder, EncoderSize, Instructions, Layer, Linear, Norm, supported
from knowledgepulse_worker.embedding.bert import Bert
from knowledgepulse_worker.embedding.instructions import allows
from knowledgepulse_worker.errors import ModelError


def instructions_for(bert: Bert) -> Instructions | None:
    """Return the instructions that the model runs with, or None if there are none or its sizes do not fit."""
    allowed = (instructions for instructions in supported() if allows(instructions))
    return next(allowed, None) if _size(bert).runs else None


class IntegerForward:
    """A model's forward pass for a single text, callable from several threads at once.

    Args:
        bert: the model, whose layers may be dropped afterwards.
        longest: the longest text, in tokens.

    Raises:
        ModelError: the model cannot be run in this precision, or a tensor is missing or has another shape.
    """

    def __init__(self, bert: Bert, longest: int) -> None:
        instructions = instructions_for(bert)
        if instructions is None:
            raise ModelError(
                "embedding.precision: got int16, which needs a processor with AVX2, an installation that was "
                "built with a C compiler, and a model whose sizes are multiples of 32; set auto or float32"
            )
        self.runtime = f"knowledgepulse_bert with {instructions}"
        self._words = bert.tensor("embeddings.word_embeddings.weight", (bert.vocabulary, bert.dimensions))
        self._positions = bert.position_embeddings()
        self._padding = bert.padding
        self._pooling = bert.pooling
        self._longest = longest
        norm = _norm(bert, "embeddings.LayerNorm")
        try:
            self._encoder = Encoder(_size(bert), norm, _layers(bert), longest, instructions)
        except ValueError as error:
            raise ModelError(f"embedding.model: {bert.file}: {error}") from error

    def __call__(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Turn a text's token ids, at most ``longest``, into a unit vector, shape (dimensions,)."""
        numbers = np.array(ids, dtype=np.int64)
        tokens = self._words[numbers]
        tokens += self._positions[self._places(numbers)]
        self._encoder(tokens)
        vector: NDArray[np.float32] = tokens[0] if self._pooling == "cls" else tokens.mean(axis=0)
        return vector / max(np.linalg.norm(vector), np.float32(1e-12))

    def _places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of the positions' table; RoBERTa numbers all but padding from ``padding + 1``."""
        if self._padding is None:
            return np.arange(len(ids))
        counted = ids != self._padding
        places: NDArray[np.int64] = np.cumsum(counted) * counted + self._padding
        return places

    def warm(self) -> None:
        """Touch the memory of the calling thread; nothing is compiled at the first text."""
        self([0] * self._longest)


def _size(bert: Bert) -> EncoderSize:
    inner = bert.tensor("encoder.layer.0.intermediate.dense.bias", (None,)).size
    return EncoderSize(bert.dimensions, bert.heads, inner, bert.epsilon)


def _layers(bert: Bert) -> Iterator[Layer]:
    width, inner = bert.dimensions, _size(bert).inner
    for number in range(bert.layers):
        name = f"encoder.layer.{number}"
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        weights, biases = zip(*(_linear(bert, part, width, width) for part in parts), strict=True)
        yield Layer(
            attended=Linear(np.concatenate(weights), np.concatenate(biases)),
            joined=_linear(bert, f"{name}.attention.output.dense", width, width),
            attention_norm=_norm(bert, f"{name}.attention.output.LayerNorm"),
            widened=_linear(bert, f"{name}.intermediate.dense", inner, width),
            narrowed=_linear(bert, f"{name}.output.dense", width, inner),
            norm=_norm(bert, f"{name}.output.LayerNorm"),
        )


def _linear(bert: Bert, name: str, outputs: int, inputs: int) -> Linear:
    return Linear(bert.tensor(f"{name}.weight", (outputs, inputs)), bert.tensor(f"{name}.bias", (outputs,)))


def _norm(bert: Bert, name: str) -> Norm:
    shape = (bert.dimensions,)
    return Norm(bert.tensor(f"{name}.weight", shape), bert.tensor(f"{name}.bias", shape))

"""The default embedder, which runs a BERT sentence-transformers model (all-MiniLM-L6-v2) on the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from knowledgepulse_worker.embedding.base import Embeddings, ModelInput, Precision
from knowledgepulse_worker.embedding.bert import Bert, read_bert
from knowledgepulse_worker.embedding.embedding_cache import EmbeddingCache
from knowledgepulse_worker.embedding.instructions import has_bfloat16
from knowledgepulse_worker.embedding.int16 import IntegerForward, instructions_for
from knowledgepulse_worker.embedding.tokenizing import PrefixTokenizer, Window, read_tokenizer
from knowledgepulse_worker.embedding.weights import ModelFolder
from knowledgepulse_worker.errors import EmbeddingError

if TYPE_CHECKING:
    from knowledgepulse_worker.embedding.forward import Forward


class TransformerEmbedder:
    """Embeds texts with a BERT model.

    Args:
        model: the model's folder.
        window: the part of a text that is read.
        model_input: what the model reads of a trace.
        precision: the number format of the products; ``auto`` selects the fastest.
        parallel: the number of threads that call concurrently.

    Raises:
        UnsupportedModelError: the model has another architecture.
        ModelError: a file of the model is missing, is damaged or does not fit the others or the window, or
            the CPU has no instructions for the precision.
    """

    device = "cpu"
    batch = 1

    def __init__(
        self,
        model: ModelFolder,
        window: Window,
        model_input: ModelInput,
        precision: Precision | Literal["auto"],
        parallel: int = 1,
    ) -> None:
        bert = read_bert(model.path)
        window.require(bert.positions, model.description)
        self.description = model_input.description(model.description)
        self.dimensions = bert.dimensions
        self.identity = model_input.identity(bert.identity(window))
        self.parallel = parallel
        self._window = window
        self._input = model_input
        self._tokenizer = PrefixTokenizer(read_tokenizer(model.path, bert.vocabulary), window.max_tokens)
        self.precision, self._forward = _load_forward(bert, precision, window.max_tokens, parallel)
        self.runtime = self._forward.runtime
        self._recent = EmbeddingCache()

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts one by one; read unpaired surrogates as U+FFFD."""
        try:
            ids = self._tokenizer.ids(self._input.read(texts))
            vectors, repeated = self._vectors([tuple(self._window.truncate(row)) for row in ids])
        except Exception as error:
            raise EmbeddingError(f"{self.description} failed on a batch of {len(texts)}: {error}") from error
        truncated = sum(len(row) > self._window.max_tokens for row in ids)
        return Embeddings(vectors, truncated, repeated)

    def warm(self) -> None:
        """Make the first texts as fast as later ones."""
        self._forward.warm()

    def _vectors(self, windows: Sequence[tuple[int, ...]]) -> tuple[NDArray[np.float32], int]:
        """Return the windows' vectors, shape (windows, dimensions), and the number of reused ones."""
        vectors = np.empty((len(windows), self.dimensions), dtype=np.float32)
        rows_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for row, ids in enumerate(windows):
            rows_of[ids].append(row)
        repeated = 0
        for ids, rows in rows_of.items():
            vector = self._recent.find(ids)
            repeated += len(rows) if vector is not None else len(rows) - 1
            if vector is None:
                vector = self._forward(ids)
                self._recent.add(ids, vector)
            vectors[rows] = vector
        return vectors, repeated


def automatic_precision(bert: Bert) -> Precision:
    """Return the precision that ``auto`` selects: bfloat16, int16 or float32, whichever there is first."""
    if not has_bfloat16() and instructions_for(bert):
        return "int16"
    # OpenVINO takes half a second and 40 MB, which 13-bit integers do not need.
    from knowledgepulse_worker.embedding.forward import precisions  # noqa: PLC0415

    return precisions()[0]


def _load_forward(
    bert: Bert, precision: Precision | Literal["auto"], longest: int, parallel: int
) -> tuple[Precision, Forward | IntegerForward]:
    """Return the precision and its pass."""
    chosen = automatic_precision(bert) if precision == "auto" else precision
    if chosen == "int16":
        return chosen, IntegerForward(bert, longest)
    from knowledgepulse_worker.embedding.forward import Forward  # noqa: PLC0415 - see above

    return chosen, Forward(bert, chosen, longest, parallel)

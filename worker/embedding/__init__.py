"""Text embedding: the embedders, and the batcher that lanes share."""

from worker.embedding.base import Embedder, Embeddings
from worker.embedding.batcher import Batcher, Embedded
from worker.embedding.lexical import LexicalEmbedder
from worker.embedding.load import load_embedder

__all__ = ["Batcher", "Embedded", "Embedder", "Embeddings", "LexicalEmbedder", "load_embedder"]

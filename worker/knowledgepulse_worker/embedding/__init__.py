"""Text embedding: the embedders and the batcher that lanes share."""

from knowledgepulse_worker.embedding.base import Embedder, Embeddings
from knowledgepulse_worker.embedding.batcher import Batcher, EmbeddedText
from knowledgepulse_worker.embedding.lexical import LexicalEmbedder
from knowledgepulse_worker.embedding.load import load_embedder
from knowledgepulse_worker.embedding.speed import Speed, measure

__all__ = [
    "Batcher",
    "EmbeddedText",
    "Embedder",
    "Embeddings",
    "LexicalEmbedder",
    "Speed",
    "load_embedder",
    "measure",
]

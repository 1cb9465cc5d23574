"""Axolotl: what the strategy `chat_template` keeps and learns."""

from __future__ import annotations

from axolotl.prompt_strategies.chat_template import load
from axolotl.utils.data.shared import load_dataset_with_config
from axolotl.utils.dict import DictDefault
from reading import report
from transformers import AutoTokenizer


def learnt(folder, model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    source = DictDefault(
        {"path": folder, "type": "chat_template", "split": "train", "message_field_training": "weight"}
    )
    settings = DictDefault({"sequence_len": 200_000, "chat_template": "tokenizer_default"})
    strategy = load(tokenizer, settings, source)
    rows = load_dataset_with_config(source, use_auth_token=False, streaming=False)
    encoded = (strategy.tokenize_prompt(dict(row))["labels"] for row in rows)
    return [tokenizer.decode([label for label in labels if label >= 0]) for labels in encoded]


report("axolotl", learnt)

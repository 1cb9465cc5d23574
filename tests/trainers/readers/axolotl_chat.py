"""Axolotl: what the strategy `chat_template` keeps and learns of a folder of messages."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from axolotl.prompt_strategies.chat_template import load
from axolotl.utils.data.shared import load_dataset_with_config
from axolotl.utils.dict import DictDefault
from transformers import AutoTokenizer

folder, model = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model)
source = DictDefault(
    {"path": folder, "type": "chat_template", "split": "train", "message_field_training": "weight"}
)
settings = DictDefault({"sequence_len": 200_000, "chat_template": "tokenizer_default"})
strategy = load(tokenizer, settings, source)
learnt = [
    tokenizer.decode([label for label in strategy.tokenize_prompt(dict(row))["labels"] if label >= 0])
    for row in load_dataset_with_config(source, use_auth_token=False, streaming=False)
]
print(json.dumps({"version": version("axolotl"), "learnt": learnt}))

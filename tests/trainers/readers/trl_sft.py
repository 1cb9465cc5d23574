"""TRL: what `SFTTrainer` keeps and learns of a folder of messages."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from datasets import load_dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

folder, model = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model)
settings = SFTConfig("unused", assistant_only_loss=True, max_length=None, report_to="none", use_cpu=True)
trainer = SFTTrainer(
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model)),
    settings,
    train_dataset=load_dataset(folder, split="train"),
    processing_class=tokenizer,
)
learnt = [tokenizer.decode([label for label in row["labels"] if label >= 0]) for row in trainer.train_dataset]
print(json.dumps({"version": version("trl"), "learnt": learnt}))

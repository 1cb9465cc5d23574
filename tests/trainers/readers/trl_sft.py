"""TRL: what `SFTTrainer` keeps and learns."""

from __future__ import annotations

from datasets import load_dataset
from reading import report
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer


def learnt(folder, model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    trainer = SFTTrainer(
        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model)),
        SFTConfig("unused", assistant_only_loss=True, max_length=None, report_to="none", use_cpu=True),
        train_dataset=load_dataset(folder, split="train"),
        processing_class=tokenizer,
    )
    return [
        tokenizer.decode([label for label in row["labels"] if label >= 0]) for row in trainer.train_dataset
    ]


report("trl", learnt)

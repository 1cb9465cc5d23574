"""LLaMA-Factory: what it keeps of a file of messages (`formatting: openai`), and what its template learns."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
from llamafactory.hparams import DataArguments, ModelArguments, TrainingArguments
from llamafactory.model import load_tokenizer
from reading import report

TAGS = {"role": "role", "content": "content", "observation": "tool"} | {
    role: role for role in ("user", "assistant", "system", "function")
}


def learnt(folder, model):
    with TemporaryDirectory() as place:
        lines = "".join(path.read_text() for path in sorted(Path(folder).rglob("*.jsonl")))
        Path(place, "messages.jsonl").write_text(lines)
        described = {
            "file_name": "messages.jsonl",
            "formatting": "openai",
            "columns": {"messages": "messages", "tools": "tools"},
            "tags": {f"{tag}_tag": name for tag, name in TAGS.items()},
        }
        Path(place, "dataset_info.json").write_text(json.dumps({"traces": described}))
        model_arguments = ModelArguments(model_name_or_path=model)
        arguments = DataArguments(dataset="traces", dataset_dir=place, template="qwen3", cutoff_len=200_000)
        loaded = load_tokenizer(model_arguments)
        template = get_template_and_fix_tokenizer(loaded["tokenizer"], arguments)
        training = TrainingArguments(output_dir=place, use_cpu=True, do_train=True)
        rows = get_dataset(template, model_arguments, arguments, training, stage="sft", **loaded)
        decode = loaded["tokenizer"].decode
        return [decode([label for label in row["labels"] if label >= 0]) for row in rows["train_dataset"]]


report("llamafactory", learnt)

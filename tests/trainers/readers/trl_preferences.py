"""TRL: what `DPOTrainer` and `KTOTrainer` learn of runs that are kept, or not, of one task."""

from __future__ import annotations

import sys
from importlib.metadata import version
from json import dumps

from datasets import Dataset, Features, Value, load_dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer

NOT_KEPT = [{"role": "assistant", "content": "I do not know."}]


def parts(row):
    """Return what was said before the agent, and the agent's run."""
    roles = [message["role"] for message in row["messages"]]
    start = roles.index("assistant")
    return row["messages"][:start], row["messages"][start:]


def pairs(rows):
    """Return each run beside another one of its task that is not kept."""
    for row in rows:
        prompt, run = parts(row)
        yield {"prompt": prompt, "chosen": run, "rejected": NOT_KEPT, "tools": row["tools"]}


def singles(rows):
    """Return the same runs one by one, with whether they are kept."""
    for row in rows:
        prompt, run = parts(row)
        for completion, label in ((run, True), (NOT_KEPT, False)):
            yield {"prompt": prompt, "completion": completion, "label": label, "tools": row["tools"]}


def learnt(trainer, config, rows):
    """Return the texts of the kept runs that a trainer learns: those whose tokens its loss counts."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    networks = [AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model)) for _ in range(2)]
    settings = config("unused", max_length=None, report_to="none", use_cpu=True)
    made = trainer(*networks, args=settings, train_dataset=rows, processing_class=tokenizer)
    texts = []
    for row in made.train_dataset:
        batch = made.data_collator([row, row])
        counted = zip(batch["input_ids"][0].tolist(), batch["completion_mask"][0].tolist(), strict=True)
        texts.append(tokenizer.decode([token for token, counts in counted if counts]))
    return [text for text in texts if NOT_KEPT[0]["content"] not in text]


model, folder = sys.argv[1:]
lines = load_dataset(folder, split="train")
messages, tools = lines.features["messages"], lines.features["tools"]
of_pairs = Features(prompt=messages, chosen=messages, rejected=messages, tools=tools)
of_singles = Features(prompt=messages, completion=messages, label=Value("bool"), tools=tools)
read = {
    "DPO": learnt(DPOTrainer, DPOConfig, Dataset.from_list([*pairs(lines)], of_pairs)),
    "KTO": learnt(KTOTrainer, KTOConfig, Dataset.from_list([*singles(lines)], of_singles)),
}
print(dumps({"version": version("trl"), "read": read}))

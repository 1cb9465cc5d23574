"""ms-swift: what its loader keeps of a folder of messages, and what its template for Qwen 3 learns."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from swift import get_processor, get_template, load_dataset

folder, model = sys.argv[1:]
processor = get_processor(model, model_type="qwen3", use_hf=True, download_model=False)
template = get_template(processor, template_type="qwen3")
template.set_mode("train")
rows, _ = load_dataset([folder], use_hf=True, load_from_cache_file=False)
learnt = [processor.decode([label for label in template.encode(row)["labels"] if label >= 0]) for row in rows]
print(json.dumps({"version": version("ms-swift"), "learnt": learnt}))

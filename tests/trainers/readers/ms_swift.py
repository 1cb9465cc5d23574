"""ms-swift: what its loader keeps, and what its template for Qwen 3 learns."""

from __future__ import annotations

from reading import report
from swift import get_processor, get_template, load_dataset


def learnt(folder, model):
    processor = get_processor(model, model_type="qwen3", use_hf=True, download_model=False)
    template = get_template(processor, template_type="qwen3")
    template.set_mode("train")
    rows, _ = load_dataset([folder], use_hf=True, load_from_cache_file=False)
    encoded = (template.encode(row)["labels"] for row in rows)
    return [processor.decode([label for label in labels if label >= 0]) for labels in encoded]


report("ms-swift", learnt)

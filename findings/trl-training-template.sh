#!/usr/bin/env bash
# Expected: the template with which TRL trains a model writes a call as the model's own template does.
# Seen: that of DeepSeek V3 takes the arguments as text and raises for an object; TRL's template for training it quotes the text a
#   second time, and writes an object right.
# Versions: trl 1.16.0, transformers 5.24.0, 2026-11-28
# So: docs/consumers/export.md sends readers with TRL to a rendered row, whatever the table says of their model.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages transformers==5.24.0 jinja2==3.1.6
quietly venv/bin/pip install --no-deps trl==1.16.0

cat >render.py <<'PY'
import re
from importlib.metadata import files

from transformers.utils.chat_template_utils import render_jinja_template

templates = {path.name: path.read_text() for path in files("trl") if path.suffix == ".jinja"}
for name in ("deepseekv3", "deepseekv3_training"):
    for arguments in ('{"row": 4}', {"row": 4}):
        call = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": arguments}}
        messages = [{"role": "user", "content": "Book it."}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        try:
            (text,), _ = render_jinja_template(
                [messages], chat_template=templates[f"{name}.jinja"], bos_token="", eos_token=""
            )
            seen = re.search(r"json\n(.*)", text)[1]
        except TypeError as error:
            seen = f"raises {type(error).__name__}"
        print(f"{name}, {type(arguments).__name__}: {seen}")
PY
venv/bin/python render.py 2>/dev/null | tee output
diff - output <<'SEEN'
deepseekv3, str: {"row": 4}
deepseekv3, dict: raises TypeError
deepseekv3_training, str: "{\"row\": 4}"
deepseekv3_training, dict: {"row": 4}
SEEN

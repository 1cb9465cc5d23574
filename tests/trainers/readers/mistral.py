"""mistral-common: which lines of messages its validator accepts for fine-tuning."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion

validator = get_validator(TokenizerVersion.v13, ValidationMode.finetuning)
kept = []
for path in Path(sys.argv[1]).rglob("*.jsonl"):
    for line in map(json.loads, path.read_text().splitlines()):
        try:
            request = ChatCompletionRequest.from_openai(line["messages"], line.get("tools"))
            kept.append(validator.validate_request(request).model_dump_json())
        except (MistralCommonException, ValueError) as error:
            print(type(error).__name__, str(error)[:200], file=sys.stderr)
print(json.dumps({"version": version("mistral-common"), "learnt": kept}))

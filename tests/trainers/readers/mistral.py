"""mistral-common: which lines of messages its validator accepts for fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path

from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion
from reading import report

validator = get_validator(TokenizerVersion.v13, ValidationMode.finetuning)


def valid(line):
    try:
        request = ChatCompletionRequest.from_openai(line["messages"], line.get("tools"))
        return validator.validate_request(request).model_dump_json()
    except (MistralCommonException, ValueError):
        return None


def learnt(folder, _model):
    paths = sorted(Path(folder).rglob("*.jsonl"))
    return [
        text for path in paths for line in path.read_text().splitlines() if (text := valid(json.loads(line)))
    ]


report("mistral-common", learnt)

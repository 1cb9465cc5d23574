#!/usr/bin/env bash
# Expected: a tokenizer that truncates at 256 tokens reads little more of a text than these.
# Seen: it tokenizes the whole text, in a time that grows with its length, and keeps the tokens behind the 256 as further
#   encodings, which nobody asked for.
# Versions: tokenizers 0.23.3, 2026-11-28
# So: the worker cuts a text at a boundary of words before the tokenizer reads it (knowledgepulse_worker/embedding/tokenizing.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages tokenizers==0.23.3

cat >truncate.py <<'PY'
import time

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "word": 1}, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.enable_truncation(256)


def seconds(text: str) -> float:
    started = time.perf_counter()
    tokenizer.encode(text)
    return time.perf_counter() - started


short, long = "word " * 256, "word " * 256_000
encoding = tokenizer.encode(long)
print(f"256,000 words: {len(encoding.ids)} tokens, and {len(encoding.overflowing)} further encodings")
slower = min(seconds(long) for _ in range(3)) / min(seconds(short) for _ in range(3))
print(f"against their first 256: {'over 100 times as long' if slower > 100 else f'{slower:.0f} times as long'}")
PY
venv/bin/python truncate.py | tee output
diff - output <<'SEEN'
256,000 words: 256 tokens, and 999 further encodings
against their first 256: over 100 times as long
SEEN

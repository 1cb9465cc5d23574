#!/usr/bin/env bash
# Expected: `load_dataset("folder")` of a local folder returns the rows that its files have.
# Seen: its cache knows a folder by its name and the metadata of its card. After another file was added, and for another folder of
#   the same name, it returns the rows of the first call, without a warning. A version in the card that changes gives the rows.
# Versions: datasets 5.2.0, 2026-11-28
# So: the cards of an export have a version from the hash of the manifest (worker/knowledgepulse_curator/export/dataset_card.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages datasets==5.2.0

cat >load.py <<'PY'
from datasets import load_dataset

print(load_dataset("traces", split="train")["id"][:])
PY
card() {
    printf -- '---\nconfigs:\n- config_name: default\n  data_files: train/**\ndataset_info:\n  version: 0.0.%s\n---\n' "$1"
}
load() {
    echo -n "$1: "
    (cd "$2" && HF_HOME="$work/cache" "$work/venv/bin/python" "$work/load.py" 2>/dev/null)
}
mkdir -p one/traces/train other/traces/train
card 1 | tee one/traces/README.md >other/traces/README.md
echo '{"id": "a"}' >one/traces/train/1.jsonl
echo '{"id": "z"}' >other/traces/train/1.jsonl
{
    load "one file" one
    echo '{"id": "b"}' >one/traces/train/2.jsonl
    load "two files" one
    load "another folder" other
    card 2 >one/traces/README.md
    load "two files, another version" one
} | tee output
diff - output <<'SEEN'
one file: ['a']
two files: ['a']
another folder: ['a']
two files, another version: ['a', 'b']
SEEN

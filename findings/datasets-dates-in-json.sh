#!/usr/bin/env bash
# Expected: `load_dataset("json")` returns a text of JSON as text.
# Seen: where all texts of a member look like dates or times, it returns objects of datetime, without their zone, also deep inside.
#   With the type `json` for the outermost member, named in the folder's card, each text is as it was.
# Versions: datasets 5.2.0, 2026-11-28
# So: the cards of messages and trajectories name the types of all members (worker/knowledgepulse_curator/export/dataset_card.py).
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages datasets==5.2.0

mkdir typed
echo '{"call": {"day": "2026-01-31", "from": "2026-01-31T10:00:00+05:00"}}' | tee lines.jsonl >typed/lines.jsonl
printf -- '---\ndataset_info:\n  features:\n  - {name: call, dtype: json}\n---\n' >typed/README.md
cat >load.py <<'PY'
from datasets import load_dataset

print(load_dataset("json", data_files="lines.jsonl", split="train")[0])
print(load_dataset("typed", split="train")[0])
PY
HF_HOME="$work/cache" venv/bin/python load.py 2>/dev/null | tee output
diff - output <<'SEEN'
{'call': {'day': datetime.datetime(2026, 1, 31, 0, 0), 'from': datetime.datetime(2026, 1, 31, 5, 0)}}
{'call': {'day': '2026-01-31', 'from': '2026-01-31T10:00:00+05:00'}}
SEEN

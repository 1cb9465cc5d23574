#!/usr/bin/env bash
# Follows docs/curators/evaluation.md with evaluations of Inspect and of Harbor that are run here, without a model or a container.
# Needs Python 3.12 for Harbor (HARBOR_PYTHON names it), and downloads both from PyPI into .venv/evaluations.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
place=$root/.venv/evaluations
results=$place/results
PATH=$root/.venv/bin:$PATH

install() { # NAME PYTHON REQUIREMENT...
    local name=$1 python=$2
    shift 2
    [ "$(cat "$place/$name/installed" 2>/dev/null)" = "$*" ] && return
    rm -rf "${place:?}/$name"
    "$python" -m venv "$place/$name"
    "$place/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" > "$place/$name/installed"
}
install inspect "$root/.venv/bin/python" inspect-ai==0.3.285 openai==3.57.0
install harbor "${HARBOR_PYTHON:-python3.12}" harbor==0.26.0

rm -rf "$results"
mkdir -p "$results"
cd "$results"
"$place/inspect/bin/python" "$here/apples_inspect.py" logs
"$place/harbor/bin/python" "$here/apples_harbor.py" tasks
PYTHONPATH=$here:$root/tests/producers/python LITELLM_LOCAL_MODEL_COST_MAP=True "$place/harbor/bin/harbor" run --path tasks --jobs-dir jobs --yes \
    --agent apples_harbor:Counter --env local_environment:LocalEnvironment > harbor.txt 2>&1 || { cat harbor.txt; exit 1; }

for evaluation in logs jobs; do
    echo "== $evaluation"
    kp-worker convert "$evaluation" > "$evaluation.jsonl"
    kp-worker policy fit "$evaluation.jsonl" --embedder none --labels-from-outcomes --output "$evaluation.toml" || test $? = 3
done
python - << 'END'
import json
from collections import Counter

for evaluation, runs, group in (("logs", 24, 2), ("jobs", 12, 1)):
    metadata = [json.loads(line)["metadata"] for line in open(f"{evaluation}.jsonl")]
    found = Counter((each["success"], each["outcome_source"], each["ending"]) for each in metadata)
    # Every other box is right, as the evaluation's own mean of 0.5 says.
    assert found == {(True, "label", "answered"): runs // 2, (False, "label", "answered"): runs // 2}, found
    assert set(Counter(each["task_id"] for each in metadata).values()) == {group}
    assert all(each["rewards"][0]["value"] == each["success"] for each in metadata)
print("both evaluations are told as they were graded")
END

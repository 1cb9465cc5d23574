"""Has Harbor run the agent of `baker.py` on a task whose verifier gives the script's rewards."""

import json
from pathlib import Path

from bakery import OBJECTIVE, OUTPUT, SCRIPT
from harbor.cli.main import app

REWARDS = f"""cd "$(dirname "$0")/.."
cat > logs/verifier/reward.json <<'END'
{json.dumps(SCRIPT["rewards"])}
END
"""
task = Path("weighing")
for name, text in {
    "instruction.md": OBJECTIVE,
    "task.toml": 'version = "1.0"\n',
    "environment/Dockerfile": "FROM scratch\n",
    "tests/test.sh": REWARDS,
}.items():
    (task / name).parent.mkdir(parents=True, exist_ok=True)
    (task / name).write_text(text)
ungraded = [] if SCRIPT["rewards"] else ["--disable-verification"]
app(
    [
        *("run", "--path", str(task), "--jobs-dir", f"{OUTPUT}/jobs", "--yes", *ungraded),
        *("--agent", "baker:Baker", "--env", "local_environment:LocalEnvironment"),
    ]
)

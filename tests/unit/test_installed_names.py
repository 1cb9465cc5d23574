"""The project is installed under names that no application's own packages have."""

import os
import subprocess
import sys


def test_an_application_may_have_packages_worker_and_schemas_of_its_own(tmp_path, real_traces):
    """They come first on its path; neither is shadowed, nor taken for ours."""
    for name in ("worker", "schemas"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWN = {name!r}\n")
    (tmp_path / "application.py").write_text(
        "import sys\n"
        "import schemas, worker\n"
        "from knowledgepulse_schemas import ReasoningTrace\n"
        "from knowledgepulse_worker.cli.entry import main\n"
        "trace = ReasoningTrace.model_validate_json(sys.stdin.buffer.readline())\n"
        "print(worker.OWN, schemas.OWN, trace.id, flush=True)\n"
        "main(['score', '--help'])\n"
    )

    done = subprocess.run(
        [sys.executable, "application.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        input=real_traces[0],
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"worker schemas kp:trace:")
    assert b"Usage: application.py score" in done.stdout

"""Scoring and the schemas can be used in any process: they import no Kafka or model library."""

import subprocess
import sys

import pytest

HEAVY = ("aiokafka", "faust", "mode", "msgspec", "prometheus_client", "sentence_transformers", "torch")


@pytest.mark.parametrize("module", ["schemas", "knowledgepulse_worker.scoring"])
def test_importing_it_imports_none_of_the_workers_libraries(module):
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []

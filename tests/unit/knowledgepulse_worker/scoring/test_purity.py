"""Scoring and the schemas can be used in any process: they import no Kafka or model library."""

import subprocess
import sys

HEAVY = ("aiokafka", "faust", "mode", "prometheus_client", "sentence_transformers", "torch")


def test_importing_them_imports_none_of_the_workers_libraries():
    code = f"""if True:
        import sys, knowledgepulse_schemas, knowledgepulse_worker.scoring
        print(*(name for name in {HEAVY} if name in sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []

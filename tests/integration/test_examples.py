"""The examples do what they say; `make check NAME=examples` runs those in TypeScript."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.examples import EXAMPLES, plays
from support.java_kafka import JavaKafka

pytestmark = pytest.mark.integration


async def test_python(make_stream):
    python = (sys.executable, "-W", "error")
    await plays(
        make_stream, (*python, "producer.py"), (*python, "consumer.py"), EXAMPLES / "python", "builder-python"
    )


async def test_java(make_stream):
    kafka = JavaKafka.find(print)
    java = (kafka.java, "-Xmx256m", "-cp", f"{kafka.jars}/*")
    await plays(
        make_stream, (*java, "Producer.java"), (*java, "Consumer.java"), EXAMPLES / "java", "builder-java"
    )


def test_the_notebook_scores_and_plots(tmp_path):
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"  # noqa: PTH120 - a link has another parent
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"MPLBACKEND": "agg", "PATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
    assert (tmp_path / "scores.png").stat().st_size > 10_000
    assert all(not cell.get("outputs") for cell in cells)

"""The examples in TypeScript: `make check NAME=examples`, which takes Node.js and npm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.examples import plays

pytestmark = pytest.mark.integration

BUILT = Path(os.environ["EXAMPLES"])


async def test_typescript(make_stream):
    await plays(
        make_stream, ("node", "build/producer.js"), ("node", "build/consumer.js"), BUILT, "builder-typescript"
    )

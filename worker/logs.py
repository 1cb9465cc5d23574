"""Logging to standard error: human lines."""

from __future__ import annotations

import logging
import sys

# They log a line for each step of their own, some with the content of records; ours tell what counts.
_OTHERS = ("aiokafka", "faust", "mode", "httpx", "sentence_transformers", "transformers", "urllib3")


def configure(level: str) -> None:
    """Send log records of this level and above to standard error; other libraries' a step quieter."""
    logging.basicConfig(
        stream=sys.stderr, level=level, format="%(asctime)s %(levelname)-7s %(message)s", force=True
    )
    logging.captureWarnings(capture=True)
    for name in _OTHERS:
        logging.getLogger(name).setLevel(logging.INFO if level == "DEBUG" else logging.WARNING)

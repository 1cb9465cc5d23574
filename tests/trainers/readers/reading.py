"""What all readers do: read each folder of messages, and print what a model would learn of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path


def report(package: str, learnt: Callable[[str, str], list[str]]) -> None:
    """Print what a function returns for each folder in the arguments: a text for each row that it keeps.

    If it raises, print the name of the error.

    Args:
        package: the reader's package.
        learnt: takes a folder of messages and one of a model.
    """
    model, *folders = sys.argv[1:]
    read: dict[str, list[str] | str] = {}
    for folder in folders:
        try:
            read[Path(folder).parent.name] = learnt(folder, model)
        except Exception as error:  # a reader raises what it likes
            read[Path(folder).parent.name] = type(error).__name__
    print(json.dumps({"version": version(package), "read": read}))

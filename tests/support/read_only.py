"""A worker on a read-only file system without a temporary folder: it cannot create folders or files."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import Any, NoReturn

from support.child import start_child_in


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


os.mkdir = _refuse
tempfile.tempdir = "/nonexistent"
start_child_in("support.read_only")

if __name__ == "__main__":
    from worker.cli.entry import main

    main()

"""File descriptors: the limit, which bounds open files and connections, and a file that has no name."""

from __future__ import annotations

import os
import resource
from tempfile import TemporaryFile

WANTED_DESCRIPTORS = 65_536
"""More descriptors than a flood of connections to the web port can use before they time out."""


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit to :data:`WANTED_DESCRIPTORS`, or as far as the hard one allows.

    The usual soft limit of 1,024 protects programs that use ``select``; the worker does not. A process that
    has reached its limit cannot open connections to brokers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def anonymous_file() -> int:
    """Return the descriptor of an empty file without a name, in memory where the platform has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("kp-worker")
    with TemporaryFile() as file:
        return os.dup(file.fileno())

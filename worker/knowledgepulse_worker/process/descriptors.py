"""The limit on file descriptors, which bounds open files and connections."""

from __future__ import annotations

import resource

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

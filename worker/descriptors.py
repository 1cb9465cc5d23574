"""The limit on open files and connections."""

from __future__ import annotations

import resource

WANTED = 65_536
"""Descriptors that no flood of connections to the web port uses up before they time out."""


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit on descriptors to :data:`WANTED`, or as far as the hard limit allows.

    The usual soft limit of 1 024 is for programs that use ``select``, which nothing here does. Where it is
    reached, no connection to a broker can be opened.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

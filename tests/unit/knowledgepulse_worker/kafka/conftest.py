"""See :mod:`support.topics`."""

from support.topics import admin, brokers, fit

__all__ = ["admin", "brokers", "fit"]

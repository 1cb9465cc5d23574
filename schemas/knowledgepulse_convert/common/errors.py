"""The converters' errors."""

from __future__ import annotations


class ConversionError(ValueError):
    """A document, or a run in it, cannot be converted.

    The message says what was wrong, where in the document, and what is accepted.
    """


class UnreadError(ConversionError):
    """A document has no format that is read."""


class NoRunError(ConversionError):
    """A document has no agent run."""

"""The one error of the converters."""

from __future__ import annotations


class ConversionError(ValueError):
    """A document or a run in it cannot become a trace.

    The text names what was wrong, where in the document, and what is accepted.
    """

"""The errors of msgspec's decoders."""

from __future__ import annotations

import msgspec

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are malformed, have another form, are not UTF-8 or nest too deeply."""

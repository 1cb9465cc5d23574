"""The parts of the check, in the order in which they run."""

from __future__ import annotations

from interoperability.part import Part
from interoperability.parts import brokers, connect, schema_registry, wrapping

PARTS: dict[str, Part] = {
    "brokers": brokers.PART,
    "connect": connect.PART,
    "schema_registry": schema_registry.PART,
    "wrapping": wrapping.PART,
}

"""The parts of the check, in the order in which they run."""

from __future__ import annotations

from interoperability.part import Part
from interoperability.parts import schema_registry

PARTS: dict[str, Part] = {"schema_registry": schema_registry.PART}

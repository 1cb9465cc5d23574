"""An extension of Griffe, which reads the docstrings for mkdocstrings."""

from __future__ import annotations

from typing import Any

import griffe

from generator.python import ROLE


class Roles(griffe.Extension):
    """Shows what Sphinx's roles name, such as ``:class:`Scorer```, as code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite a docstring as soon as it is read."""
        if obj.docstring:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)

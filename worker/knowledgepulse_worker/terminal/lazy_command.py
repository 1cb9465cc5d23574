"""Commands that are imported when they are invoked."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import click


class LazyCommand(click.Command):
    """Name and short help of a command, which is imported when it is invoked.

    `--help` and shell completion need nothing else, and stay fast. As the place of the command is a text, a
    package may list commands of a package that imports it.

    Args:
        name: name of the subcommand.
        target: place of the command, ``module:attribute``.
        short_help: first sentence of its help.
    """

    def __init__(self, name: str, target: str, short_help: str, *, hidden: bool = False) -> None:
        super().__init__(name, short_help=short_help, hidden=hidden)
        self.target = target

    def load(self) -> click.Command:
        """Import the command; an epilog of this one becomes the command's."""
        command = cast("click.Command", imported(self.target))
        command.epilog = self.epilog or command.epilog
        return command


def loaded(command: click.Command) -> click.Command:
    """Return a command, imported if it is lazy."""
    return command.load() if isinstance(command, LazyCommand) else command


def imported(target: str) -> Any:
    """Import what stands at a place, ``module:attribute``."""
    module, attribute = target.split(":")
    if module not in sys.modules:
        with _frozen():
            import_module(module)
    return getattr(sys.modules[module], attribute)


@contextmanager
def _frozen() -> Iterator[None]:
    """Hide what is imported from the garbage collector.

    It would visit modules, which stay, during their imports, afterwards and at the exit: a third of the CPU
    time of a short command.
    """
    gc.collect()  # what is garbage now would stay
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

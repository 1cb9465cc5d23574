"""Where a member is in an object, and what an object has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Path:
    """The names of the members that lead from an object to a value; none for the object itself."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        """Return the names with dots between them."""
        return ".".join(self.names)

    def of(self, value: Any) -> Any:
        """Return what is there in an object, or in the first of a list on the way; None if nothing is."""
        for name in self.names:
            if isinstance(value, list) and value:
                value = value[0]
            if not isinstance(value, dict):
                return None
            value = value.get(name)
        return value


def at(*names: str) -> Path:
    """Return the path of these names."""
    return Path(names)


_MISSING = object()
_NONE = (None, _MISSING)
Conditions = Mapping[Any, Any]
"""What the members of an object are, by their names or paths.

A value, a set of values, a tuple of beginnings, a type, ``...`` for any value, or None for no member.
"""


class Pattern:
    """What an object has."""

    def __init__(self, conditions: Conditions) -> None:
        self.wanted = {at(name) if isinstance(name, str) else name: conditions[name] for name in conditions}
        self._tests = [(path.names, _test(wanted)) for path, wanted in self.wanted.items()]
        self.needed = {names[0] for names, test in self._tests if names and not test(_MISSING)}

    def fits(self, value: Any) -> bool:
        """Return whether a value is an object that has all of it."""
        if not (isinstance(value, dict) and self.needed <= value.keys()):  # nearly always
            return False
        for names, test in self._tests:
            found: Any = value
            for name in names:
                found = found.get(name, _MISSING) if isinstance(found, dict) else _MISSING
            if not test(found):
                return False
        return True


class AnyOf:
    """The check for an object that has all of one of some patterns.

    Attributes:
        needed: The names of members of which the object has at least all of one set.
    """

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = list(patterns)
        self.needed = [pattern.needed for pattern in self._patterns]

    def __call__(self, value: Any) -> bool:
        """Return whether a value is such an object."""
        return any(pattern.fits(value) for pattern in self._patterns)


def any_of(*alternatives: Conditions) -> AnyOf:
    """Return the check for an object that has all of one of these."""
    return AnyOf(map(Pattern, alternatives))


def _test(wanted: Any) -> Callable[[Any], bool]:
    """Return the test of a member, or of ``_MISSING``."""
    if wanted is ...:
        return lambda found: found is not _MISSING
    if isinstance(wanted, type):
        return lambda found: isinstance(found, wanted)
    if isinstance(wanted, tuple):
        return lambda found: isinstance(found, str) and found.startswith(wanted)
    if isinstance(wanted, set | frozenset):
        has_none = None in wanted
        return lambda found: found in wanted if isinstance(found, str) else has_none and found in _NONE
    return lambda found: found == wanted or (wanted is None and found is _MISSING)


class Places:
    """What is read of an object."""

    def __init__(self, paths: Iterable[Path | None]) -> None:
        known = [path.names for path in paths if path is not None and path.names]
        self._below: dict[str, Places | None] = {}  # None for what is read whole
        for first in {names[0] for names in known}:
            below = [Path(names[1:]) for names in known if names[0] == first]
            self._below[first] = Places(below) if all(path.names for path in below) else None

    def under(self, *names: str) -> Places:
        """Return what is read of the object at a path."""
        if not names:
            return self
        below = self._below.get(names[0])
        return below.under(*names[1:]) if below else Places(())

    def rest_of(self, value: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
        """Yield what is not read of an object, each with its path; ``above`` stands before all of them."""
        for name, member in value.items():
            below = self._below.get(name)
            if below is not None and isinstance(member, dict):
                yield from below.rest_of(member, f"{above}{name}.")
            elif below is not None or name not in self._below:
                yield f"{above}{name}", member

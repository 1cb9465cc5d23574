"""The sessions that agents keep on this machine: each input format declares the places of its programs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from stat import S_ISREG

from knowledgepulse_convert import INPUT_FORMATS, ConversionError
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import counted, did_you_mean
from knowledgepulse_worker.tools.convert.databases import sessions_in
from knowledgepulse_worker.tools.terminal.arguments import is_database


@dataclass(frozen=True, slots=True)
class Session:
    """A session of an agent, or a file that may hold some.

    Attributes:
        agent: The program's name.
        path: The file.
        last_active: When it was last changed, in seconds since 1970.
        id: Its id, if the file is a database.
    """

    agent: str
    path: str
    last_active: float
    id: str | None = None


def find_sessions(
    home: Path, agents: Sequence[str], refused: Callable[[str, ConversionError], None]
) -> list[Session]:
    """Return the sessions below a home folder, the oldest first.

    Only names, sizes and times are looked at, and of a database the ids and times of its sessions.

    Args:
        home: the folder for which ``~`` stands.
        agents: the names of programs, in any case and with hyphens for spaces; all if there is none.
        refused: is told of databases that cannot be read.

    Raises:
        InputError: no program has one of the names.
    """
    found: list[Session] = []
    for agent, patterns in _chosen(agents).items():
        paths = {path for pattern in patterns for path in home.glob(pattern.removeprefix("~/"))}
        for path in paths:
            try:
                found += _sessions_at(agent, path)
            except ConversionError as error:
                refused(str(path), error)
    return sorted(found, key=attrgetter("last_active", "path"))


def program_places() -> dict[str, list[str]]:
    """Return the programs whose places are known, each with patterns of paths."""
    known = defaultdict[str, list[str]](list)
    for input_format in INPUT_FORMATS.values():
        for agent, patterns in input_format.places.items():
            known[agent] += patterns
    return dict(sorted(known.items(), key=lambda item: item[0].lower()))


def _chosen(agents: Sequence[str]) -> dict[str, list[str]]:
    known = {_option(agent): (agent, patterns) for agent, patterns in program_places().items()}
    for name in agents:
        if _option(name) not in known:
            hint = did_you_mean(_option(name), known)
            raise InputError(f"--agent {name}: {hint}the places of these are known: {', '.join(known)}")
    return dict(known[name] for name in (map(_option, agents) if agents else known))


def _option(agent: str) -> str:
    return agent.lower().replace(" ", "-").replace("_", "-")


def _sessions_at(agent: str, path: Path) -> Iterator[Session]:
    with suppress(OSError):  # it is gone, or may not be read
        status = path.stat()
        if not S_ISREG(status.st_mode) or not status.st_size:
            return
        if is_database(str(path)):
            for session, last_active in sessions_in(path):
                yield Session(agent, str(path), last_active, session)
        else:
            yield Session(agent, str(path), status.st_mtime)


_AGES = (("day", 86_400), ("hour", 3600), ("minute", 60))


def found_text(sessions: Sequence[Session], now: float) -> str:
    """Return in words what was found: `Codex 212 sessions, OpenCode 31; newest 2 hours ago`."""
    (first, number), *others = Counter(session.agent for session in sessions).most_common()
    agents = ", ".join([f"{first} {counted(number, 'session')}", *(f"{agent} {n:,}" for agent, n in others)])
    age = now - max(session.last_active for session in sessions)
    unit, seconds = next(((unit, seconds) for unit, seconds in _AGES if age >= seconds), ("", 0))
    return f"{agents}; newest {f'{counted(int(age // seconds), unit)} ago' if unit else 'just now'}"

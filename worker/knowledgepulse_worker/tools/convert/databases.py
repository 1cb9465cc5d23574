"""Databases in which agents keep their sessions: each session as its program's own export tells it.

An agent may be at work. A database without a log beside it is opened as one that nobody changes, so that no
file appears in the agent's folder and no lock is taken; one with a log is copied, and read from the copy.

Source: https://www.sqlite.org/fileformat.html, https://www.sqlite.org/wal.html.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import cramjam

from knowledgepulse_convert import AUTO, ConversionError, Options, UnreadError, convert
from knowledgepulse_worker.tools.convert.conversion_options import EVERYTHING, Selection
from knowledgepulse_worker.tools.convert.file_conversion import LocatedConversion
from knowledgepulse_worker.tools.convert.unpacking import MAX_DOCUMENT

COPIES = 5
"""How often a database is copied that changes meanwhile."""
_LOGS = ("-wal", "-journal")
_HEAD = 28
"""Bytes in which a database has the number of its changes, and a log what differs when it begins again."""

_MILLISECONDS = 1e11
"""Numbers above are times in milliseconds."""
_LONGEST = 4 * 2**20
"""Bytes of an entry that OpenClaw compresses."""

Query = Callable[..., list[sqlite3.Row]]


@dataclass(frozen=True)
class Database:
    """The database of a program.

    Attributes:
        program: Its name.
        release: The release whose schema is known.
        format: The input format of its exports.
        tables: The tables that are read, with their columns; no others are, which may hold secrets.
        sessions: The query for the sessions, the oldest first, with their ids and times (``last_active``).
        export: Returns a session's export, from its row.
    """

    program: str
    release: str
    format: str
    tables: Mapping[str, str]
    sessions: str
    export: Callable[[sqlite3.Row, Query], Any]


def _of_opencode(session: sqlite3.Row, query: Query) -> Any:
    of_session, parts = session["id"], dict[str, list[Any]]()
    for part in query("SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id", of_session):
        parts.setdefault(part["message_id"], []).append(_json(part["data"]) | {"id": part["id"]})
    messages = query(
        "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", of_session
    )
    return {
        "info": {"id": of_session, "parentID": session["parent_id"], "directory": session["directory"]},
        "messages": [
            {"info": _json(message["data"]) | {"id": message["id"]}, "parts": parts.get(message["id"], [])}
            for message in messages
        ],
    }


def _of_hermes(session: sqlite3.Row, query: Query) -> Any:
    messages = query(
        "SELECT role, content, tool_call_id, tool_calls, tool_name, timestamp, finish_reason, reasoning,"
        " reasoning_content, active FROM messages WHERE session_id = ? ORDER BY id",
        session["id"],
    )
    return dict(session) | {"messages": [dict(message) for message in messages]}


def _of_openclaw(session: sqlite3.Row, query: Query) -> Any:
    """Return the branch that ends with the last entry: a session may have been taken back, and gone on."""
    rows = query(
        "SELECT event_json, event_zstd, event_utf8_bytes FROM transcript_events"
        " WHERE session_id = ? ORDER BY seq",
        session["session_id"],
    )
    entries = [_entry(row) for row in rows]
    header = next((entry for entry in entries if entry.get("type") == "session"), {})
    by_id = {entry["id"]: entry for entry in entries if entry is not header and "id" in entry}
    branch: list[Any] = []
    following = next(reversed(by_id), None)
    while following in by_id:
        branch.append(by_id.pop(following))
        following = branch[-1].get("parentId")
    unreadable = [entry for entry in entries if "id" not in entry]
    return {"header": {"id": session["session_id"], **header}, "entries": [*reversed(branch), *unreadable]}


def _entry(row: sqlite3.Row) -> dict[str, Any]:
    """Return an entry, of which a long one is compressed."""
    if row["event_json"] is not None:
        return _json(row["event_json"])
    text = bytearray(_unpacked_size(row))
    try:
        length = cramjam.zstd.decompress_into(row["event_zstd"], text)
    except (cramjam.DecompressionError, TypeError) as error:  # or it is no bytes
        return {"type": "unreadable", "content": str(error)}
    return _json(bytes(text[:length]))


def _json(text: str | bytes) -> dict[str, Any]:
    """Return an object; what cannot be read is an unknown one, which the format reports."""
    try:
        value = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError) as error:
        value = {"content": str(error)}
    return value if isinstance(value, dict) else {"content": value}


DATABASES = (
    Database(
        "OpenCode",  # and Kilo, which is made of it
        "1.18",
        "opencode",
        {
            "session": "id parent_id directory time_updated",
            "message": "id session_id time_created data",
            "part": "id message_id session_id data",
        },
        "SELECT id, parent_id, directory, time_updated AS last_active FROM session ORDER BY time_updated, id",
        _of_opencode,
    ),
    Database(
        "Hermes Agent",
        "0.19",
        "hermes",
        {
            "sessions": "id source parent_session_id started_at cwd model system_prompt",
            "messages": "id session_id role content tool_call_id tool_calls tool_name timestamp finish_reason"
            " reasoning reasoning_content active",
        },
        "SELECT id, source, parent_session_id, started_at, started_at AS last_active, cwd, model,"
        " system_prompt FROM sessions"
        " ORDER BY started_at, id",
        _of_hermes,
    ),
    Database(
        "OpenClaw",
        "2026.9",
        "openclaw",
        {
            "session_windows": "session_id updated_at",
            "transcript_events": "session_id seq event_json event_zstd event_utf8_bytes",
        },
        "SELECT session_id, updated_at AS last_active FROM session_windows ORDER BY updated_at, session_id",
        _of_openclaw,
    ),
)


def convert_database(
    name: str, format_name: str, options: Options, wanted: Selection = EVERYTHING
) -> Iterator[LocatedConversion]:
    """Convert the sessions of an agent's database; yield an error in place of what cannot be read."""
    path = Path(name)
    try:
        with _opened(path) as (connection, is_copy):
            state = _state(path)
            database = _known(connection, format_name)
            for session in _chosen(connection.execute(database.sessions).fetchall(), wanted):
                place, document = f"{name}:{session[0]}", _exported(database, session, connection)
                if not is_copy and _state(path) != state:
                    raise ConversionError("in use: it changed while it was read; try again")  # noqa: TRY301
                if isinstance(document, ConversionError):
                    yield place, document
                else:
                    yield from ((place, outcome) for outcome in convert(document, database.format, options))
    except ConversionError as error:
        yield name, error
    except sqlite3.Error as error:
        yield name, ConversionError(f"a damaged database of SQLite: {error}")


def sessions_in(path: Path) -> list[tuple[str, float]]:
    """Return the ids of a database's sessions, each with the time when it was last active, in seconds.

    Raises:
        ConversionError: the database cannot be read.
    """
    try:
        with _opened(path) as (connection, _):
            sessions = connection.execute(_known(connection, AUTO).sessions).fetchall()
    except sqlite3.Error as error:
        raise ConversionError(f"a damaged database of SQLite: {error}") from error
    return [(str(session[0]), _seconds(session["last_active"])) for session in sessions]


def _chosen(sessions: list[sqlite3.Row], wanted: Selection) -> list[sqlite3.Row]:
    """Return the sessions that are wanted, the oldest first; raise a ConversionError if one is missing."""
    if missing := sorted(set(wanted.ids) - {str(session[0]) for session in sessions}):
        raise ConversionError(f"holds no session {', '.join(missing)}")
    since = None if wanted.since is None else wanted.since.timestamp()
    chosen = [
        session
        for session in sessions
        if (not wanted.ids or str(session[0]) in wanted.ids)
        and (since is None or _seconds(session["last_active"]) >= since)
    ]
    return chosen if wanted.newest is None else chosen[-wanted.newest :]


def _seconds(time: Any) -> float:
    """Return a time in seconds since 1970, which some programs have in milliseconds; 0 if it is none."""
    if not isinstance(time, int | float):
        return 0.0
    return time / 1000 if time > _MILLISECONDS else time


def _exported(database: Database, session: sqlite3.Row, connection: sqlite3.Connection) -> Any:
    """Return a session's export, or an error if it is too large to be in memory."""
    size = 0

    def query(statement: str, *values: Any) -> list[sqlite3.Row]:
        nonlocal size
        rows = []
        for row in connection.execute(statement, values):
            size += sum(len(value) for value in row if isinstance(value, str | bytes)) + _unpacked_size(row)
            if size > MAX_DOCUMENT:
                raise ConversionError(f"is a session of more than {MAX_DOCUMENT // 2**20} MiB")
            rows.append(row)
        return rows

    try:
        return database.export(session, query)
    except ConversionError as error:
        return error


def _unpacked_size(row: sqlite3.Row) -> int:
    size = row["event_utf8_bytes"] if "event_utf8_bytes" in row.keys() else 0  # noqa: SIM118 - no mapping
    return min(size, _LONGEST) if isinstance(size, int) else 0


def _known(connection: sqlite3.Connection, format_name: str) -> Database:
    """Return whose database it is; raise a ConversionError if it is nobody's that is known."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database = next((known for known in DATABASES if names >= known.tables.keys()), None)
    if database is None:
        programs = ", ".join(known.program for known in DATABASES)
        raise UnreadError(
            f"a database of SQLite of another program than {programs}, which is not read; let its program "
            "export the sessions"
        )
    for table, columns in database.tables.items():
        has = {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}
        if missing := sorted({*columns.split()} - has):
            raise ConversionError(
                f"{database.program}'s database in another form than that of its release {database.release}: "
                f"the table {table} lacks {', '.join(missing)}; let {database.program} export the sessions"
            )
    if format_name not in (AUTO, database.format):
        raise ConversionError(f"{database.program}'s database, whose format is {database.format}")
    return database


@contextmanager
def _opened(path: Path) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """Open a database, or a copy of one with a log, without changing anything beside it."""
    with TemporaryDirectory(prefix="kp-database-") as folder:
        has_log = any(log.exists() and log.stat().st_size for log in _logs(path))
        if has_log:
            path, how = _copied(path, Path(folder)), "mode=rw"
        else:
            how = "mode=ro&immutable=1"
        with closing(sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_DOCUMENT)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.row_factory = sqlite3.Row
            yield connection, has_log


def _logs(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in _LOGS]


def _copied(path: Path, folder: Path) -> Path:
    """Copy a database and its log, both as they were at one moment.

    A write-ahead log may grow meanwhile: until it begins again, with other numbers, it has all that is
    written to the database, and what is cut off at its end does not count.
    """
    copy = folder / "database"
    for _ in range(COPIES):
        before = _state(path)
        for file in (path, *_logs(path)):
            own = copy.with_name(copy.name + file.name.removeprefix(path.name))
            own.unlink(missing_ok=True)
            if file.exists():
                copyfile(file, own)
        if _is_whole(before, _state(path)):
            return copy
    raise ConversionError(
        f"in use: it changed during each of {COPIES} copies; try again, or copy it while its agent rests"
    )


def _is_whole(before: list[Any], after: list[Any]) -> bool:
    """Return whether a copy is whole that was made between two states of a database and its logs."""
    if before == after:
        return True
    (_, *logs_before), (_, *logs_after) = before, after
    if not (logs_before[0] and logs_after[0]) or logs_before[1] != logs_after[1]:
        return False
    (size, *_, head), (later_size, *_, later_head) = logs_before[0], logs_after[0]
    return bool(size) and later_size >= size and later_head == head


def _state(path: Path) -> list[Any]:
    """Return what changes whenever a database or its logs do: sizes, times, its counter, the log's salt."""
    state: list[Any] = []
    for file in (path, *_logs(path)):
        try:
            found = file.stat()
            with file.open("rb") as opened:
                head = opened.read(_HEAD)
        except FileNotFoundError:
            state.append(None)
        else:
            state.append((found.st_size, found.st_mtime_ns, found.st_ino, head))
    return state

"""The KnowledgePulse SDK's cleaner as a redaction function: it removes secrets and personal identifiers.

Set ``redaction.function = "knowledgepulse_worker.redaction.sdk:clean"`` to use it. It is ported from
``pii-cleaner.ts`` of https://github.com/chesterkuo/OpenKnowledgePulse (Apache-2.0). The SDK cleans only the
texts of steps. This function cleans every text of a trace and the values of members that have the name of a
secret, also where a text quotes JSON.
"""

from __future__ import annotations

import re
from typing import Any

from knowledgepulse_schemas.trace import is_uuid_id, trace_id_of

SDK_CLEANER = "knowledgepulse_worker.redaction.sdk:clean"
"""The name of the function, as in ``redaction.function``."""

_SPACE = "\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""The characters that ``\\s`` matches in JavaScript."""

_ASSIGNED_NAMES = "password|passwd|secret|token|api_key|apikey|api_secret|access_token|auth_token"
_LOCAL = r"[a-zA-Z0-9._%+\-]"
_OCTET = r"(?:25[0-5]|2[0-4]\d|[01]?\d\d?)"
_REDACTED_PASSWORD = "[REDACTED:password]"  # noqa: S105 - the replacement, not a password
_SECRET_WORDS = ("password", "passwd", "secret", "token", "apikey", "api_key", "api-key")
"""A member whose name ends with one of these holds a secret; the SDK knows only the words themselves."""

_QUOTED_SECRET = re.compile(
    # Matches the quote after such a name, then a string or a number, in a text that quotes JSON at any level.
    rf"(?s)(?P<end>[\\'\"](?i:{'|'.join(f'(?<={word}.)' for word in _SECRET_WORDS)})"
    r"(?:(?<=\\)\\{0,6}['\"])?)(?P<colon>\s*:\s*)"
    rf"(?:(?P<quote>\\{{0,7}}['\"])(?!(?P=quote)|{re.escape(_REDACTED_PASSWORD)}(?P=quote))"
    r".*?(?:(?<!\\)(?P=quote)|\Z)|-?\d[\w.+\-]*)"
)
_QUOTED_REDACTED = rf"\g<end>\g<colon>\g<end>{_REDACTED_PASSWORD}\g<end>"

_UNQUOTED = rf"[^{_SPACE}'\"`,;)}}\[\]]"
_ASSIGNMENT = re.compile(
    rf"(?ai)\b(?P<key>{_ASSIGNED_NAMES})(?P<sep>[{_SPACE}]*[=:][{_SPACE}]*)(?!\[REDACTED)"
    # In JavaScript, a character outside the basic plane counts as two.
    rf"(?:(?P<quote>['\"])[^'\"]*(?P=quote)|{_UNQUOTED}{{2,}}|[\U00010000-\U0010ffff])"
)
_ASSIGNED = rf"\g<key>\g<sep>{_REDACTED_PASSWORD}"
_HINTS = ("passw", "secret", "token", "api")
"""A text without any of these names no secret; this check is much faster than the patterns."""

_CONNECTION = re.compile(
    rf"(?ai)(?:postgresql|postgres|mysql|redis|rediss|mongodb|mongodb\+srv|amqp|amqps)://[^{_SPACE}'\"`,)}}\]]+"
)
_KEYS = (
    (rf"Bearer[{_SPACE}]+(?!kp_)[A-Za-z0-9_\-.~+/=]{{20,}}", "Bearer [REDACTED:bearer_token]"),
    (r"sk-[A-Za-z0-9]{20,}", "[REDACTED:api_key]"),
    (r"gh[poas]_[A-Za-z0-9]{36,}", "[REDACTED:api_key]"),
    (r"AKIA[A-Z0-9]{16}", "[REDACTED:api_key]"),
    (r"kp_[a-f0-9]{16,}", "[REDACTED:api_key]"),
    (r"xox[bpras]-[A-Za-z0-9\-]+", "[REDACTED:api_key]"),
)
_EMAIL = re.compile(rf"{_LOCAL}++(@[a-zA-Z0-9.\-]+\.[a-zA-Z]{{2,}})?", re.ASCII)
"""Matches an address, or a run of characters that begins none, so that a search skips the whole run."""

_IDENTIFIERS = (
    (
        rf"(?=[+(\d])(?:\+?1[-.{_SPACE}]?)?\(?\d{{3}}\)?[-.{_SPACE}]?[{_SPACE}]?\d{{3}}[-.{_SPACE}]\d{{4}}\b",
        "[REDACTED:phone]",
    ),
    (r"\+[1-9]\d{6,14}\b", "[REDACTED:phone]"),
    (rf"\b{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}\b", "[REDACTED:ip]"),
    (rf"/(?:home|Users)/[a-zA-Z0-9._\-]+(?:/[^{_SPACE}'\"`,;)}}\]]*)?", "[REDACTED:filepath]"),
    (rf"[A-Z]:\\Users\\[a-zA-Z0-9._\-]+(?:\\[^{_SPACE}'\"`,;)}}\]]*)?", "[REDACTED:filepath]"),
)


def _compiled(rules: tuple[tuple[str, str], ...]) -> list[tuple[re.Pattern[str], str]]:
    # In JavaScript, these classes and \b only know ASCII.
    return [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in rules]


_KEY_RULES, _IDENTIFIER_RULES = _compiled(_KEYS), _compiled(_IDENTIFIERS)


def clean_text(text: str, level: str = "aggregated") -> str:
    """Clean a text like the SDK's ``cleanPii``.

    Args:
        text: any text.
        level: a ``metadata.privacy_level``; ``private`` keeps identifiers, but never secrets.
    """
    if "://" in text:
        text = _CONNECTION.sub("[REDACTED:connection_string]", text)
    for pattern, replacement in _KEY_RULES:
        text = pattern.sub(replacement, text)
    if _may_name_secrets(text):
        text = _ASSIGNMENT.sub(_ASSIGNED, text)
    if level == "private":
        return text
    if "@" in text:
        text = _EMAIL.sub(lambda found: "[REDACTED:email]" if found[1] else found[0], text)
    for pattern, replacement in _IDENTIFIER_RULES:
        text = pattern.sub(replacement, text)
    return text


def clean(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace with every text cleaned, including the names of members.

    A text or number in a member with the name of a secret, such as ``"db_password"``, counts as a secret. An
    id that contains something to clean is replaced by an id derived from it; UUIDs are always kept.
    """
    level = trace["metadata"]["privacy_level"]
    cleaned: dict[str, Any] = _cleaned(
        {name: member for name, member in trace.items() if name != "id"}, level
    )
    cleaned["metadata"]["created_at"] = trace["metadata"]["created_at"]  # may look like a phone number
    return {**cleaned, "id": clean_id(trace["id"], level)}


def clean_id(trace_id: str, level: str = "aggregated") -> str:
    """Return a trace's id, or an id derived from it if the cleaner finds something in it."""
    if is_uuid_id(trace_id) or clean_text(trace_id, level) == trace_id:
        return trace_id
    return trace_id_of(trace_id)


def _clean_repeatedly(text: str, level: str) -> str:
    """Clean repeatedly until nothing changes, since a redaction may expose a match beside it."""
    while True:
        cleaned = clean_text(text, level)
        if _may_name_secrets(cleaned):
            cleaned = _QUOTED_SECRET.sub(_QUOTED_REDACTED, cleaned)
        if cleaned == text:
            return text
        text = cleaned


def _may_name_secrets(text: str) -> bool:
    return any(map(text.casefold().__contains__, _HINTS))


def _is_secret(name: str) -> bool:
    return name.casefold().rstrip(f"{_SPACE}:=").endswith(_SECRET_WORDS)


def _cleaned(value: Any, level: str, *, secret: bool = False) -> Any:
    if secret and value and isinstance(value, str | int | float) and value is not True:
        return _REDACTED_PASSWORD
    if isinstance(value, str):
        return _clean_repeatedly(value, level)
    if isinstance(value, list):
        return [_cleaned(item, level, secret=secret) for item in value]
    if isinstance(value, dict):
        return {
            _clean_repeatedly(name, level): _cleaned(member, level, secret=_is_secret(name))
            for name, member in value.items()
        }
    return value

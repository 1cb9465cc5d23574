"""The cleaning of the KnowledgePulse SDK as a redaction function: secrets, and what identifies a person.

``redaction.function = "knowledgepulse_worker.redaction.sdk:clean"``. Ported from ``pii-cleaner.ts`` of
https://github.com/chesterkuo/OpenKnowledgePulse (Apache-2.0). The SDK cleans the texts of steps only; this
cleans every text of a trace, and what members with the name of a secret hold, also where a text quotes JSON.
"""

from __future__ import annotations

import re
from typing import Any

from knowledgepulse_schemas.trace import is_uuid_id, trace_id_of

_SPACE = "\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""What ``\\s`` is in JavaScript."""

_ASSIGNED_NAMES = "password|passwd|secret|token|api_key|apikey|api_secret|access_token|auth_token"
_LOCAL = r"[a-zA-Z0-9._%+\-]"
_OCTET = r"(?:25[0-5]|2[0-4]\d|[01]?\d\d?)"
_REDACTED_PASSWORD = "[REDACTED:password]"  # noqa: S105 - what stands in place of one
_SECRET_WORDS = ("password", "passwd", "secret", "token", "apikey", "api_key", "api-key")
"""The ends of the names of members that hold secrets: those that the SDK knows, and longer ones."""

_QUOTED_SECRET = re.compile(
    # In a text that quotes JSON, or a text that does: the quote after such a name, then a text or a number.
    rf"(?s)(?P<end>[\\'\"](?i:{'|'.join(f'(?<={word}.)' for word in _SECRET_WORDS)})"
    r"(?:(?<=\\)\\{0,6}['\"])?)(?P<colon>\s*:\s*)"
    rf"(?:(?P<quote>\\{{0,7}}['\"])(?!(?P=quote)|{re.escape(_REDACTED_PASSWORD)}(?P=quote))"
    r".*?(?:(?<!\\)(?P=quote)|\Z)|-?\d[\w.+\-]*)"
)
_QUOTED_REDACTED = rf"\g<end>\g<colon>\g<end>{_REDACTED_PASSWORD}\g<end>"

_UNQUOTED = rf"[^{_SPACE}'\"`,;)}}\[\]]"
_ASSIGNMENT = re.compile(
    rf"(?ai)\b(?P<key>{_ASSIGNED_NAMES})(?P<sep>[{_SPACE}]*[=:][{_SPACE}]*)(?!\[REDACTED)"
    # In JavaScript a character beyond the basic plane is two.
    rf"(?:(?P<quote>['\"])[^'\"]*(?P=quote)|{_UNQUOTED}{{2,}}|[\U00010000-\U0010ffff])"
)
_ASSIGNED = rf"\g<key>\g<sep>{_REDACTED_PASSWORD}"
_HINTS = ("passw", "secret", "token", "api")
"""Without one of them no secret is named: much faster to find."""

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
"""An address, or a run of characters that begins none: read in one go, where a search would start at each."""

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
    # In JavaScript these classes and \b are of ASCII only.
    return [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in rules]


_KEY_RULES, _IDENTIFIER_RULES = _compiled(_KEYS), _compiled(_IDENTIFIERS)


def clean_text(text: str, level: str = "aggregated") -> str:
    """Return a text as the SDK's ``cleanPii`` cleans it.

    Args:
        text: any text.
        level: a ``metadata.privacy_level``; identifiers stay if it is ``private``, secrets never.
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
    """Return a trace with every text cleaned, the names of members too.

    A text or number whose member is named as a secret, such as ``"db_password"``, is one. An id with anything
    to clean is replaced by one that is derived from it; UUIDs stay, whatever they look like.
    """
    level = trace["metadata"]["privacy_level"]
    cleaned: dict[str, Any] = _cleaned({name: one for name, one in trace.items() if name != "id"}, level)
    cleaned["metadata"]["created_at"] = trace["metadata"]["created_at"]  # its digits may look like a phone's
    return {**cleaned, "id": clean_id(trace["id"], level)}


def clean_id(trace_id: str, level: str = "aggregated") -> str:
    """Return a trace's id, or one derived from it if it says more than a UUID does."""
    if is_uuid_id(trace_id) or clean_text(trace_id, level) == trace_id:
        return trace_id
    return trace_id_of(trace_id)


def _clean_repeatedly(text: str, level: str) -> str:
    """Clean until nothing is left to clean: what is redacted may bring to light what stood beside it."""
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
        return [_cleaned(one, level, secret=secret) for one in value]
    if isinstance(value, dict):
        return {
            _clean_repeatedly(name, level): _cleaned(one, level, secret=_is_secret(name))
            for name, one in value.items()
        }
    return value

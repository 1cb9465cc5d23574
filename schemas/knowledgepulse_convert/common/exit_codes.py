"""The exit code of a command, by which its result is a failure although its status may be a success."""

from __future__ import annotations

import re
from typing import Any

from knowledgepulse_convert.common.reading import parse_json

_NAMES = ("exit_code", "exitCode", "exit")
_AROUND = ("metadata", "shellExecution")
"""Members of a result that may hold it."""
_BEFORE = re.compile(
    r"(?:Chunk ID: \w+\n)?(?:Wall time: [\d.]+ seconds\n)?"
    r"(?:Process exited with code|(?:Status: \w+\n)?Exit code:) (-?\d+)\n"  # Codex; Kolega Code
    r"|exit: (-?\d+)\n"  # Grok
)
_AFTER = re.compile(
    r"(?:\nExit Code: (-?\d+)(?:\n(?:Signal|Background PIDs|Process Group PGID): [^\n]*)*"  # Gemini CLI
    r"|\nCommand failed with exit code: (-?\d+)\."  # Kimi Code
    r"|\n\nExit code: (-?\d+)"  # nanobot
    r"|\nReturn code: (-?\d+)(?:\s*\nNote: [^\n]*)?"  # gptme
    r"|<shellId: \w+ completed with exit code (-?\d+)>)"  # Copilot CLI
    r"\s*(?:</untrusted_context>\s*)?\Z"
)
_WRAPPED = '{"output":'
"""How a result of Hermes' terminal begins."""
WRAPPER = {"output", "exit_code", "error"}
"""What it has: Hermes writes it around a command's text."""
_MARK = "ode"
"""What each of them has, which is found sooner."""
_LINES = 1000
"""The most characters of the lines that a program writes after a command's output."""


def exit_code_of(result: dict[str, Any]) -> int:
    """Return the exit code in a member of a command's result; 0 if there is none."""
    for members in (result, *map(result.get, _AROUND)):
        if isinstance(members, dict):
            for name in _NAMES:
                if type(code := members.get(name)) is int:
                    return code
    return 0


def written_exit_code(text: str) -> int:
    """Return the exit code that a program writes around a command's output; 0 without any."""
    if text.startswith(_WRAPPED) and isinstance(result := parse_json(text), dict):
        return exit_code_of(result) if result.keys() >= WRAPPER else 0
    end = text[-_LINES:]
    found = _BEFORE.match(text) or (_AFTER.search(end) if _MARK in end else None)
    return int(next(filter(None, found.groups()))) if found else 0

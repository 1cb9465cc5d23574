"""Text that agent programs write into the user's messages: a part of the prompt, not a request.

The same text arrives in a program's own log, in a tracer's spans and in saved API messages of any vendor, so
it is told apart from requests here, for every format. It is recognised by elements that begin a line and by
headings, both of which only these programs write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from knowledgepulse_convert.common.elements import Element, elements, outside

_ELEMENTS = (
    *("session_context", "hook_context"),  # Gemini CLI
    *("environment_context", "user_instructions"),  # Codex
    *("environment_details", "task_progress"),  # Cline and its forks
    "system-reminder",  # Claude Code, OpenCode and Kolega
    *(r"local-command-\w+", "bash-std(?:out|err)", "task-notification"),  # Claude Code
    *("ide_(?:opened_file|selection)", r"[\w-]+-submit-hook"),
    "qwen:user-prompt-submit-context",
    "current_datetime",  # Copilot CLI
    "git-context",  # Kimi Code, before a subagent's request
)
_OPENING = re.compile(rf"^[ \t]*<({'|'.join(_ELEMENTS)})(?:[ \t][^<>\n]*+)?>", re.MULTILINE)
_HEADING = re.compile(
    r"Calling tools:\n\[\{'id': "  # smolagents
    r"|For context: below is a transcript of what another agent did"  # ADK, and the next two
    r"|\[[^\]\n]+\] (?:said|called tool `[^`\n]+` with parameters|`[^`\n]+` tool returned result)"
    r":\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>"
    r"|\s*# (?:AGENTS\.md instructions "  # Codex
    r"|task_progress (?:List|LIST|RECOMMENDED)|TODO LIST (?:UPDATE|CREATION) REQUIRED|FOCUS CHAIN )"  # Cline
    # What asks for the rest of an answer that was cut off.
    r"|\s*\[System: (?:Your|The) previous (?:response|tool call) "  # Hermes
    r"|\s*The previous assistant response was cut off\. Continue the same response "  # nanobot
    # What takes the place of an earlier part of the conversation.
    r"|\s*\[CONTEXT COMPACTION SUMMARY\]"  # Inspect
    r"|\s*This session is being continued from a previous conversation that ran out of context"  # Claude Code
    r"|\s*Another language model started to solve this problem and produced a summary of "  # Codex
    r"|\s*The conversation history before this point was compacted into the following summary:"  # Pi
    r"|\s*The following is a summary of a branch that this conversation came back from:"
    r"|\s*Here is a summary of the conversation to date:"  # LangChain
)
_GIVEN_UP = re.compile(
    r"\s*(?:Agent stopped due to (?:iteration limit or time limit|max iterations)\."  # LangChain
    r"|Model call limits exceeded: [^\n]*+|(?:'[^'\n]++' tool|Tool) call limit reached: [^\n]*+"
    r"|Sorry, need more steps to process this request\."  # LangGraph
    r"|I completed the tool steps but couldn't produce a final answer\. Please try again or narrow the task\."
    r")\s*"  # nanobot
)
"""What programs write as the agent's answer if it reached a limit without one."""
_ANSWERED = re.compile(r"Final result processed\.\Z|Returning structured response: ")
"""What Pydantic AI and LangChain write as the response to a call that gave the run's answer."""
_IDE = re.compile(r"\s*# Context from my IDE setup:\n")
_IDE_REQUEST = re.compile(r"^## My request for Codex:[ \t]*\n", re.MULTILINE)
_OPENCLAW = re.compile(
    r"\s*(?:[A-Z][\w ]* \(untrusted metadata\):\n```json\n.*?\n```\s*)*"
    r"(?:\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d [^\]\n]+\] "
    r"|\[OpenClaw heartbeat poll\]\s*\Z"
    r"|New task:\n)?",  # smolagents
    re.DOTALL,
)
"""The sender and the time before a message to OpenClaw, or a title; always matches."""
_TERMINUS = "You are an AI assistant tasked with solving command-line tasks"
_TASKS = (
    (  # OpenHands, for a model without function calls
        "",
        "--------------------- NEW TASK DESCRIPTION ---------------------",
        "--------------------- END OF NEW TASK DESCRIPTION ---------------------",
    ),
    ("", "\nCurrent Task: ", "\n\nThis is the expected criteria for your final answer: "),  # CrewAI
    (_TERMINUS, "\nTask Description:\n", "\nCurrent terminal state:\n"),
    (_TERMINUS, "\nInstruction:\n", "\nYour response must be a JSON object that matches this schema:\n"),
)
"""How a text with a task begins, which has an example before it, and the marks around the task."""
_DEMONSTRATION = "Here is a demonstration of how to correctly accomplish this task."
_DEMONSTRATION_END = "--- END OF DEMONSTRATION ---"
"""Around the trajectory that SWE-agent shows to the agent."""
_CONTEXT = "For context:"
"""What ADK for JavaScript writes before the texts that retell what another agent did."""
_CLINE = "<environment_details>"
_CLINE_REQUEST = re.compile(r"\s*<(task|user_message|feedback|answer)>\n?(.*?)\n?</\1>\s*", re.DOTALL)
_CLINE_INPUT = re.compile(r"\s*<user_input mode=\"\w+\">(.*)</user_input>\s*", re.DOTALL)


def split(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the programs' own texts in the texts of a user's message, and the user's requests."""
    if texts[0] == _CONTEXT:
        return list(texts), []
    own: list[str] = []
    requests: list[str] = []
    for text in texts:
        found, rest = _split(given[1] if (given := _CLINE_INPUT.fullmatch(text)) else text)
        own += found
        requests += [rest] if rest or not found else []
    if any(request.startswith(_CLINE) for request in own):
        requests = [
            match[2] if (match := _CLINE_REQUEST.fullmatch(request)) else request for request in requests
        ]
    return own, requests


def is_given_up(answer: str) -> bool:
    """Return whether an answer is a program's, in the place of one that the agent did not give."""
    return _GIVEN_UP.fullmatch(answer) is not None


def is_end(response: str) -> bool:
    """Return whether the response to a call is the program's, which says that it ended the run."""
    return _ANSWERED.match(response) is not None


def _split(text: str) -> tuple[list[str], str]:
    if _HEADING.match(text):
        return [text.strip()], ""
    own = []
    rest = text
    for beginning, mark, end_mark in _TASKS:
        example, _, task = rest.partition(mark)
        if end_mark in task and example.lstrip().startswith(beginning):
            rest, _, after = task.partition(end_mark)
            own += [text.strip() for text in (example, after) if text.strip()]
    if rest.lstrip().startswith(_DEMONSTRATION) and _DEMONSTRATION_END in rest:
        demonstration, _, rest = rest.partition(_DEMONSTRATION_END)
        own.append(demonstration.strip())
    if _IDE.match(rest):
        request = _IDE_REQUEST.search(rest)
        end = request.end() if request else len(rest)
        own.append(rest[:end].strip())
        rest = rest[end:]
    if (before := _OPENCLAW.match(rest)) and before[0].strip():
        own.append(before[0].strip())
        rest = rest[before.end() :]
    programs = list(_elements(rest))
    own += [rest[element.start : element.end].strip() for element in programs]
    return (own, outside(rest, programs).strip()) if own else (own, text)


def _elements(text: str) -> Iterator[Element]:
    """Yield the programs' elements; one that is not closed reaches to the end if it begins the text."""
    for element in elements(text, _OPENING):
        if element.closed:
            yield element
        elif not text[: element.start].strip():
            yield element
            return

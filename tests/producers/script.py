"""The runs that every producer plays, which are also the truth that conversions are compared with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

RUNS = tomllib.loads((Path(__file__).parent / "runs.toml").read_text())


@dataclass(frozen=True)
class Call:
    """A call of a tool, under the name and with the arguments that a producer's tool has.

    Attributes:
        command: what a coding agent runs instead.
        asks: the agent that the tool runs.
        answers: whether the call ends the run, and its result is the answer.
    """

    tool: str
    arguments: dict[str, Any]
    id: str = ""
    command: str = ""
    result: str = ""
    fails: bool = False
    asks: str = ""
    answers: bool = False


@dataclass(frozen=True)
class Turn:
    """One answer of the model; ``asked`` is what the user asks before it, when the session is resumed."""

    text: str
    calls: tuple[Call, ...] = ()
    cut_off: bool = False
    held: bool = False
    asked: str = ""


@dataclass(frozen=True)
class Script:
    """What is said in a conversation; ``agents`` holds the conversations of the agents that it asks.

    Attributes:
        rewards: What graders give the run, by their names; none of a run that nobody grades.
    """

    objective: str
    turns: tuple[Turn, ...]
    stream: bool = False
    limit: int | None = None
    content: bool = True
    agents: dict[str, Script] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> bool | None:
        """What the graders say; None if there are none."""
        return all(reward == 1 for reward in self.rewards.values()) if self.rewards else None

    @property
    def answer(self) -> str | None:
        """The last text, if the run comes to its end with it."""
        last = self.turns[-1]
        if last.calls and last.calls[-1].answers:
            return last.calls[-1].result or last.text
        return None if last.calls or last.held else last.text

    @property
    def success(self) -> bool:
        return self.answer is not None and not self.turns[-1].cut_off

    @property
    def endings(self) -> tuple[str, ...]:
        """How the run may be said to have ended: what a program says at a limit or an error is its own."""
        return ("answered", "submitted") if self.success else ("failed", "cut_off")

    @property
    def resumed(self) -> str:
        """What the user asks in the session when it is resumed, if it is."""
        return next((turn.asked for turn in self.turns if turn.asked), "")

    @property
    def requests(self) -> list[Script]:
        """The requests of the user, each with the turns that follow it."""
        starts = [number for number, turn in enumerate(self.turns) if turn.asked]
        parts = [self.turns[start:end] for start, end in pairwise([0, *starts, len(self.turns)])]
        return [
            replace(
                self,
                objective=first.asked or self.objective,
                turns=(replace(first, asked=""), *others),
            )
            for first, *others in parts
        ]

    @property
    def conversations(self) -> Iterator[Script]:
        yield self
        for agent in self.agents.values():
            yield from agent.conversations

    @property
    def calls(self) -> Iterator[Call]:
        return (
            call for conversation in self.conversations for turn in conversation.turns for call in turn.calls
        )

    def instructions(self, run: str) -> str:
        """Return what a runner has to know, as JSON: the model knows the rest."""
        results: dict[str, list[dict[str, Any]]] = {}
        for call in self.calls:
            what = call.arguments.get("what", "")
            results.setdefault(what, []).append({"text": call.result, "fails": call.fails})
        return json.dumps(
            {
                "run": run,
                "objective": self.objective,
                "stream": self.stream,
                "limit": self.limit,
                "content": self.content,
                "rewards": self.rewards,
                "results": results,
            }
        )


def script(run: str, tools: dict[str, Any]) -> Script:
    """Return a run for a producer, whose ``tools`` say how it calls those of the script.

    ``{"weigh": {"name": "bash", "arguments": {"command": "{command}"}}}`` makes shell commands of the
    script's calls of ``weigh``. Tools that are not named are called as in the script. The tool ``answer``
    gives the answer, where a program expects a call for it, or follows its text, if it has no argument for
    it; ``finish`` is called before the answer. With ``silent``, the model says nothing beside its calls, as a
    program takes a text for the answer.
    """
    return _script(RUNS[run], tools, "")


def _script(data: dict[str, Any], tools: dict[str, Any], agent: str) -> Script:
    said = [turn for part in _requests(data["turns"]) for turn in _ended(part, tools)]
    turns = tuple(_turn(turn, tools, f"{agent}{n}") for n, turn in enumerate(said))
    agents = {name: _script(part, tools, name) for name, part in data.get("agents", {}).items()}
    return Script(**data | {"turns": turns, "agents": agents})


def _requests(turns: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the turns up to each request of the user, and the rest."""
    starts = [number for number, turn in enumerate(turns) if "asked" in turn]
    for start, end in pairwise([0, *starts, len(turns)]):
        yield turns[start:end]


def _ended(turns: list[dict[str, Any]], tools: dict[str, Any]) -> list[dict[str, Any]]:
    """Return turns that end with the calls that a program expects around an answer."""
    *before, last = turns
    if "calls" in last or "held" in last:
        return turns
    if "finish" in tools:
        finish = {"tool": "finish", "arguments": {}, "result": tools["finish"]["result"]}
        before.append({"text": "That is all I have to know.", "calls": [finish]})
    if "answer" in tools:
        last = _answering(last["text"], tools["answer"]["arguments"])
    return [*before, last]


def _answering(answer: str, arguments: dict[str, str]) -> dict[str, Any]:
    call = {"tool": "answer", "arguments": {"answer": answer}, "answers": True}
    if not arguments:
        return {"text": answer, "calls": [call]}
    return {"text": "", "calls": [call | {"result": answer}]}


def _turn(data: dict[str, Any], tools: dict[str, Any], place: str) -> Turn:
    calls = [Call(**call, id=f"call_{place}_{n}") for n, call in enumerate(data.get("calls", ()))]
    text = "" if calls and tools.get("silent") else data["text"]
    called = tuple(_as_called(call, tools.get(call.tool, {})) for call in calls)
    return Turn(**data | {"text": text, "calls": called})


def _as_called(call: Call, tool: dict[str, Any]) -> Call:
    if "arguments" not in tool:
        return replace(call, tool=tool.get("name", call.tool))
    values = call.arguments | {"command": call.command}
    arguments = {name: _filled(value, values) for name, value in tool["arguments"].items()}
    return replace(call, tool=tool["name"], arguments=arguments)


def _filled(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    return value.format(**values) if isinstance(value, str) else value

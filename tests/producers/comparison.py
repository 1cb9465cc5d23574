"""Compares what a producer's documents are converted to with the script that it played."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from knowledgepulse_worker.tools.convert.unpacking import read_member
from producers.model import seen_results
from producers.producer import Producer
from producers.script import Call, Script, Turn

RIGHT, PARTLY, NOT_READ, REFUSED, NOTHING = "right", "partly", "not read", "refused", "nothing written"
NOT_INSTALLED = "not installed"
_ADVICE = "enable content capture"
ARCHIVE = ".eval"
"""The suffix of Inspect's archives."""


@dataclass(frozen=True)
class Sign:
    """What documents have to hold, if only of one kind, for a part of the truth to be told from them."""

    name: str
    pattern: re.Pattern[str]


SIGNS = {
    "success": Sign(
        "why the answer ended",
        re.compile(
            r"""\W(?:length|(?:model_)?max_(?:output_)?tokens|incomplete)\\*["'](?!\\*:)""", re.IGNORECASE
        ),
    ),
    "failures": Sign(
        "that a call failed",
        re.compile(
            r"""STATUS_CODE_ERROR|exception|error\\*["']?[:=] ?(?:true|\\*["'])|["']error\\*["']""",
            re.IGNORECASE,
        ),
    ),
}
"""By the part of the truth: a finish reason, a flag or a status."""


@dataclass(frozen=True)
class Verdict:
    """How a conversion compares with the truth.

    Attributes:
        verdict: one of the words above.
        differs: what differs, for a run that is partly right.
        said: what the command said: the reason of a refusal, or warnings.
        traces: how many traces there are.
        unrecorded: what of the script the documents do not hold, so that no conversion can have it: texts,
            and the SIGNS by which the named parts could be told.
    """

    verdict: str
    differs: list[str] = field(default_factory=list)
    said: str = ""
    traces: int = 0
    unrecorded: list[str] = field(default_factory=list)

    @property
    def untold(self) -> list[str]:
        """What the documents do not hold, if that is all why the trace is wrong."""
        names = [SIGNS[part].name for part in self.differs if part in SIGNS]
        return names if len(names) == len(self.differs) and set(names) <= set(self.unrecorded) else []

    @property
    def silently_wrong(self) -> bool:
        """Whether a wrong trace came without a warning, although the documents hold what is right."""
        return self.verdict == PARTLY and not self.said and not self.untold

    @property
    def words(self) -> str:
        if self.verdict == NOT_INSTALLED:
            return f"{self.verdict}: {self.said}"
        silently = ", without a word" if self.silently_wrong else ""
        differs = f": {', '.join(self.differs)}{silently}" if self.differs else ""
        unrecorded = f" (not recorded: {', '.join(self.unrecorded)})" if self.unrecorded else ""
        return f"{self.verdict}{differs}{unrecorded}"


def compared(producer: Producer, run: str, output: Path) -> Verdict:
    """Convert what the producer wrote to ``output``, and compare the traces.

    The folder also gets the traces, and what the command said.
    """
    documents = sorted(output.glob(producer.document))
    if not documents:
        return Verdict(NOTHING)
    followed = producer.truth(run)
    command = [sys.executable, "-m", "knowledgepulse_worker.cli.entry", "convert"]
    command += [option.format(objective=followed.objective) for option in producer.convert]
    done = subprocess.run([*command, *map(str, documents)], capture_output=True, text=True, check=False)
    (output / "traces.jsonl").write_text(done.stdout)
    (output / "said.txt").write_text(done.stderr)
    traces = [json.loads(line) for line in done.stdout.splitlines()]
    said = _said(done.stderr)
    if not traces:
        return _of_refusal(followed, said)
    text = "".join([*map(text_of, documents), done.stdout])  # streamed in pieces
    differs, unrecorded = differences(followed, seen_results(output / "requests.jsonl"), text, traces)
    told = {sign.name for part, sign in SIGNS.items() if part not in differs}
    unrecorded = [each for each in unrecorded if each not in told]
    warnings = said if done.returncode or "warning" in said else ""
    return Verdict(PARTLY if differs else RIGHT, differs, warnings, len(traces), unrecorded)


def text_of(document: Path) -> str:
    """Return the text of a document, of all files in a folder, or of all members of an archive."""
    if document.is_dir():
        return "".join(text_of(file) for file in sorted(document.rglob("*")) if file.is_file())
    if document.suffix != ARCHIVE:
        return document.read_text(errors="replace")  # such as a database
    with ZipFile(document) as archive:
        return "".join(read_member(archive, member).decode() for member in archive.infolist())


def _of_refusal(script: Script, said: str) -> Verdict:
    if not script.content and _ADVICE in said:
        return Verdict(RIGHT, said=said)
    return Verdict(NOT_READ if "no agent run" in said or "not a" in said else REFUSED, said=said)


def _said(stderr: str) -> str:
    """Return what was said but for the losses that are by design, which are a table."""
    lines = (line for line in stderr.splitlines() if line.strip() and not line.startswith("  "))
    return "\n".join(line for line in lines if line != "not in the traces:")


def differences(
    followed: Script, seen: set[str], text: str, traces: list[dict[str, Any]]
) -> tuple[list[str], list[str]]:
    """Return which parts of the truth the traces do not have as they are, and what is not recorded of it.

    A session is a run, but each request in spans. An agent that another asked may be a part of the outer run,
    or a run of its own.
    """
    requests = followed.requests
    runs = list(zip(requests, traces, strict=True)) if len(traces) == len(requests) else []
    truths = [(Truth(request, seen, text), [trace]) for request, trace in runs]
    truths = truths or [(Truth(followed, seen, text), traces)]
    found = [part for truth, own in truths for part in _differences(truth, own)]
    return list(dict.fromkeys(found)), [told for truth, _ in truths for told in truth.unrecorded]


def _differences(truth: Truth, traces: list[dict[str, Any]]) -> list[str]:
    found, followed = Found(traces), truth.script
    parts = {
        "runs": len(traces) == 1 or bool(followed.agents),
        "objective": found.objective == followed.objective,
        "calls": truth.in_turns(found.names) == truth.in_turns([call.tool for call in truth.calls]),
        "arguments": truth.in_turns(found.called) == truth.in_turns(truth.called),
        "results": truth.has_results(found.results),
        "failures": found.recovered == truth.failures,
        "thoughts": truth.has_thoughts(found.thoughts),
        "order": truth.has_order(found),
        "answer": truth.answer in (None, found.answer),
        "success": found.ending in followed.endings and found.success is _succeeded(followed, found),
        "rewards": found.rewards == followed.rewards and found.is_judged is bool(followed.rewards),
    }
    return [part for part, same in parts.items() if not same]


def _succeeded(followed: Script, found: Found) -> bool:
    return found.ending == "answered" if followed.verdict is None else followed.verdict


class Truth:
    """What a script lets happen, in order, as far as documents with some text hold it.

    Attributes:
        seen: the results of tools, as the model saw them.
        unrecorded: what the documents do not hold: texts, and signs of what happened.
    """

    def __init__(self, followed: Script, seen: set[str], text: str) -> None:
        self.script = followed
        self._seen = seen
        self._text = text
        self.unrecorded: list[str] = []
        self.texts: list[str] = []
        self.calls: list[Call] = []
        self.order: list[str] = []
        self._at_a_time: list[int] = []
        self._follow(followed)
        self.answer = None if followed.answer in self.unrecorded else followed.answer
        self.failures = sum(call.fails for call in self.calls)
        wanted = {"success": followed.turns[-1].cut_off, "failures": self.failures > 0}
        signs = (SIGNS[part] for part in SIGNS if wanted[part])
        self.unrecorded += [sign.name for sign in signs if not sign.pattern.search(text)]

    def _follow(self, script: Script) -> None:
        for turn in script.turns:
            if turn.held or not self._is_recorded(turn):
                continue
            self._tell(turn.text)
            calls = self._recorded_calls(turn)
            self.calls += calls
            self._at_a_time.append(len(calls))
            self.order += [_called(call.tool, call.arguments) for call in calls]
            for call in calls:
                if call.asks:
                    self._follow_agent(self.script.agents[call.asks])

    def _follow_agent(self, agent: Script) -> None:
        """Follow an agent that another asked, whose turns may be in no document, but for its answer."""
        if any(turn.calls and self._is_recorded(turn) for turn in agent.turns):
            self._follow(agent)

    def _is_recorded(self, turn: Turn) -> bool:
        """Whether a turn is in the documents at all: that at a limit may not be."""
        recorded = turn.text in self._text or any(call.id in self._text for call in turn.calls)
        if not recorded and turn.calls:
            self.unrecorded.append(turn.text)
        return recorded or not turn.calls

    def _recorded_calls(self, turn: Turn) -> list[Call]:
        """Return the calls of a turn; those with a recorded id, if any: a program may drop others."""
        recorded = [call for call in turn.calls if call.id in self._text] or list(turn.calls)
        self.unrecorded += [_called(call.tool, call.arguments) for call in turn.calls if call not in recorded]
        return recorded

    @property
    def called(self) -> list[str]:
        return [_called(call.tool, call.arguments) for call in self.calls]

    def in_turns(self, calls: list[str]) -> list[str]:
        """Sort the calls of a turn, which a program makes at the same time, in any order."""
        remaining = iter(calls)
        turns = [sorted(islice(remaining, count)) for count in self._at_a_time]
        return [call for turn in turns for call in turn] + list(remaining)

    def _in_order(self, told: list[str], calls: list[str]) -> list[str]:
        ordered = iter(self.in_turns(calls))
        return [next(ordered) if part in calls else part for part in told]

    def _tell(self, text: str) -> None:
        if text and text not in self._text:
            self.unrecorded.append(text)
        elif text:
            self.texts.append(text)
            self.order.append(text)

    def has_thoughts(self, thoughts: list[str]) -> bool:
        """Whether the texts are the script's.

        A run without success may end with a text of the program, and one that ends with a call may tell
        its answer.
        """
        thoughts = [text for text in self._asked_once(thoughts) if text not in self.unrecorded]
        may_add = not self.script.success or any(call.answers for call in self.calls)
        return thoughts == self.texts or (may_add and thoughts[:-1] == self.texts)

    def has_results(self, results: list[str]) -> bool:
        """Whether each result is there once, and no text of the program but in a run without success.

        A call that gives the answer needs no result, and at a limit, a program may not make the last call.
        """
        results = [result for result in results if not any(text in result for text in self._asked)]
        missing = [call for call in self.calls if call.result]
        missing += [Call("", {}, result=turn.asked) for turn in self.script.turns if turn.asked]
        others = []
        for result in results:
            call = next((call for call in missing if self._is_result(result, call)), None)
            missing.remove(call) if call else others.append(result)
        others = self._unscripted(others)
        retold = any(call.result in other for call in self.calls if call.result for other in others)
        expected = not others or (not self.script.success and not retold)
        limited = self.script.limit is not None
        return expected and all(
            call.answers or (limited and call.result not in self._text) for call in missing
        )

    def _unscripted(self, results: list[str]) -> list[str]:
        """Leave out what the program itself answers to calls for which the script has no result."""
        scripted = [call.result for call in self.calls if call.result]
        own = [result for result in results if not any(text in result for text in scripted)]
        own = own[: sum(not call.result for call in self.calls)]
        return [result for result in results if result not in own]

    def _is_result(self, found: str, call: Call) -> bool:
        """Programs write texts of their own around a result, and in place of that of a failure.

        The model does not see the results behind the last turn of a run with a limit.
        """
        told = json.dumps(found, ensure_ascii=False)[1:-1]
        seen = found and any(found in text or told in text for text in self._seen)
        seen = seen or self.script.limit is not None
        return found == call.result or bool(seen and (call.fails or call.result in found))

    def _asked_once(self, texts: Iterable[str]) -> list[str]:
        """Leave out repeated texts: behind a limit or half an answer, a program may ask again."""
        may_repeat = self.script.turns[-1].cut_off or self.script.limit is not None
        return list(dict.fromkeys(texts) if may_repeat else texts)

    @property
    def _asked(self) -> set[str]:
        """What agents are asked and answer, which is told as a text of a user or a tool."""
        agents = self.script.agents.values()
        return {text for agent in agents for text in (agent.objective, agent.answer) if text}

    def has_order(self, found: Found) -> bool:
        """Whether texts and calls come in order, as far as they are there at all."""
        order = self._in_order(self._asked_once(found.order), found.called)
        common = set(self.order) & set(order)
        own = self._in_order(self.order, self.called)
        return [part for part in order if part in common] == [part for part in own if part in common]


class Found:
    """What traces say, in order."""

    def __init__(self, traces: list[dict[str, Any]]) -> None:
        trace = traces[0]
        steps = _steps(traces)
        calls = [step for step in steps if step["type"] != "observation" and "tool" in step]
        texts = [step for step in steps if step["type"] != "observation" and "tool" not in step]
        self.objective = trace["task"]["objective"]
        self.names = [step["tool"]["name"] for step in calls]
        self.called = [_called(step["tool"]["name"], step.get("input", {})) for step in calls]
        self.results = [step.get("content", "").strip() for step in steps if step["type"] == "observation"]
        self.thoughts = [step["content"] for step in texts]
        self.recovered = sum(step["type"] == "error_recovery" for step in steps)
        self.order = [
            _called(step["tool"]["name"], step.get("input", {})) if "tool" in step else step["content"]
            for step in steps
            if step["type"] != "observation"
        ]
        self.answer = trace["outcome"]["result_summary"]
        self.success = trace["metadata"]["success"]
        self.ending = trace["metadata"]["ending"]
        self.rewards = {each["name"]: each["value"] for each in trace["metadata"].get("rewards", ())}
        self.is_judged = trace["metadata"]["outcome_source"] == "label"


def _steps(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps of a run, and behind the calls that asked other agents those of their runs."""
    steps = list(traces[0]["steps"])
    for trace in traces[1:]:
        asked = json.dumps(trace["task"]["objective"])
        places = (n for n, step in enumerate(steps, 1) if asked in json.dumps(step.get("input")))
        place = next(places, len(steps))
        steps[place:place] = trace["steps"]
    return steps


def _called(tool: str, arguments: dict[str, Any]) -> str:
    return f"{tool} {json.dumps(arguments, sort_keys=True)}"

"""Agent runs from a tracer's tree of calls: every outermost agent call, and every one that a tool made.

Some instrumentations flag each step of an agent as an agent, such as OpenInference every node of a LangGraph
with ``agent`` in its name. Such steps continue one conversation, so their run is the span around them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any

from knowledgepulse_convert.common import ir
from knowledgepulse_convert.common.endings import End
from knowledgepulse_convert.common.errors import ConversionError
from knowledgepulse_convert.common.losses import Losses
from knowledgepulse_convert.common.reading import parse_json, parse_time
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.spans.conversation import (
    ModelCall,
    ToolRun,
    conversation,
    hands_over,
    like,
)
from knowledgepulse_schemas.trace import Ending

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE_ID = re.compile("(?!0+$)[0-9a-f]{15,32}")
_SPAN_ID = re.compile("(?!0+$)[0-9a-f]{16}")

_REASON = re.compile("[hp](?:_r|R)eason")
"""The end of the names of finish reasons and stop reasons."""
_REASON_MARK = "eason"
"""What each of them has, which is found sooner."""
_NO_REASON = re.compile(r"reasons?\W+unknown\b", re.IGNORECASE)
"""A finish reason that says nothing, such as rig's."""
_CALLED = re.compile(r"reasons?\W+tool[_-]?(?:calls?|use)\b", re.IGNORECASE)
"""A finish reason that says that the model made calls."""
_LANGCHAIN = "additional_kwargs"
"""A member of LangChain's messages alone."""
_IS_ERROR = re.compile(r"error\\*[\"']?[:=] ?(?:true|false)", re.IGNORECASE)
_NO_CONTENT = "no message content was recorded, and a trace without it would be scored as empty; "
_CAPTURE = (
    "enable content capture in the instrumentation, for example with "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, or use one that records messages"
)
_RECORD = "knowledgepulse.kind"
"""The attribute of a span that stands for a tracer's record of another kind."""


@dataclass(slots=True)
class Node:
    """A node of the call tree: a span, a LangSmith run or a Langfuse observation.

    Attributes:
        id: The node's id, which is unique in the trace.
        start: Nanoseconds since 1970, as ``end`` is.
        agent: Whether the node is a call of an agent.
        silent: Whether the node is a model call without recorded content.
        event: The recorded model call or tool execution.
        error: The failure that the tracer flags.
        returned: Reads what the node returned, if it is no call itself.
        unrecorded: What the tracer does not record of calls of its kind.
        written: Returns the attributes that the tracer wrote of the node, each as a text, to be searched.
        unread: Returns the names of attributes that no reader knows, and that may hold messages.
        hidden: Whether Koog has hidden the content.
        failures: Executions of tools that have failed, if the node is none itself.
        reason: Why an answer ended that the node returned, if it is no model call itself.
        functions: What the function may be called that the node is of, if it is no call itself.
        agent_id: The id or name of the agent.
        names: Names to look up in a domain map.
        outcome: The outcome in the node. A run has the outcome of its root; others judge a part of it.
        shared: The losses of each object that contains this and other nodes. They count once per run.
        problem: The reason why the node could not be read. Its run is then rejected.
    """

    trace_id: str
    id: str
    parent_id: str | None
    start: int
    end: int
    agent: bool = False
    silent: bool = False
    event: ModelCall | ToolRun | None = None
    error: ir.Error | None = None
    returned: Callable[[], Sequence[ir.Message]] | None = None
    unrecorded: tuple[str, ...] = ()
    written: Callable[[], Iterable[str]] = tuple
    unread: Callable[[], Iterable[str]] = tuple
    hidden: bool = False
    failures: tuple[ToolRun, ...] = ()
    reason: Any = None
    functions: tuple[str, ...] = ()
    agent_id: str | None = None
    names: tuple[str, ...] = ()
    outcome: ir.RunOutcome = field(default_factory=ir.RunOutcome)
    losses: Losses = field(default_factory=Losses)
    shared: tuple[Losses, ...] = ()
    problem: ConversionError | None = None

    @classmethod
    def of(cls, trace_id: str, id: str, parent_id: str | None, make: Callable[[], Node]) -> Node:  # noqa: A002
        """Return the node that ``make`` returns, or a node with the problem if ``make`` raises one."""
        try:
            return make()
        except ConversionError as error:
            return cls(trace_id, id, parent_id, 0, 0, problem=error)


def runs_of(nodes: Iterable[Node]) -> Iterator[ir.Run | ConversionError]:
    """Yield a run for each outermost agent, and behind it one for each agent that its tools ran.

    In a trace without agents, each root with calls below it is a run. The messages of a run are those of the
    calls below its root, in time order.
    """
    traces: dict[str, dict[str, Node]] = {}
    for node in nodes:
        traces.setdefault(node.trace_id, {})[node.id] = node
    for trace in traces.values():
        yield from _Tree(trace).runs()


class _Tree:
    def __init__(self, nodes: dict[str, Node]) -> None:
        self._nodes = nodes
        self._children: dict[str, list[Node]] = {}
        self._orders: dict[str, list[Node]] = {}  # by the root
        self._started: dict[str, Node] = {}  # the roots of the runs that started others, by the others' roots
        self._roots = []
        for node in [*_missing(nodes), *nodes.values()]:
            self._nodes.setdefault(node.id, node)
            if node.parent_id in nodes and node.parent_id != node.id:
                self._children.setdefault(node.parent_id, []).append(node)
            else:
                self._roots.append(node)

    def runs(self) -> Iterator[ir.Run | ConversionError]:
        roots = [run for root in sorted(self._run_roots(), key=_time) for run in self._with_started(root)]
        self._started |= self._asked_beside(roots)
        if self._started:
            self._orders.clear()  # which had what was started, too
        outside = self._outside(roots)
        for root in roots:
            try:
                run = self._run(root)
            except ConversionError as error:
                yield error
                continue
            run.losses.merge(outside)
            outside = Losses()
            yield run
        reached = {node.id for root in [*self._roots, *roots] for node in self._below(root)}
        for node in self._nodes.values():
            if node.id not in reached and (node.agent or node.event is not None):
                yield ConversionError(
                    f"trace {node.trace_id}, span {node.id}: not part of a run, as its parents form a cycle"
                )
                return

    def _run_roots(self) -> list[Node]:
        """Return the agents' runs, or else the roots of model calls, even of calls without content."""
        agents = list(self._outermost_agents(self._roots))
        if agents and (any(map(self._has_calls, agents)) or not any(map(self._has_calls, self._roots))):
            return self._whole(agents)
        return [root for root in self._roots if self._has_content(root)] or [
            root for root in self._roots if any(node.silent for node in self._below(root))
        ]

    def _whole(self, agents: list[Node]) -> list[Node]:
        """Return the roots of the agents' runs: the span around agents that continue each other."""
        if len(agents) == 1:
            return agents
        roots = {agent.id: agent for agent in agents}
        said: dict[tuple[str, ...], Node] = {}  # the agent that first said a text or made a call
        handed: dict[str, Node] = {}  # the agent that made a call which hands over
        for agent in sorted(agents, key=_time):
            calls = self._model_calls(agent)
            earlier = _continued(calls, said) or _handed_by(agent, handed)
            if earlier is not None:
                pairs = zip(self._down_to(earlier), self._down_to(agent), strict=False)
                shared = [one for one, other in takewhile(lambda pair: pair[0] is pair[1], pairs)]
                roots |= dict.fromkeys((earlier.id, agent.id), shared[-1]) if shared else {}
            for part in (part for call in calls for part in ir.parts_in(call.output)):
                said.setdefault(_said(part), agent)
                if isinstance(part, ir.ToolCall) and hands_over(part):
                    handed[f"{part.name} {part.arguments}".lower()] = agent
        enclosing = {root.id for root in roots.values()}
        outermost = (next(node for node in self._down_to(agent) if node.id in enclosing) for agent in agents)
        return list({root.id: root for root in outermost}.values())

    def _down_to(self, node: Node | None) -> list[Node]:
        """Return the spans from a root down to a span that it reaches."""
        path = []
        while node is not None:
            path.append(node)
            node = self._nodes.get(node.parent_id or "") if node.parent_id != node.id else None
        return path[::-1]

    def _model_calls(self, agent: Node) -> list[ModelCall]:
        """Return the model calls of an agent in order."""
        events = (node.event for node in self._below(agent) if not node.agent)
        return [event for event in events if isinstance(event, ModelCall)]

    def _outside(self, roots: list[Node]) -> Losses:
        """Return the content outside of all runs as losses, which the first run reports."""
        losses = Losses()
        inside = {node.id for root in roots for node in self._below(root)}
        for node in self._nodes.values():
            if node.id not in inside:
                losses.merge(node.losses)
                losses.add("calls outside of the agents", _contents(node.event))
                losses.add("spans outside of the agents, which could not be read", str(node.problem or ""))
        return losses

    def _with_started(self, root: Node) -> list[Node]:
        """Return a run's root, and behind it those of the runs that its tools started.

        An agent is a part of the run that hands the conversation over to it, or that does not tell what it
        was asked. Where spans tell no agents, a model that calls tools within a tool is one.
        """
        roots = [root]
        for run in roots:  # which grows
            rest = deque([run])
            while rest:
                node = rest.popleft()
                if node is not run and isinstance(node.event, ToolRun) and not hands_over(node.event.call):
                    agents = list(self._outermost_agents([node]))
                    started = self._asked(self._whole(agents)) if agents else self._loops(node)
                    self._started |= {agent.id: run for agent in started}
                    roots += started
                rest += [child for child in self._children.get(node.id, ()) if child.id not in self._started]
        return roots

    def _asked(self, agents: list[Node]) -> list[Node]:
        """Return the agents that have a text of the user, as one that was asked has."""
        return [agent for agent in agents if any(map(_asks, self._events_below(agent)))]

    def _asked_beside(self, roots: list[Node]) -> dict[str, Node]:
        """Return the runs that a tool asked although their spans are not below its own, by their roots.

        OpenLLMetry's agents all are below the workflow. Such a run has an argument of the tool as its
        question, and took place while the tool ran.
        """
        tools: dict[str, list[tuple[Node, Node]]] = {}  # with their runs, by an argument
        for run in roots if len(roots) > 1 else ():
            for tool in self._below(run):
                for text in _arguments(tool.event) if isinstance(tool.event, ToolRun) else ():
                    tools.setdefault(text, []).append((tool, run))
        found = {}
        for root in roots if tools else ():
            asked = next((_question(event) for event in self._events_below(root)), "")
            around = [
                run
                for tool, run in tools.get(asked, ())
                if run is not root and tool.start <= root.start and root.end <= tool.end
            ]
            if len(around) == 1 and root.id not in self._started:
                found[root.id] = around[0]
        return found

    def _loops(self, tool: Node) -> list[Node]:
        """Return the spans in a tool's span in which a model begins a conversation and calls tools."""
        return [child for child in self._children.get(tool.id, ()) if self._is_loop(child)]

    def _is_loop(self, root: Node) -> bool:
        events = self._events_below(root)
        before, after = _first_input(list(islice(events, 1)))
        return not before and _has_user(after) and any(isinstance(event, ToolRun) for event in events)

    def _events_below(self, root: Node) -> Iterator[ModelCall | ToolRun]:
        """Yield the events of a node and its descendants, as far as they are asked for."""
        return (node.event for node in self._ordered(root) if node.event is not None)

    def _outermost_agents(self, roots: list[Node]) -> Iterator[Node]:
        rest = deque(roots)
        while rest:
            node = rest.popleft()
            if node.agent:
                yield node
            else:
                rest += self._children.get(node.id, [])

    def _below(self, root: Node) -> list[Node]:
        """Return a node and all its descendants in order, which is found only once."""
        if root.id not in self._orders:
            self._orders[root.id] = list(self._ordered(root))
        return self._orders[root.id]

    def _ordered(self, root: Node) -> Iterator[Node]:
        """Yield a node and all its descendants in order: by time, but none before the one around it.

        A child may have begun in its parent's millisecond, or by another clock. What happened within a tool,
        as when it runs an agent, comes before all else that happened at that time.
        """
        rest = [((_time(root),), root)]
        while rest:
            times, node = heappop(rest)
            yield node
            around = times if isinstance(node.event, ToolRun) else times[:-1]
            for child in self._children.get(node.id, ()):
                if child.id in self._started:
                    continue
                time = max(times[-1][0], child.start), child.end, child.id
                heappush(rest, ((*around, time), child))

    def _has_content(self, root: Node) -> bool:
        return any(node.event is not None or node.problem is not None for node in self._below(root))

    def _has_calls(self, root: Node) -> bool:
        """Check for calls below a span: an agent without any, beside calls, is a mere step of a graph."""
        return any(node.event is not None and not node.agent for node in self._below(root))

    def _run(self, root: Node) -> ir.Run:
        nodes = self._below(root)
        for node in nodes:
            if node.problem is not None:
                raise ConversionError(f"trace {root.trace_id}, span {node.id}: {node.problem}")
        losses = Losses()
        messages = self._messages(root, nodes, losses)
        has_texts = any(map(_has_text, messages))
        problem = None if has_texts else f"trace {root.trace_id}, span {root.id}: {_no_content(nodes)}"
        if problem and not any(map(_has_arguments, messages)):
            raise ConversionError(problem)
        if root.error is not None and root.error not in ir.parts_in(messages):
            messages.append(ir.message("assistant", root.error))
        for shared in {id(shared): shared for node in nodes for shared in node.shared}.values():
            losses.merge(shared)
        for node in nodes:
            losses.merge(node.losses)
            if node is not root and node.outcome != ir.UNKNOWN:
                losses.add("outcomes below the root", asdict(node.outcome))
        return ir.Run(
            messages,
            native_id=_id_of(root),
            parent_id=_id_of(self._started[root.id]) if root.id in self._started else None,
            span=_span_of(root),
            ended_at=_datetime(root.end),
            ending=_ending(root, nodes),
            agent_id=root.agent_id,
            unasked=problem if any(node.silent for node in nodes) else None,
            names=root.names if root.agent else _names(root, nodes),
            outcome=root.outcome,
            losses=losses,
            unrecorded=tuple(dict.fromkeys(_unrecorded(nodes, messages))),
        )

    def _messages(self, root: Node, nodes: list[Node], losses: Losses) -> list[ir.Message]:
        """Return the messages of the calls below the root, or the root's own if those have none."""
        repeats = self._repeats(nodes, losses)
        events = self._events(root, nodes, repeats)
        if isinstance(root.event, ModelCall) and not any(map(_asks, (*events, ModelCall(root.event.output)))):
            events = [ModelCall(root.event.input), *events]
        if isinstance(root.event, ModelCall) and not any(map(_has_output, events)):
            events.append(ModelCall(root.event.output))  # which may repeat calls
        messages = conversation(events, _earlier_runs(events, losses), losses)
        if messages and End.of(messages).is_open:
            whole = _whole(root, nodes)
            output = _returned(whole)
            messages += _untold(output, messages) or _answer(whole, output, messages)
        transcript = ir.transcript_of(messages)
        for node in nodes:
            if node.agent or node.id in repeats:
                _count_unsaid(node, transcript, losses)
        return messages

    def _events(
        self, root: Node, nodes: list[Node], repeats: set[str]
    ) -> list[ModelCall | ToolRun | ir.Error]:
        """Return the calls below the root in order.

        A tool that ran an agent responds after all that happened below it; then, too, an agent fails, and a
        model answers whose span is around its tools.
        """
        called = self._called_functions(nodes)
        placed: list[tuple[tuple[int, int], ModelCall | ToolRun | ir.Error]] = []
        last: dict[str, int] = {}  # the place of the last event in or below a node
        run: dict[str, list[ir.ToolCall]] = {}  # the calls below a node that ran an agent
        for place, node in reversed(list(enumerate(nodes))):  # children first
            end = max(place, last.get(node.id, -1))
            if node.agent and node.error is not None and node is not root:
                placed.append(((end, 1 - place), node.error))
            elif not node.agent and not called.isdisjoint(node.functions):
                name = next(name for name in node.functions if name in called)
                message = None if node.error is None else node.error.message
                call = ir.ToolCall(name)
                placed.append(((place, -len(nodes)), ToolRun(call, message, node.error is not None)))
            elif node.event is None or node.agent or node.id in repeats:
                end = last.get(node.id, -1)
            elif end > place and (beginning := _beginning(node.event, run.get(node.id, []))) is not None:
                placed.append(((place, -len(nodes)), beginning))
                placed.append(((end, 1 - place), node.event))
            else:
                placed.append(((place, -len(nodes)), node.event))
            around = node.parent_id or ""
            last[around] = max(end, last.get(around, -1))
            below = [node.event.call] if isinstance(node.event, ToolRun) and end > place else []
            if below := below + run.get(node.id, []):
                run.setdefault(around, []).extend(below)
        placed.sort(key=itemgetter(0))
        return [*(event for _, event in placed), *(failure for node in nodes for failure in node.failures)]

    def _called_functions(self, nodes: list[Node]) -> set[str]:
        """Return the names of the called tools, if only spans of functions tell that some have failed."""
        has_runs = any(isinstance(node.event, ToolRun) for node in nodes)
        if has_runs or not any(node.functions and node.error for node in nodes):
            return set()
        calls = (node.event for node in nodes if isinstance(node.event, ModelCall))
        parts = (part for call in calls for part in ir.parts_in(call.output))
        return {part.name for part in parts if isinstance(part, ir.ToolCall)}

    def _repeats(self, nodes: list[Node], losses: Losses) -> set[str]:
        """Return the ids of the calls that other spans tell better.

        Of model calls within each other, that with the longest output counts, or else the outermost. Those
        without messages count only if no other has any. A tool's span has what one of it within it knows.
        """
        repeats: set[str] = set()
        calls = [node for node in nodes if node.event is not None and not node.agent]
        has_messages = any(isinstance(node.event, ModelCall) and not node.event.whole for node in calls)
        for node in calls:
            around = self._call_around(node, repeats)
            if has_messages and isinstance(node.event, ModelCall) and node.event.whole:
                losses.add("model calls without messages", _contents(node.event))
            elif around is None or type(around.event) is not type(node.event):
                continue
            elif isinstance(node.event, ModelCall) and _length(node) > _length(around):
                repeats.add(around.id)
                continue
            elif around.event is not None and node.event is not None:
                around.event = around.event.with_inner(node.event)
            repeats.add(node.id)
        return repeats

    def _call_around(self, node: Node, repeats: set[str]) -> Node | None:
        """Return the innermost call around a call, of the same agent, that is no repeat."""
        seen = {node.id}
        parent = self._nodes.get(node.parent_id or "")
        while parent is not None and parent.id not in seen and not parent.agent:
            if parent.event is not None and not _is_empty(parent.event) and parent.id not in repeats:
                return parent
            seen.add(parent.id)
            parent = self._nodes.get(parent.parent_id or "")
        return None


def _missing(nodes: dict[str, Node]) -> Iterator[Node]:
    """Yield a node in place of each that several have as their parent, and that was not exported."""
    children: dict[str, list[Node]] = {}
    for node in nodes.values():
        if node.parent_id and node.parent_id not in nodes:
            children.setdefault(node.parent_id, []).append(node)
    for missing, found in children.items():
        if found[1:]:
            start, end = min(node.start for node in found), max(node.end for node in found)
            yield Node(found[0].trace_id, missing, None, start, end)


def _time(node: Node) -> tuple[int, int, str]:
    return node.start, node.end, node.id


def _length(node: Node) -> int:
    """Return the number of characters of a model call's output."""
    output = node.event.output if isinstance(node.event, ModelCall) else ()
    return sum(
        len(f"{part.name}{part.arguments}") if isinstance(part, ir.ToolCall) else len(ir.text_of(part))
        for part in ir.parts_in(output)
    )


def _beginning(event: ModelCall | ToolRun, below: list[ir.ToolCall]) -> ModelCall | ToolRun | None:
    """Return what happened of a call before the calls below it, which ran agents; None if all of it did."""
    if isinstance(event, ToolRun):
        return replace(event, response=None, failed=False)
    known = {like(call) for call in below}
    for number, message in enumerate(event.input, 1):
        if any(isinstance(part, ir.ToolCall) and like(part) in known for part in message.parts):
            return ModelCall(event.input[:number])
    return None


def _continued(calls: list[ModelCall], said: dict[tuple[str, ...], Node]) -> Node | None:
    """Return the earlier agent whose conversation the model calls continue; None if they begin a new one.

    Their first input then contains what the other said, and ends without a new request of the user.
    """
    before, after = _first_input(calls)
    if not before or _has_user(after):
        return None
    return next((said[key] for key in map(_said, before[-1].parts) if key in said), None)


def _handed_by(agent: Node, handed: dict[str, Node]) -> Node | None:
    """Return the agent whose last call handed over to an agent that it names."""
    name = next(iter(agent.names), "").lower()
    return next((giver for call, giver in reversed(handed.items()) if name and name in call), None)


def _said(part: ir.Part) -> tuple[str, ...]:
    """Return the key by which a text or a call is recognised in the inputs that repeat it."""
    match part:
        case ir.ToolCall():
            return like(part)
        case ir.ToolCallResponse():
            return "response", part.response.strip()
        case _:
            return "text", ir.text_of(part).strip()


def _no_content(nodes: list[Node]) -> str:
    """Return why a run has no messages, and what to do about it."""
    if name := next((name for node in nodes for name in node.unread()), None):
        return (
            f"no messages were found, although `{name}` may hold some, which no reader knows; convert the "
            "agent's messages, or use an instrumentation that follows OpenTelemetry's or OpenInference's "
            "conventions"
        )
    if any(node.hidden for node in nodes):
        return f"{_NO_CONTENT}enable content capture with Koog's `setVerbose(true)`"
    if any(text.startswith(_RECORD) for node in nodes for text in node.written()):
        return f"{_NO_CONTENT}export the records with their inputs and outputs"
    return _NO_CONTENT + _CAPTURE


def _names(root: Node, nodes: list[Node]) -> tuple[str, ...]:
    """Return the names of a root and of the agents below it."""
    agents = (name for node in nodes if node.agent for name in node.names)
    return tuple(dict.fromkeys([*root.names, *agents]))


def _is_empty(event: ModelCall | ToolRun | ir.Error) -> bool:
    """Check for a model call without recorded messages."""
    return isinstance(event, ModelCall) and not any(message.parts for message in event.input + event.output)


def _has_output(event: ModelCall | ToolRun | ir.Error) -> bool:
    return isinstance(event, ModelCall) and any(message.parts for message in event.output)


def _asks(event: ModelCall | ToolRun | ir.Error) -> bool:
    """Check for a model call with a text of the user."""
    return isinstance(event, ModelCall) and _has_user([*event.input, *event.output])


def _ending(root: Node, nodes: list[Node]) -> Ending | None:
    """Return how a run ended, if its messages do not tell it: with an answer that was not recorded."""
    if root.error is not None:
        return "cut_off" if root.error.interruption else "failed"
    if ending := told_by(next((node.reason for node in reversed(nodes) if node.reason), None)):
        return ending
    silent = [node for node in nodes if node.silent]
    is_told = any(_has_output(node.event) for node in nodes if node.event)
    if not silent or is_told or any(map(_CALLED.search, silent[-1].written())):
        return None
    return "answered"


def _unrecorded(nodes: list[Node], messages: list[ir.Message]) -> Iterator[str]:
    """Yield what the records of a run do not tell."""
    yield from (missing for node in nodes for missing in node.unrecorded)
    responses = [part for part in ir.parts_in(messages) if isinstance(part, ir.ToolCallResponse)]
    are_run = any(isinstance(node.event, ToolRun) for node in nodes)
    are_told = are_run or any(part.failed for part in responses)
    if responses and not are_told and not any(any(map(_IS_ERROR.search, node.written())) for node in nodes):
        yield "failed calls"
    calls = (node.written() for node in nodes if node.silent or isinstance(node.event, ModelCall))
    reasons = [text for call in calls for text in call if _REASON_MARK in text and _REASON.search(text)]
    if not reasons or any(map(_NO_REASON.search, reasons)):
        yield "finish reasons"


def _has_text(message: ir.Message) -> bool:
    """Check for a text; names and errors are recorded without content, too."""
    texts = (part for part in message.parts if isinstance(part, ir.Text | ir.Reasoning))
    return message.role != "system" and any(part.content.strip() for part in texts)


def _has_arguments(message: ir.Message) -> bool:
    """Check for a call's arguments; some are recorded without content, too."""
    calls = (part for part in message.parts if isinstance(part, ir.ToolCall))
    return any(call.arguments not in (None, "", {}) for call in calls)


def _whole(root: Node, nodes: list[Node]) -> Node:
    """Return the node that tells what a run returned: OpenLLMetry's span of a graph is below the agent's.

    It is the agent's only one: what a step of a run returned, as smolagents tells it, is no answer.
    """
    if root.event or root.returned or not root.agent:
        return root
    below = [node for node in nodes if node.parent_id == root.id and (node.event or node.returned)]
    return below[0] if len(below) == 1 and below[0].returned else root


def _returned(node: Node) -> Sequence[ir.Message]:
    if isinstance(node.event, ModelCall):
        return node.event.output
    return () if node.returned is None else node.returned()


def _untold(output: Sequence[ir.Message], messages: list[ir.Message]) -> list[ir.Message]:
    """Return the end of an agent's output that its calls do not tell: often only it has the answer.

    A text may also be all that the agent said, one text behind the other.
    """
    told = set(map(_said, ir.parts_in(messages)))
    texts = ir.parts_in(message for message in messages if message.role == "assistant")
    told.add(_said(ir.Text("".join(map(ir.text_of, texts)))))
    ending = list(takewhile(lambda message: told.isdisjoint(map(_said, message.parts)), reversed(output)))
    return ending[::-1]


def _answer(root: Node, output: Sequence[ir.Message], messages: list[ir.Message]) -> list[ir.Message]:
    """Take the last message away, and return it as the answer, if a graph of LangGraph returned it, a tool's.

    It ends so behind a tool that returns directly; at a limit, it fails.
    """
    is_tools = bool(output) and output[-1].role == "tool" == messages[-1].role
    if not is_tools or root.error is not None or not any(_LANGCHAIN in text for text in root.written()):
        return []
    last = messages.pop()
    parts = (
        replace(part, is_answer=True) if isinstance(part, ir.ToolCallResponse) else part
        for part in last.parts
    )
    return [replace(last, parts=tuple(parts))]


def _earlier_runs(events: list[ModelCall | ToolRun | ir.Error], losses: Losses) -> tuple[ir.Message, ...]:
    """Return the messages of earlier runs of the same conversation, which the inputs of the calls repeat.

    Everything up to the last assistant message of the first call's input is from before this run.
    """
    before, after = _first_input(events)
    if not _has_user(after):
        return ()
    for message in before:
        if message.role != "system":
            losses.add("messages of earlier runs", ir.contents_of([message]), is_known=True)
    return before


def _arguments(run: ToolRun) -> list[str]:
    """Return the texts among the arguments of a tool, or its only one."""
    arguments = parse_json(run.call.arguments)
    values = arguments.values() if isinstance(arguments, dict) else [arguments]
    return [value for value in values if isinstance(value, str) and value]


def _question(event: ModelCall | ToolRun) -> str:
    """Return the last text of the user in a model's input."""
    given = reversed(event.input) if isinstance(event, ModelCall) else ()
    return next((ir.join_texts(message.parts) for message in given if message.role == "user"), "")


def _first_input(
    events: Sequence[ModelCall | ToolRun | ir.Error],
) -> tuple[tuple[ir.Message, ...], tuple[ir.Message, ...]]:
    """Return the first input with content: what is before the end of the agent's last message, and after."""
    inputs = (event.input for event in events if isinstance(event, ModelCall))
    first = next((told for told in inputs if any(ir.parts_in(told))), ())
    roles = [message.role for message in first]
    start = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
    return first[:start], first[start:]


def _contents(event: ModelCall | ToolRun | ir.Error | None) -> list[dict[str, Any]]:
    """Return the content of an event as plain values, for the loss report."""
    match event:
        case ModelCall():
            return ir.contents_of([*event.input, *event.output])
        case ToolRun():
            response = ir.ToolCallResponse(event.response or "")
            return ir.contents_of([ir.message("tool", event.call, response)])
    return []


def _count_unsaid(node: Node, transcript: str, losses: Losses) -> None:
    """Count the texts of an agent, or of a call that others tell, that are missing from the transcript."""
    told: list[tuple[str, str]] = []
    match node.event:
        case ModelCall(input=inputs, output=outputs):
            told += (("input", ir.text_of(part)) for part in ir.parts_in(inputs))
            told += (("output", ir.text_of(part)) for part in ir.parts_in(outputs))
        case ToolRun(response=str(response)):
            told.append(("output", response))
    whose = "an agent's" if node.agent else "a repeated call's"
    for name, text in told:
        if text.strip() not in transcript:
            losses.add(f"{whose} {name}", text)


def _has_user(messages: Sequence[ir.Message]) -> bool:
    """Check for a text of the user; Anthropic's and Gemini's tool responses are the user's messages, too."""
    asked = ir.parts_in(message for message in messages if message.role == "user")
    return any(isinstance(part, ir.Text) for part in asked)


def _id_of(root: Node) -> str:
    """Return the native id of a root's run."""
    return f"{root.trace_id}/{root.id}"


def _span_of(root: Node) -> tuple[str, str] | None:
    """Return the ids of an OpenTelemetry span; None for other tracers' ids."""
    # Jaeger leaves out leading zeros, and its older trace ids have 64 bits.
    trace_id, span_id = root.trace_id.lower(), root.id.lower()
    if not (_TRACE_ID.fullmatch(trace_id) and _SPAN_ID.fullmatch(span_id)):
        return None
    return trace_id.zfill(32), span_id


def _datetime(nanoseconds: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000) if nanoseconds > 0 else None
    except OverflowError:
        return None


def nanoseconds(time: Any) -> int:
    """Convert a time that :func:`parse_time` reads to nanoseconds since 1970; any other becomes 0."""
    moment = parse_time(time)
    return 0 if moment is None else (moment - _EPOCH) // timedelta(microseconds=1) * 1000

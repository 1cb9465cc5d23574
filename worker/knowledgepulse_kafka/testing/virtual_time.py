"""An event loop in virtual time, whose callbacks belong to processes that can be killed or suspended.

Packages for virtual time (looptime and others) only move a loop's clock. In this loop, each callback also has
an owner. A killed process runs no more callbacks; a suspended process runs its pending callbacks when it
resumes.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import ReferenceType

Result = TypeVar("Result")

EPOCH = 1_700_000_000.0
"""The wall clock's time at virtual time 0."""

OWNER: ContextVar[Process | None] = ContextVar("owner", default=None)
"""The process that runs; None for brokers, the network and the history itself."""


class NothingLeftError(Exception):
    """A history cannot end, because nothing is scheduled any more or because the callbacks never stop."""


class Process:
    """The process that owns a callback.

    Attributes:
        skew: the error of the process's wall clock in seconds.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.skew = 0.0
        self.is_dead = False
        self.is_suspended = False
        self._held: deque[_Handle] = deque()
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("a process runs in virtual time only: see run()")
        self._loop = loop
        loop.processes.append(self)

    def hold(self, handle: _Handle) -> None:
        """Keep a callback that becomes due while the process does not run."""
        self._held.append(handle)

    def suspend(self) -> None:
        """Stop it, as SIGSTOP does."""
        self.is_suspended = True

    def resume(self) -> None:
        """Let it go on, as SIGCONT does."""
        self.is_suspended = False
        self._loop.ready_again(self._held)
        self._held = deque()

    def start(self, coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run a coroutine and all tasks that it starts in this process."""
        context = copy_context()
        context.run(OWNER.set, self)
        return self._loop.create_task(coroutine, context=context)


class _Handle:
    """A callback; asyncio's own handles would take a third of a history's time."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "time")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        time: float = 0.0,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False
        self.time = time

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.time


class VirtualLoop(asyncio.BaseEventLoop):
    """Advances its clock to the next timer whenever nothing is ready; it has no input or output."""

    _ready: deque[_Handle]
    _scheduled: list[tuple[float, int, _Handle]]
    _stopping: bool

    def __init__(self, limit: int = 300_000) -> None:
        super().__init__()
        self.steps = 0
        self.limit = limit
        self._now = 0.0
        self._timers = 0
        self._ending = False
        self._tasks: list[ReferenceType[asyncio.Task[Any]]] = []
        self.processes: list[Process] = []

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def create_task(
        self, coro: Any, *, name: Any = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Start a task."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(ReferenceType(task))
        return task

    def unfinished_tasks(self) -> set[asyncio.Task[Any]]:
        """Return the tasks that are not done; asyncio's own search would pass those of all former loops."""
        tasks = (reference() for reference in self._tasks)
        return {task for task in tasks if task is not None and not task.done()}

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]  # simpler
        """Call back in the next round."""
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]  # simpler
        """Call back after a delay."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]  # simpler
        """Call back at a time."""
        handle = _Handle(callback, args, context, when)
        self._timers += 1
        heapq.heappush(self._scheduled, (when, self._timers, handle))
        return handle

    def ready_again(self, handles: Iterable[_Handle]) -> None:
        """Call back what a process was kept from."""
        self._ready.extend(handles)

    def end_processes(self) -> None:
        """Let killed and suspended processes run again, so that their tasks can be cancelled."""
        self._ending = True
        for process in self.processes:
            process.resume()

    def run_in_executor(self, executor: object, func: Any, *args: Any) -> Any:  # type: ignore[override]  # simpler
        """Run a thread's work inline at once."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the caller gets the thread's error
            done.set_exception(error)
        return done

    def _write_to_self(self) -> None:
        """Do nothing, since there is no selector to wake."""

    def _process_events(self, events: object) -> None:
        """Do nothing, since there are no input or output events."""

    def _run_once(self) -> None:  # noqa: C901 - all that a history does passes here
        """Run all rounds until the loop is stopped; most rounds have a single callback."""
        ready, scheduled = self._ready, self._scheduled
        while not self._stopping:
            if not ready:
                while scheduled and scheduled[0][2].is_cancelled:
                    heapq.heappop(scheduled)
                if not scheduled:
                    raise NothingLeftError("no task is ready and no timer runs")
                self._now = max(self._now, scheduled[0][0])
            while scheduled and scheduled[0][0] <= self._now:
                ready.append(heapq.heappop(scheduled)[2])
            self.steps += len(ready)
            if self.steps > self.limit:
                raise NothingLeftError(f"{self.limit} callbacks, and no end")
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                owner = handle.context.get(OWNER)
                if owner is not None and not self._ending and (owner.is_dead or owner.is_suspended):
                    owner.hold(handle)
                    continue
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (Exception, asyncio.CancelledError):
                    if owner is None and not self._ending:
                        raise  # an error of the simulator's own
                    continue  # as in asyncio's own loop, it ends nothing


def _nothing() -> None:
    """What a cancelled callback does."""


def run(main: Callable[[], Coroutine[Any, Any, Result]], limit: int = 300_000) -> Result:
    """Run a coroutine function in a virtual loop, then cancel all remaining tasks."""
    loop = VirtualLoop(limit)
    asyncio.set_event_loop(None)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.end_processes()
        loop.limit = loop.steps + 200_000
        for _ in range(5):
            if not (left := loop.unfinished_tasks()):
                break
            for task in left:
                task.cancel()
            with suppress(NothingLeftError, RuntimeError):
                loop.run_until_complete(asyncio.wait(left, timeout=60))
            for task in left:
                if task.done() and not task.cancelled():
                    task.exception()  # otherwise, asyncio would print what nobody is left to read
        loop.close()

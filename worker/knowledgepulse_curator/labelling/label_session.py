"""The progress of a labeller through the traces, and the file to which every label is appended."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from knowledgepulse_curator.labels.labels import MIN_KEPT_REWARD, Label, read_label
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.common.durable_files import try_lock, write_all
from knowledgepulse_worker.tools.terminal.lines import file_errors

if TYPE_CHECKING:
    from knowledgepulse_curator.labelling.plan_queue import PlanQueue  # which imports this

_BEGINNING = b'{"id":'
"""With this, each label in a file begins."""

LabelDecision = Literal["keep", "drop", "skip"]


@dataclass(frozen=True)
class ToLabel:
    """A trace to label.

    Attributes:
        record: its score under the policy to label for.
        value: its JSON; None if only the record's shortened content is known.
        other_runs: the ids of the other traces with this objective, which get the same group.
        sampling: how the trace was chosen, for its label.
    """

    record: ScoredRecord
    value: bytes | None
    other_runs: tuple[str, ...] = ()
    sampling: Literal["random", "passing", "step"] | None = None

    @property
    def group(self) -> str | None:
        """The group of the trace's label; None if no other trace has its objective."""
        return f"task {self.record.task}" if self.other_runs else None


class LabelSession:
    """Hand out one trace at a time, and write its label before the next one.

    The session continues after the labeller's last label. Skipped traces return after all others.

    ``by``: the labeller's name, which is the ``source`` of the labels. ``plan``: what asks for more traces
    after an answer.
    """

    def __init__(
        self, traces: Sequence[ToLabel], file: LabelFile, by: str, plan: PlanQueue | None = None
    ) -> None:
        self.total, self.by, self.file, self._plan = len(traces), by, file, plan
        self.revision = 0  # number of changes so far, which tells an outdated page
        given = {label.id: label for label in file.labels if label.source == by}
        given = {name: label for name, label in given.items() if not label.skipped}
        after = max((number for number, trace in enumerate(traces, 1) if trace.record.id in given), default=0)
        # The traces that had a label at the start, with it.
        self.labelled = [(trace, given[trace.record.id]) for trace in traces if trace.record.id in given]
        self._kept = {trace.record.id: label.is_kept(MIN_KEPT_REWARD) for trace, label in self.labelled}
        in_order = (*traces[after:], *traces[:after])
        self._waiting = deque(trace for trace in in_order if trace.record.id not in given)
        self._decided: list[tuple[ToLabel, LabelDecision]] = []

    @property
    def current(self) -> ToLabel | None:
        """The trace to label now; None when all are labelled."""
        return self._waiting[0] if self._waiting else None

    @property
    def waiting(self) -> tuple[ToLabel, ...]:
        """The traces that are not labelled, the current one first."""
        return tuple(self._waiting)

    @property
    def counts(self) -> Counter[bool]:
        """The numbers of labelled traces that are worth keeping and that are not."""
        return Counter(self._kept.values())

    def is_kept(self, trace_id: str) -> bool | None:
        """Return whether a trace was labelled worth keeping; None if it is not labelled here."""
        return self._kept.get(trace_id)

    @property
    def skipped(self) -> int:
        """The number of traces that were skipped and are not labelled yet."""
        return len({trace.record.id for trace, _ in self._decided} - self._kept.keys())

    @property
    def can_undo(self) -> bool:
        """Whether there is an answer to undo."""
        return bool(self._decided)

    def decide(self, answer: LabelDecision, *, reward: float | None = None) -> None:
        """Label or skip the current trace. The label has a reward instead of the answer if there is one.

        A skipped trace gets a label, too, which later ones replace: of a promise, it is not worth keeping.

        Raises:
            InputError: the label could not be written; the trace stays the current one.
        """
        trace = self._waiting[0]
        keep, skipped = answer == "keep", answer == "skip"
        given = {"keep": keep} if reward is None else {"reward": reward}
        label = Label(
            trace.record.id,
            source=self.by,
            group=trace.group,
            sampling=trace.sampling,
            skipped=skipped,
            **given,
        )
        self.file.append(label)
        if skipped:
            self._waiting.rotate(-1)
        else:
            self._waiting.popleft()
            self._kept[trace.record.id] = keep
        more = self._plan.answered(label) if self._plan else []
        self._waiting.extend(more)
        self.total += len(more)
        self._decided.append((trace, answer))
        self.revision += 1

    def later(self) -> None:
        """Put the current trace behind all others, without an answer."""
        self._waiting.rotate(-1)

    @property
    def notes(self) -> list[str]:
        """What a plan says of the labels so far."""
        return list(self._plan.lines) if self._plan else []

    def undo(self) -> None:
        """Return to the trace of the last answer and remove its label; requires :attr:`can_undo`."""
        trace, answer = self._decided.pop()
        self.file.remove_last()
        if self._plan:
            self._plan.forget(trace.record.id)
        if answer == "skip":
            self._waiting.rotate(1)
        else:
            del self._kept[trace.record.id]
            self._waiting.appendleft(trace)
        self.revision += 1


@contextmanager
def open_labels(path: Path) -> Iterator[LabelFile]:
    """Open a file of labels, or create it.

    Raises:
        InputError: the file cannot be opened, is open in another process, or has a line that is not a label.
    """
    with file_errors(path, "written"):
        opened = path.open("a+b", buffering=0)
    with opened:
        if not try_lock(opened):
            raise InputError(f"{path}: is being written by another `kp-worker policy label`")
        yield LabelFile(path, opened)


class LabelFile:
    """The labels of a file that is open for appending without a buffer; this object is its only writer.

    An incomplete last line, left by a writer that was killed, is removed, because its label was never
    confirmed.

    Raises:
        InputError: a line is not a label.
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self.path, self._file = path, file
        self.removed = ""  # a last line that was half written, safe to print
        self.labels = self._read()  # those that the file had when it was opened, in its order
        self._sizes = [self._file.seek(0, os.SEEK_END)]

    def _read(self) -> list[Label]:
        self._file.seek(0)
        text = self._file.read()
        lines = text.split(b"\n")
        if last := lines[-1]:
            try:
                read_label("", last)
            except InputError:
                if _BEGINNING.startswith(last[: len(_BEGINNING)]):  # else another program's, refused below
                    self.removed = printable(lines.pop().decode(errors="replace"))
                    self._file.truncate(len(text) - len(last))
            else:
                self._write(b"\n")  # somebody's editor ended the file without a line feed
        numbered = enumerate((line.strip() for line in lines), start=1)
        return [read_label(f"{self.path}:{number}", line) for number, line in numbered if line]

    def append(self, label: Label) -> None:
        """Write a label to the disk.

        Raises:
            InputError: the label cannot be written; the file is unchanged.
        """
        try:
            self._write(msgspec.json.encode(label) + b"\n")
        except OSError as error:
            self._file.truncate(self._sizes[-1])
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error
        self._sizes.append(self._file.seek(0, os.SEEK_END))

    def remove_last(self) -> None:
        """Remove the last label that this object wrote."""
        self._sizes.pop()
        self._file.truncate(self._sizes[-1])
        os.fsync(self._file.fileno())

    def _write(self, line: bytes) -> None:
        write_all(self._file, [line])
        os.fsync(self._file.fileno())

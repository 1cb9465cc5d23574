"""What the members beside a run's messages say of its task and its end, as the rows of data sets have them.

A member is known by its name, whatever the spelling (``resolved``, ``isResolved``, ``final_reward``), also
in an object beside the messages (``report``, ``metadata``, ``verifier_result``), or in its JSON text, which a
column of texts has for it. If the members disagree, the run did not succeed: what a learned value takes for a
success should be one. The numbers of rewards and scores are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import nan
from typing import Any

from knowledgepulse_convert.common.ir import RunOutcome
from knowledgepulse_convert.common.reading import parse_json
from knowledgepulse_convert.common.rewards import Reward, number_of
from knowledgepulse_convert.common.statuses import told_by
from knowledgepulse_convert.common.words import words
from knowledgepulse_schemas.trace import Ending

_LEVELS = 5
"""Levels of objects that are searched."""
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_AROUND = words(
    """
    annotation eval evaluation extra feedback grade grading info judge judgement judgment label meta metadata
    metrics outcome report result results reward rewards score scores stats summary test verdict verification
    verifier
    """
)
"""Words in the names of objects that may hold a verdict."""
_IN_TEXTS = words("extra info meta metadata metrics report reward rewards scores")
"""Words at the end of such names whose object may also be a JSON text; a ``result`` is often the answer."""
_ASIDE = words(
    """
    all answer correct eval evaluation exact final goal gpt harness human is issue judge llm pass run success
    task test tests total was
    """
)
"""Words before a name that do not change its meaning."""

_COUNTS = words("count counts totals usage")
"""Names of objects whose members are numbers of something, such as of requests that failed."""
_GOOD = words("correct pass passed resolved solved success successful succeeded win won")
_BAD = words("crashed fail failed failure incorrect timeout truncated unresolved unsolved unsuccessful")
_VERDICTS = dict.fromkeys(_GOOD, True) | dict.fromkeys(_BAD | {"error", "timeout", "wrong"}, False)
"""Texts that are a verdict."""
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""Texts that are one as the value of such a name."""
_TOLD = words("evaluation grade judge judgement judgment label outcome result verdict")
"""Names whose value is a verdict only as a text."""
_ENDED = words("accepted achieved complete completed correctness done finished hit match ok passes")
"""Names whose value says that the run failed only if it is false."""
_SCORES = words("acc accuracy em grade rate return score")
"""Names whose value says that the run failed only if it is 0, since their scales differ."""
_ENDINGS: dict[str, Ending] = {
    **dict.fromkeys(["submit", "submitted"], "submitted"),
    **dict.fromkeys(["finish", "ok", "stop", *_GOOD, *_ENDED], "answered"),
}
"""Exit statuses that name no failure."""
_REASONS = re.compile("(?:final|verification)?status|(?:exit|finish|stop|terminat(?:e|ion))reason")
"""Names of statuses and reasons."""
_ERROR = re.compile(r"\w+(?:Error|Exception|Timeout)")
"""The name of an error, such as OpenThoughts' rows have for a result."""
_TASKS = words("instanceid problemid questionid taskid")
"""Names of the id of the task, which several runs may share."""
_EXCEPTIONS = words("error exception exceptioninfo failurereason iserror")
"""Names of what ended a run, if there is anything."""
_LIMITS = words("terminatedearly timedout")
"""Names of limits, if one was reached."""


class Verdicts:
    """What an object says of the run whose messages it holds.

    Attributes:
        rest: The object without the members that are a verdict, or the task's id.
        task_id: The id of the task; None if there is none.
        ending: How the run ended, if its exit status tells it, which remains in the rest.
    """

    def __init__(self, row: Any) -> None:
        self._found: list[bool] = []
        self._rewards: list[Reward] = []
        self.task_id: str | None = None
        self.ending: Ending | None = None
        self.rest = self._without_verdicts(row, 0) if isinstance(row, dict) else row

    @property
    def outcome(self) -> RunOutcome:
        """The outcome."""
        success = all(self._found) if self._found else None
        return RunOutcome(success, rewards=tuple(dict.fromkeys(self._rewards)))

    def _without_verdicts(self, row: dict[str, Any], level: int) -> dict[str, Any]:
        rest = {}
        for name, given in row.items():
            *before, last = [word.lower() for word in _WORD.findall(name)] or [""]
            parsed = parse_json(given) if last in _IN_TEXTS else given
            value = parsed if isinstance(parsed, dict) else given
            if self._is_task("".join([*before, last]), value):
                continue
            is_told = _ASIDE.issuperset(before)
            verdict = _verdict(before, last, value) if is_told else None
            rewards = list(_rewards(name, last, value)) if is_told else []
            self._rewards += rewards
            if verdict is not None:
                self._found.append(verdict)
            if verdict is not None or rewards:
                continue
            self._end("".join([*before, last]), value)
            is_around = level > 0 or not _AROUND.isdisjoint([*before, last])
            is_searched = isinstance(value, dict) and is_around and level < _LEVELS and last not in _COUNTS
            rest[name] = self._without_verdicts(value, level + 1) if is_searched else value
        return rest

    def _is_task(self, name: str, value: Any) -> bool:
        """Keep the id of the task; return whether a member is one."""
        is_id = name in _TASKS and type(value) in (str, int) and value != "" and self.task_id is None
        if is_id:
            self.task_id = str(value)
        return is_id

    def _end(self, name: str, value: Any) -> None:
        status = value.strip() if isinstance(value, str) else None
        ending: Ending | None = None
        if name == "exitstatus" and status:
            ending = _ENDINGS.get(status.lower()) or told_by(status) or "failed"
        elif _REASONS.fullmatch(name) and status and not re.search(r"\s", status):
            ending = told_by(status)
        elif name in _LIMITS and value:
            ending = "cut_off"
        elif (
            (name in _EXCEPTIONS and value)
            or (name == "exitcode" and value not in (0, "0", None))
            or (name == "result" and _ERROR.fullmatch(status or ""))
        ):
            ending = told_by(status) or "failed"
        if ending is not None and self.ending not in ("failed", "cut_off"):  # which another does not mend
            self.ending = ending


def _verdict(before: list[str], name: str, value: Any) -> bool | None:
    """Return whether a member says that the run succeeded; None if it does not say."""
    text = value.strip().lower() if isinstance(value, str) else ""
    verdict = _VERDICTS.get(text) if name in _GOOD or name in _TOLD else None
    if name in ("reward", "rewards"):
        verdict = _rewarded(value)
    elif name in _GOOD and value in (0, 1) and ("tests" not in before or isinstance(value, bool)):
        verdict = bool(value)
    elif name in _GOOD or name == "verdict":
        verdict = _TRUTHS.get(text, verdict)
    elif name in ("target", "label") and isinstance(value, bool):  # Nebius' and TRL's; others are no verdict
        verdict = value
    elif (name in _BAD and (value == 1 or _TRUTHS.get(text))) or (
        name in _ENDED and (value == 0 or _TRUTHS.get(text) is False)
    ):
        verdict = False
    elif name in _SCORES:
        verdict = False if _number(value) == 0 else verdict
    return verdict


def _rewarded(value: Any) -> bool | None:
    """Return whether a reward of at most 1 is 1, or each of several judges' is.

    Those of several steps say only that all are 0.
    """
    if isinstance(value, list) and len(value) > 1:
        return False if all(_number(step) <= 0 for step in value) else None
    given = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    judged = [reward == 1 for reward in map(_number, given) if reward <= 1]
    return all(judged) if judged else None


def _rewards(name: str, word: str, value: Any) -> Iterator[Reward]:
    """Yield the numbers of a member that holds rewards or a score; a list has those of steps."""
    if word not in ("reward", "rewards") and word not in _SCORES:
        return
    for own, given in value.items() if isinstance(value, dict) else [(name, value)]:
        if (number := number_of(given)) is not None:
            yield Reward(own, number)


def _number(value: Any) -> float:
    number = number_of(value)
    return nan if number is None else number

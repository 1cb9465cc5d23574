"""The command ``kp-worker policy label``."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from knowledgepulse_curator.labels.labelled_inputs import (
    BELOW_ONE,
    LabelledInputs,
    labelled_source_options,
    labels_to_use,
)
from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.process.signals import until_stopped
from knowledgepulse_worker.tools.policies.command_inputs import policy_option
from knowledgepulse_worker.tools.terminal.arguments import EXISTING, NewFile
from knowledgepulse_worker.tools.terminal.console import errors

if TYPE_CHECKING:
    from knowledgepulse_curator.labelling.label_session import ToLabel
    from knowledgepulse_curator.labelling.plan_queue import PlanQueue
    from knowledgepulse_curator.labels.labels import Label


def _labeller(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    if name is None:
        return None
    if not name.strip() or not name.isprintable():  # a lone surrogate, of bytes that are no text, is neither
        raise click.BadParameter("a name has at least one character, and only printable ones")
    from knowledgepulse_curator.labels.labels import JUDGE_PREFIX  # noqa: PLC0415 - keeps `--help` fast

    if name.startswith(JUDGE_PREFIX):
        raise click.BadParameter(f"names that begin with {JUDGE_PREFIX} are those of models")
    return name.strip()


@click.command()
@labelled_source_options
@policy_option
@click.option("--output", type=NewFile(), required=True, help="File of labels to add to.")
@click.option("--by", callback=_labeller, help="Who labels: the `source` of the labels.")
@click.option("--count", type=click.IntRange(1, 10_000), default=100, help="Maximum number of traces.")
@click.option(
    "--promise",
    "least",
    type=BELOW_ONE,
    help="Show the traces that settle how much may pass so that at least this part of it is worth keeping: "
    "of what would pass, the best share first, with three looks at each.",
)
@click.option(
    "--watch",
    type=EXISTING,
    help="Show the traces that are due for the promises of this output of `evaluate --promise --json`: a few "
    "of each day since then, of those that pass.",
)
@click.option("--port", type=click.IntRange(1, 65_535), default=6068, help="Port on 127.0.0.1.")
@click.option("--judge", "url", help="Send the traces to the model at this OpenAI-compatible URL instead.")
@click.option("--model", help="The model's name.")
@click.option(
    "--rubric",
    type=EXISTING,
    help="File that says what makes a run worth keeping, for the page or for the model.",
)
@click.option(
    "--times",
    type=click.IntRange(1, 100),
    default=1,
    help="How often the model is asked about each trace; the label's `reward` is the share of its answers "
    "that keep it.",
)
@click.option("--per-minute", type=click.IntRange(1, 10_000), default=60, help="Limit of requests.")
def label(
    given: LabelledInputs,
    output: Path,
    by: str | None,
    count: int,
    least: float | None,
    watch: Path | None,
    port: int,
    url: str | None,
    model: str | None,
    rubric: Path | None,
    times: int,
    per_minute: int,
) -> None:
    """Label traces in a browser, one at a time, until Ctrl-C.

    Reads scored traces from the workers' topics, or from FILES, and shows a random sample of those that have
    no label in --labels, of all domains in turns. Nothing leaves the machine: the page is served on
    127.0.0.1, at an address that only this command prints. Each label is on disk before the next trace; the
    same command continues after the last one. Two people who label the same traces give different names and
    files. Raw traces are scored by their words, unless --embedder names another or --promise is given: no
    model is loaded.

    With --promise, a plan beside the labels says which traces are asked for, and the same command continues
    it. The page says after each look what is promised, how many labels the next look takes, and when to stop.
    Then `evaluate --plan` makes the promise. Domains with too few traces for a plan get --count random ones.

    With --judge, --model and --rubric, a model labels in your place: the traces are sent to it, with the key
    in OPENAI_API_KEY, after the command has printed about how many tokens that takes. Its labels' source
    begins with `judge:`. Where there are people's labels, too, `evaluate` uses only these, and `fit` fits to
    both and judges by these.
    """
    asks_model = url is not None or model is not None
    if (by is None) != asks_model or (asks_model and None in (url, model, rubric)):
        raise click.UsageError("give either --by, or all of --judge, --model and --rubric")
    from knowledgepulse_curator.labelling.judge import Judge, judge_traces  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_curator.labelling.label_server import serving_labels  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_curator.labelling.label_session import LabelSession, open_labels  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_curator.labelling.traces_to_label import traces_to_label  # noqa: PLC0415 - keeps `--help` fast

    given.require_other(output)
    following = _evaluation(given, output)
    if least is None:  # a promise is of the scores that the worker gives; else, a model only takes time
        given = replace(given, embedder=given.embedder or "lexical")
    policy, labels = given.policy, labels_to_use(given.all_labels(required=False))
    with open_labels(output) as file:
        if file.removed:
            errors.print(f"removed a half-written line of {output}: {file.removed}", markup=False)
        if least is None:
            queue, plan = traces_to_label(given, labels, policy, count, watch), None
        else:
            told = (*given.all_labels(required=False), *file.labels)
            queue, plan = _planned(
                given, least, output, count, [one for one in told if one.is_judges == (not by)]
            )
        if by is not None:
            texts = {"rubric": _text_of(rubric) if rubric else "", "next": following}
            serving = serving_labels(LabelSession(queue, file, by, plan), policy, texts, port)
            asyncio.run(until_stopped(partial(_serve, serving)))
        elif url is not None and model is not None and rubric is not None:
            asked = Judge(url, model, _text_of(rubric), per_minute, times, os.environ.get("OPENAI_API_KEY"))
            click.echo(asyncio.run(judge_traces(LabelSession(queue, file, asked.source, plan), asked)))


def _planned(
    given: LabelledInputs, least: float, output: Path, count: int, labels: Sequence[Label]
) -> tuple[list[ToLabel], PlanQueue]:
    """Return the traces that the plan beside a file of labels asks for, and what asks for more."""
    from knowledgepulse_curator.labelling.plan_queue import PlanQueue  # noqa: PLC0415 - keeps `--help` fast
    from knowledgepulse_curator.labelling.traces_to_label import traces_to_label  # noqa: PLC0415 - as above
    from knowledgepulse_curator.promises.plan import first_words, opened_plan, plan_file, plan_of  # noqa: PLC0415 - as above

    path = plan_file(output)
    planned = partial(opened_plan, path, least=least)
    known = labels_to_use(labels)
    traces = traces_to_label(given, known, given.policy, count, planned=planned)
    plan = PlanQueue(plan_of(path), [trace for trace in traces if trace.sampling == "step"], labels)
    for line in (first_words(least), *plan.lines):
        errors.print(line, markup=False)
    return [*plan.waiting(), *(trace for trace in traces if trace.sampling != "step")], plan


def _evaluation(given: LabelledInputs, output: Path) -> str:
    """Return the command that evaluates the score against all labels of the traces."""
    words = ["kp-worker", "policy", "evaluate", *map(str, given.files)]
    options = [("--config", given.config), ("--embedder", given.embedder), ("--policy", given.policy_file)]
    options += [("--labels", path) for path in (*given.label_files, output)]
    options.append(("--labels-topic", given.labels_topic))
    return shlex.join(words + [str(word) for option in options if option[1] for word in option])


def _text_of(rubric: Path) -> str:
    try:
        return rubric.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{rubric}: cannot be read: {error}") from None


async def _serve(serving: AbstractAsyncContextManager[str], stop: asyncio.Event) -> None:
    async with serving as address:
        click.echo(f"label at {address}")
        await stop.wait()

"""Bad input is one clear line and an exit status, and writes nothing; what is too little, a sentence."""

from __future__ import annotations

import json
import os

import pytest

from support.traces import LABELS

TUNE, FIT = ("policy", "tune", "SCORED"), ("policy", "fit", "SCORED")
EVALUATE, LIST = ("policy", "evaluate", "SCORED"), ("traces", "list", "SCORED")
RESCORE = ("policy", "rescore", "--policy", "POLICY", "--contribute", "a")
LABEL = ("policy", "label", "RAW", "--embedder", "none", "--output", "EMPTY")
JUDGE = (*LABEL, "--per-minute", "10000", "--model", "m", "--rubric", "RAW")
ONE_OF_TWO = "give either --by, or all of --judge, --model and --rubric"
INPUT, USAGE, CONFIG = 1, 2, os.EX_CONFIG

BAD = {
    # What there is to read.
    "no such line": (INPUT, ("traces", "show", "SCORED:999"), "SCORED:999': "),
    "no such trace": (INPUT, ("traces", "show", "kp:gone", "SCORED"), "no scored trace matches 'kp:gone'"),
    "an empty file": (INPUT, ("policy", "tune", "EMPTY"), "EMPTY: is empty"),
    "half a file": (INPUT, ("policy", "tune", "HALF"), "HALF:154: not output of `kp-worker score`"),
    "times of a file": (USAGE, (*TUNE, "--since", "2h"), "--since and --until apply only to topics"),
    # Labels.
    "none to fit to": (USAGE, FIT, "no labels: give --labels FILE or --labels-topic TOPIC"),
    "none to evaluate by": (USAGE, EVALUATE, "no labels: give --labels FILE or"),
    "an empty one": (INPUT, (*FIT, "--labels", "EMPTY"), "EMPTY: is empty"),
    "half a one": (INPUT, (*EVALUATE, "--labels", "CUT"), "CUT:2: not a label: "),
    "of unknown ids": (INPUT, (*FIT, "--labels", "OTHERS"), "no label matches a trace (1 label, "),
    "of no label": (INPUT, (*EVALUATE, "--labels", "SCORED"), "SCORED:1: not a label: give either keep"),
    "of another word": (INPUT, (*EVALUATE, "--labels", "MAYBE"), "MAYBE:1: not a label: Expected `bool"),
    "of no reward": (
        USAGE,
        (*EVALUATE, "--labels", str(LABELS), "--min-reward", "nan"),
        "nan is not a number",
    ),
    # Policies.
    "no TOML": (CONFIG, (*TUNE, "--policy", "EQUAL"), "EQUAL: is not TOML: "),
    "a threshold above 1": (CONFIG, (*TUNE, "--policy", "WRONG"), "WRONG: policy.threshold: got 1.2;"),
    "none": (CONFIG, ("policy", "check", "EMPTY"), "EMPTY: has no [policy]"),
    "of another name": (
        CONFIG,
        ("policy", "check", "TYPO"),
        "TYPO: polcy: no such setting; did you mean policy",
    ),
    # Too little to be seen in a rounded sum.
    "a sum above 1": (CONFIG, ("policy", "check", "SUM"), "outcome_confidence 0.2000001 = 1.0000001"),
    "the second of two": (
        CONFIG,
        (*EVALUATE, "--labels", str(LABELS), "--policy", "POLICY", "--policy", "WRONG"),
        "WRONG: policy.threshold: got 1.2;",
    ),
    # Figures.
    "no number": (USAGE, (*TUNE, "--target", "nan"), "nan is not a number"),
    "a target of none": (USAGE, (*TUNE, "--target", "0"), "0.0 is not in the range 0<x<=1"),
    "an infinite score": (USAGE, (*LIST, "--min", "inf"), "'--min': inf is not in the range 0<=x<=1"),
    "an empty range": (USAGE, (*LIST, "--min", "0.8", "--max", "0.2"), "--min 0.8 is above --max 0.2"),
    # Where it goes.
    "no folder": (
        INPUT,
        (*TUNE, "--output", "OUT/new.toml"),
        "OUT/new.toml: cannot be written: No such file",
    ),
    "a plot of no kind": (
        INPUT,
        (*TUNE, "--plot", "out.pdf"),
        "out.pdf: the suffix must be one of .png, .svg",
    ),
    "over its labels": (INPUT, (*FIT, "--labels", "OTHERS", "--output", "OTHERS"), "OTHERS: is read by"),
    "over its settings": (INPUT, (*TUNE, "--config", "POLICY", "--output", "POLICY"), "POLICY: is read by"),
    "over its traces": (INPUT, ("policy", "drift", "EQUAL", "--accept", "EQUAL"), "EQUAL: is read by"),
    "one topic": (USAGE, RESCORE, "give both --contribute and --rejected"),
    "files to topics": (USAGE, (*RESCORE, "--rejected", "b", "SCORED"), "only records from topics can be"),
    # Who labels.
    "a judge's name": (USAGE, (*LABEL, "--by", "judge:gpt"), "names that begin with judge: are those of"),
    "no name": (USAGE, (*LABEL, "--by", " "), "a name has at least one character"),
    "an odd name": (USAGE, (*LABEL, "--by", "ann\u202e"), "only printable ones"),
    "nobody": (USAGE, LABEL, ONE_OF_TWO),
    "a judge alone": (USAGE, (*LABEL, "--judge", "http://127.0.0.1:1/v1"), ONE_OF_TWO),
    "both": (USAGE, (*LABEL, "--by", "ann", "--model", "m"), ONE_OF_TWO),
    "no URL": (
        INPUT,
        (*JUDGE, "--judge", "model"),
        "--judge: got model; should be the endpoint's base, such as https://host/v1",
    ),
    "a score alone": (
        INPUT,
        (*LABEL[:2], "BARE", *LABEL[3:], "--by", "ann"),
        "BARE:1: has no steps to judge",
    ),
}

POOR = {
    "equal scores, tuned": (("tune", "EQUAL"), "note: customer_service: no threshold, as the best 60 of 60"),
    "equal scores, evaluated": (
        ("evaluate", "EQUAL", "--labels", "EVEN"),
        "verdict: customer_service: the score does not tell these labels apart: AUC 0.50 (0.50-0.50)",
    ),
    "equal scores, fitted": (
        ("fit", "EQUAL", "--labels", "EVEN"),
        "fit: customer_service: no proposal, for want of an AUC that is surely above chance and a",
    ),
    "one group, evaluated": (
        ("evaluate", "SCORED", "--labels", "ONE"),
        "verdict: customer_service: too few labels: 70 of 140 traces are worth keeping, in 1 group; ",
    ),
    "one group, fitted": (
        ("fit", "SCORED", "--labels", "ONE"),
        "fit: customer_service: no proposal: too few labels: 70 of 140 traces are worth keeping, ",
    ),
}


@pytest.fixture
def placed(scored, tmp_path, real_traces):
    """Write the files that the tables name, and return a function that puts their paths into a text."""
    lines = [json.loads(line) for line in scored.read_text().splitlines()]
    labels = LABELS.read_text().splitlines(keepends=True)
    contents = {
        "OTHERS": [{"id": "kp:trace:other", "keep": True}],
        "MAYBE": [{"id": lines[0]["id"], "keep": "maybe"}],
        "EMPTY": "",
        "RAW": real_traces[0].decode(),
        "BARE": [{name: value for name, value in lines[0].items() if name != "content"}],
        "HALF": scored.read_text()[:-30],
        "CUT": "".join(labels)[: len(labels[0]) + 20],
        "POLICY": "[policy]\n",
        "WRONG": "[policy]\nthreshold = 1.2\n",
        "TYPO": "[polcy]\nthreshold = 0.5\n",
        "SUM": (
            "[policy.domains.code.weights]\n"
            "complexity = 0.2\nnovelty = 0.3\ntool_diversity = 0.3\noutcome_confidence = 0.2000001\n"
        ),
        "EQUAL": [{**lines[0], "id": f"{n}", "content": {**lines[n]["content"]}} for n in range(60)],
        "EVEN": [{"id": f"{n}", "keep": n % 2 == 0} for n in range(60)],
        "ONE": [{"id": trace["id"], "keep": n % 2 == 0, "group": 1} for n, trace in enumerate(lines)],
    }
    paths = {"SCORED": str(scored), "OUT": str(tmp_path / "out")}
    for name, content in contents.items():
        text = content if isinstance(content, str) else "".join(f"{json.dumps(line)}\n" for line in content)
        (tmp_path / name).write_text(text)
        paths[name] = str(tmp_path / name)

    def place(text):
        name = next((name for name in paths if text.startswith(name)), "")
        return paths.get(name, "") + text.removeprefix(name)

    return place


@pytest.mark.parametrize(("status", "arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_a_one_line_error_and_writes_nothing(
    kp_worker, placed, tmp_path, status, arguments, message
):
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    result = kp_worker(*map(placed, arguments), env={"KP_EMBEDDING__BACKEND": "none"})

    *usage, error = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (status, "")
    assert error.startswith("Error: ")
    assert placed(message) in error
    assert bool(usage) is (status == USAGE)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("arguments", "sentence"), POOR.values(), ids=POOR)
def test_what_is_too_little_is_said_in_one_sentence(kp_worker, placed, arguments, sentence):
    result = kp_worker("policy", *map(placed, arguments), env={"KP_EMBEDDING__BACKEND": "none"})

    assert (result.exit_code, result.stderr) == (0, "")
    (line,) = (line for line in result.stdout.splitlines() if line.startswith(sentence[:25]))
    assert line.startswith(sentence)


@pytest.mark.parametrize(
    "arguments",
    [
        ("policy", "tune"),
        ("policy", "rescore"),
        ("policy", "evaluate", "--labels-topic", "labels"),
        ("policy", "fit", "--labels-topic", "labels"),
        ("traces", "show", "kp:trace:1"),
    ],
)
def test_a_policy_is_checked_before_anything_is_read(kp_worker, placed, arguments):
    """Here there is no broker to read from, which would be the error otherwise."""
    unreachable = {"KP_KAFKA__BOOTSTRAP_SERVERS": "localhost:1"}

    result = kp_worker(*arguments, "--policy", placed("WRONG"), env=unreachable)

    assert (result.exit_code, result.stdout) == (os.EX_CONFIG, "")
    assert placed("WRONG") + ": policy.threshold: got 1.2;" in result.stderr

"""Agreement of labellers."""

from __future__ import annotations

import json

import pytest

from knowledgepulse_curator.labels.labels import (
    MAX_SOURCES,
    Agreement,
    Label,
    agreement_lines,
    agreements,
)


def labels(source, kept, first=0):
    return [
        Label(f"kp:trace:{n}", letter == "k", source=source) for n, letter in enumerate(kept, start=first)
    ]


# By hand: 7 of 10 the same, by chance 0.6 * 0.5 + 0.4 * 0.5 = 0.5, so (0.7 - 0.5) / (1 - 0.5) = 0.4.
@pytest.mark.parametrize(
    ("first", "second", "agreed", "kappa"),
    [
        ("kkkkkkdddd", "kkkkdddkdd", 7, 0.4),
        ("kkdd", "kkdd", 4, 1.0),
        ("kkdd", "ddkk", 0, -1.0),
        ("kkkk", "kkdd", 2, 0.0),
        ("kkkk", "kkkk", 4, None),
    ],
)
def test_the_kappa_of_two_people(first, second, agreed, kappa):
    (agreement,) = agreements([*labels("ben", first), *labels("ann", second)], 0.5)

    assert agreement == Agreement(
        ("ann", "ben"), len(first), agreed, pytest.approx(kappa) if kappa else kappa
    )


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [("kd" * 15, "kd" * 15, True), ("kd" * 15, "kd" * 14 + "kk", False), ("kd" * 14, "kd" * 14, False)],
)
def test_sources_that_agree_too_well_are_warned_about(first, second, warned):
    lines = list(agreement_lines(agreements([*labels("ann", first), *labels("ben", second)], 0.5)))

    assert [line.startswith("warning: they agree so well") for line in lines[1:]] == [True] * warned


def test_only_traces_that_both_labelled_count_each_with_the_last_label():
    changed = labels("ann", "dkk") + labels("ann", "k")
    others = [*labels("ben", "kd", first=1), *labels("cleo", "k", first=90), Label("kp:trace:0", False)]

    (agreement,) = agreements([*changed, *others], 0.5)

    assert (agreement.sources, agreement.traces, agreement.agreed) == (("ann", "ben"), 2, 1)


def test_of_many_sources_those_with_the_most_labels_are_compared():
    """300 sources of one trace have 44,850 pairs."""
    many = [Label("kp:trace:0", True, source=f"s{number:03}") for number in range(300)]
    found = list(agreements([*many, *labels("zoe", "kd")], 0.5))

    assert len(found) == MAX_SOURCES * (MAX_SOURCES - 1) // 2
    assert {agreement.sources[1] for agreement in found} >= {"zoe"}


@pytest.mark.parametrize(("second", "used"), [("ben", "20 from ben"), ("judge:m:1", "20 from ann")])
def test_evaluate_prints_the_agreement_and_leaves_judges_out(kp_worker, tmp_path, real_traces, second, used):
    """A model's labels also if they come last."""
    traces = tmp_path / "traces.jsonl"
    traces.write_bytes(b"\n".join(real_traces[:20]))
    files = []
    for name, step in (("ann", 2), (second, 3)):
        files += ["--labels", tmp_path / name]
        lines = [
            {"id": json.loads(line)["id"], "keep": n % step == 0, "source": name}
            for n, line in enumerate(real_traces[:20])
        ]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))

    result = kp_worker("policy", "evaluate", traces, "--embedder", "none", *files)

    assert result.exit_code == 0, result.output
    # Kept by both: 0, 6, 12, 18; by neither: 1, 5, 7, 11, 13, 17, 19. By chance, half of them.
    expected = f"agreement: ann and {second} give 11 of 20 traces the same label; Cohen's kappa 0.10"
    assert expected in result.stdout.splitlines()
    assert f"\nlabels: {used}\n" in result.stdout
    left_out = "left out 20 labels of judges, as there are people's"
    assert (left_out in result.stderr) is second.startswith("judge")

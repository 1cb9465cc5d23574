"""The commands that tune, rescore, evaluate and explain, on files."""

import json
import re
import tomllib

import pytest

from knowledgepulse_curator.labelling.traces_to_label import traces_to_label
from knowledgepulse_curator.labels.labelled_inputs import LabelledInputs
from knowledgepulse_curator.labels.labels import labels_of_files
from knowledgepulse_worker.observe.evaluation import evaluation
from support.traces import LABELS, TRACES


def output(result):
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_tune_proposes_a_policy_that_check_accepts_and_rescore_tries(kp_worker, scored, tmp_path):
    proposed = tmp_path / "proposed.toml"

    text = output(kp_worker("policy", "tune", scored, "--target", "0.2", "--threshold", "--output", proposed))
    assert "The threshold that lets 20.0% of a domain's traces pass" in text
    assert "[policy]" not in text
    assert "customer_service: threshold 0.75 → 0." in output(kp_worker("policy", "check", proposed))

    report = json.loads(output(kp_worker("policy", "rescore", scored, "--policy", proposed, "--json")))
    assert report["traces"] == 154
    assert report["rescored"] == 0
    routes = report["routes"]["customer_service"]
    assert routes["rejected → contribute"] / 140 == pytest.approx(0.2, abs=0.02)
    assert len(report["flips"]) == sum(
        domain["rejected → contribute"] + domain["contribute → rejected"]
        for domain in report["routes"].values()
    )


def test_a_table_in_a_pipe_is_not_cut_to_the_width_of_a_terminal(kp_worker, scored):
    text = output(kp_worker("policy", "tune", scored, env={"COLUMNS": "40"}))

    head = next(line for line in text.splitlines() if line.startswith("domain "))
    assert head.split()[-3:] == ["90%", "95%", "highest"]
    assert "…" not in text


def test_tune_prints_the_policy_to_review_and_scores_raw_traces_itself(kp_worker, scored):
    text, report = (output(kp_worker("policy", "tune", scored, *more)) for more in ((), ("--json",)))

    assert tomllib.loads(text[text.index("# embedder: none") :])["policy"] == json.loads(report)["proposed"]
    assert output(kp_worker("policy", "tune", TRACES, "--embedder", "none", "--json")) == report


def test_tune_and_its_policy_say_by_what_embedder_novelty_was_computed(kp_worker, scored, tmp_path):
    """And a warning comes where it is not the settings', or not one: such thresholds do not hold there."""
    lexical, mixed, old = (tmp_path / name for name in ("lexical.jsonl", "mixed.jsonl", "old.jsonl"))
    lexical.write_text(scored.read_text().replace('"embedder": "none"', '"embedder": "lexical, text parts"'))
    mixed.write_text(scored.read_text() + lexical.read_text())
    old.write_text(scored.read_text().replace(', "embedder": "none"', ""))

    def run(file, backend):
        result = kp_worker("policy", "tune", file, env={"KP_EMBEDDING__BACKEND": backend})
        return output(result), result.stderr.replace("\n", " ")

    text, warning = run(lexical, "lexical")
    assert "\nembedder: lexical, text parts (154 traces)\n" in text
    assert "\n# embedder: lexical, text parts (154 traces)\n" in text
    assert warning == ""
    _, warning = run(lexical, "none")
    assert (
        "these scores were computed with lexical, text parts, but the settings' embedder is none" in warning
    )
    _, warning = run(mixed, "lexical")
    assert "cannot be compared: none (154 traces); lexical, text parts (154 traces)" in warning
    text, warning = run(old, "none")
    assert "\nembedder: not recorded (154 traces)\n" in text
    assert warning == ""


def test_the_name_of_an_embedder_in_a_file_is_cut(kp_worker, scored, tmp_path):
    long = tmp_path / "long.jsonl"
    long.write_text(scored.read_text().replace('"embedder": "none"', f'"embedder": "{"x" * 20_000}"'))
    both = tmp_path / "both.jsonl"
    both.write_text(scored.read_text() + long.read_text())

    for file in (long, both):
        result = kp_worker("policy", "tune", file, env={"KP_EMBEDDING__BACKEND": "none"})
        assert "warning: these scores " in result.stderr
        assert max(map(len, result.output.splitlines())) < 1_500


@pytest.mark.slow
def test_the_suffix_selects_the_plot_format(kp_worker, scored, tmp_path):
    tuned, evaluated = tmp_path / "tune.png", tmp_path / "evaluate.svg"

    output(kp_worker("policy", "tune", scored, "--plot", tuned))
    output(kp_worker("policy", "evaluate", scored, "--labels", LABELS, "--plot", evaluated))

    assert tuned.read_bytes().startswith(b"\x89PNG")
    assert evaluated.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(("policy", "flips"), [("", 0), ("threshold = 0.3\n", 10)])
def test_rescore_lists_the_first_flips(kp_worker, scored, tmp_path, policy, flips):
    (tmp_path / "new.toml").write_text(f"[policy]\n{policy}")

    text = output(kp_worker("policy", "rescore", scored, "--policy", tmp_path / "new.toml"))

    assert ": 154 traces, 0 with a new score" in text
    assert text.count("flip: kp:trace:") == flips
    assert ("more; --json lists them all" in text) is (flips > 0)


@pytest.fixture(scope="module")
def mixed(scored, tmp_path_factory):
    """Return labels that follow the tools: what the policy in force does not say."""
    labels = tmp_path_factory.mktemp("labels") / "labels.jsonl"
    lines = [json.loads(line) for line in scored.read_text().splitlines()]
    kept = [
        {"id": trace["id"], "keep": trace["tool_diversity"] + n % 3 / 10 > 0.65}
        for n, trace in enumerate(lines)
    ]
    labels.write_text("\n".join(map(json.dumps, kept)) + "\n")
    return labels


def test_fit_proposes_a_policy_that_check_rescore_and_evaluate_take(kp_worker, scored, mixed, tmp_path):
    fitted, target = tmp_path / "fitted.toml", ("--target", "0.2")
    text = output(kp_worker("policy", "fit", scored, "--labels", mixed, *target, "--output", fitted))
    assert "fit: customer_service: the labels support the learned value: AUC 0." in text
    assert "[policy]" not in text
    assert tomllib.loads(fitted.read_text())["policy"]["domains"]["customer_service"]["learned"]

    assert "share of the learned value 0.0 → 1.0" in output(kp_worker("policy", "check", fitted))
    report = json.loads(output(kp_worker("policy", "rescore", scored, "--policy", fitted, "--json")))
    assert sum(report["routes"]["customer_service"].values()) == 140
    sdk = tmp_path / "sdk.toml"
    sdk.write_text("[policy]\nthreshold = 0.75\n")
    both = ("--policy", sdk, "--policy", fitted)
    text = output(kp_worker("policy", "evaluate", scored, "--labels", mixed, *both))
    assert "change: customer_service: not compared: 140 labels are left out, as a learned value was" in text
    compared = json.loads(output(kp_worker("policy", "evaluate", scored, "--labels", mixed, *both, "--json")))
    assert [comparison["domain"] for comparison in compared["compared"]] == ["customer_service"]


def test_a_fit_without_a_proposal_removes_the_former_one_and_ends_with_status_3(kp_worker, scored, tmp_path):
    labels, former = tmp_path / "labels.jsonl", tmp_path / "proposed.toml"
    lines = [json.loads(line) for line in scored.read_text().splitlines()][:30]
    labels.write_text(
        "".join(json.dumps({"id": line["id"], "keep": n % 2 == 0}) + "\n" for n, line in enumerate(lines))
    )
    former.write_text("[policy]\n")

    result = kp_worker("policy", "fit", scored, "--labels", labels, "--output", former)

    assert (result.exit_code, former.exists()) == (3, False)
    assert "no domain has a proposal" in result.stderr
    assert "fit: customer_service: in plain words: of 100 pairs" in result.stdout


def test_fit_with_words_writes_a_policy_under_which_traces_are_explained(kp_worker, scored, tmp_path):
    """Labels follow a word; the words are in the lines of `score`."""
    labels, fitted = tmp_path / "labels.jsonl", tmp_path / "fitted.toml"
    lines = [json.loads(line) for line in scored.read_text().splitlines()]
    kept = [
        {
            "id": trace["id"],
            "keep": ("refund" in trace["counts"]["words"].split()) != (n % 15 == 0),
            "group": n,
        }
        for n, trace in enumerate(lines)
    ]
    labels.write_text("\n".join(map(json.dumps, kept)) + "\n")

    text = output(kp_worker("policy", "fit", scored, "--labels", labels, "--words", "--output", fitted))

    assert "words on tasks not seen, in folds of whole groups: AUC +0." in text
    domain = tomllib.loads(fitted.read_text())["policy"]["domains"]["customer_service"]
    assert any("refund" in names.split() for names in domain["learned"]["words"]["strongest"].values())
    assert "words of a bucket" in output(kp_worker("policy", "check", fitted))
    at = next(n for n, trace in enumerate(lines, 1) if trace["task_domain"] == "customer_service")
    explained = output(kp_worker("traces", "show", f"{scored}:{at}", "--policy", fitted))
    assert "  its words, such as " in explained


def test_a_prior_needs_no_labels(kp_worker, scored, tmp_path):
    code, proposed = tmp_path / "code.jsonl", tmp_path / "proposed.toml"
    code.write_text(scored.read_text().replace('"customer_service"', '"code"'))

    assert output(kp_worker("policy", "prior", "code-prior-1", code, "--output", proposed)) == ""

    assert "code: learned value of code-prior-1" in output(kp_worker("policy", "check", proposed))
    text = output(kp_worker("policy", "rescore", code, "--policy", proposed))
    assert "154 traces" in text


def test_evaluate_leaves_out_the_labels_that_the_policy_was_fitted_to(kp_worker, scored, mixed, tmp_path):
    """It gives the figure of traces that were not fitted to instead, as fit printed it."""
    fitted = tmp_path / "fitted.toml"
    text = output(kp_worker("policy", "fit", scored, "--labels", mixed, "--output", fitted))
    auc = re.search(r"customer_service: the labels support the learned value: AUC (\S+ \S+),", text)[1]

    text = output(kp_worker("policy", "evaluate", scored, "--labels", mixed, "--policy", fitted))

    assert text.startswith(
        "verdict: customer_service: none, as its learned value was fitted to all 140 labels: "
        f"AUC {auc} on traces that it was not fitted to, at its fit on 20"
    )
    assert "customer_service " not in text.partition("AUC: how often")[2]

    file = tmp_path / "evaluation.json"
    options = ("--labels", mixed, "--policy", fitted, "--json")
    file.write_text(output(kp_worker("policy", "evaluate", scored, *options)))
    code, service = sorted(evaluation(file, {}).domains, key=lambda domain: domain.name)
    assert (code.name, code.labels, code.since) == ("code", 14, None)
    assert (service.labels, service.auc) == (0, None)
    assert service.since in text


@pytest.fixture
def graded(tmp_path):
    """Write traces whose runs graders judged; return the file."""

    def write(*grades):
        traces = [json.loads(line) for line in TRACES.read_text().splitlines()[: len(grades)]]
        for number, (trace, (source, rewards)) in enumerate(zip(traces, grades, strict=True)):
            named = [{"name": name, "value": value} for name, value in rewards.items()]
            trace["metadata"] |= {"outcome_source": source, "rewards": named, "task_id": f"t{number // 2}"}
        file = tmp_path / "graded.jsonl"
        file.write_text("".join(json.dumps(trace) + "\n" for trace in traces))
        return file

    return write


JUDGED = [("label", {})] * 154
NO_EMBEDDER = ("--embedder", "none")


def test_a_value_is_fitted_to_what_graders_said_in_the_traces_themselves(kp_worker, graded):
    command = ("policy", "fit", graded(*JUDGED), *NO_EMBEDDER, "--labels-from-outcomes", "--json")
    fitted = json.loads(kp_worker(*command).stdout)["domains"]["customer_service"]
    assert (fitted["traces"], fitted["of_outcomes"], fitted["kept"]) == (140, 140, 43)
    assert (fitted["agreement"], fitted["held"], fitted["grouped"]["the task's id"]) == (1, True, 140)


def test_evaluate_warns_that_the_score_contains_labels_that_are_the_outcomes(kp_worker, scored, graded):
    warning = "of the labels are the traces' own outcomes, which the score multiplies"
    own = kp_worker("policy", "evaluate", graded(*JUDGED), *NO_EMBEDDER, "--labels-from-outcomes")
    assert warning in output(own)
    assert warning not in output(kp_worker("policy", "evaluate", scored, "--labels", LABELS))


def test_rewards_judge_by_the_least_that_is_asked_of_each(kp_worker, graded):
    grades = [("ended_without_error", {"a": 0.1 * number, "b": number % 2}) for number in range(10)]
    file = graded(*grades)

    def kept(*options):
        evaluated = kp_worker(
            *("policy", "evaluate", file, "--embedder", "none", "--labels-from-outcomes", "--json"),
            *(part for rule in options for part in ("--min-reward", rule)),
        )
        domains = json.loads(output(evaluated))["domains"].values()
        return sum(domain["traces"] for domain in domains), sum(domain["kept"] for domain in domains)

    assert kept("a=0.45") == (10, 5)
    assert kept("a=0.45", "b=1") == (10, 3)
    refused = kp_worker("policy", "evaluate", file, "--embedder", "none", "--labels-from-outcomes")
    assert refused.exit_code == 1
    assert "nobody judged the runs of 10 traces" in refused.stderr
    assert "--success-from NAME" in refused.stderr
    assert kp_worker("policy", "fit", file, "--labels-from-outcomes", "--min-reward", "a=x").exit_code == 2


def test_labels_have_to_come_from_somewhere(kp_worker, scored):
    assert "--labels-from-outcomes" in kp_worker("policy", "fit", scored).stderr


def test_what_is_due_for_a_promise_is_labelled_as_passing(kp_worker, scored, tmp_path, monkeypatch):
    """From a certificate to the labels that would withdraw it, by the commands' own files."""
    monkeypatch.setenv("KP_EMBEDDING__BACKEND", "none")
    first, watch, policy = (tmp_path / name for name in ("first.jsonl", "evaluation.json", "all.toml"))
    policy.write_text("[policy]\nthreshold = 0.0\n")
    lines = [json.loads(line) for line in scored.read_text().splitlines()]
    given = [{"id": line["id"], "keep": True, "sampling": "random", "source": "ann"} for line in lines[:120]]
    first.write_text("".join(json.dumps(label) + "\n" for label in given))
    common = ("policy", "evaluate", scored, "--policy", policy, "--json")
    watch.write_text(output(kp_worker(*common, "--labels", first, "--promise", "0.8")))
    (promise,) = json.loads(watch.read_text())["promises"].values()
    assert (promise["outcome"], promise["share"]) == ("promised", 1.0)

    given = LabelledInputs(files=(scored,), policy_file=policy)
    labels = {label.id: label for label in labels_of_files([first])}
    waiting = traces_to_label(given, labels, given.policy, 10, watch)
    assert {trace.sampling for trace in waiting} == {"passing"}
    assert not {trace.record.id for trace in waiting} & labels.keys()

    late = tmp_path / "late.jsonl"
    bad = [
        {"id": line["id"], "keep": False, "sampling": "passing", "source": "ann", "group": n}
        for n, line in enumerate(lines[120:])
    ]
    late.write_text("".join(json.dumps(label) + "\n" for label in bad))
    again = json.loads(output(kp_worker(*common, "--labels", first, "--labels", late, "--watch", watch)))
    assert [promise["outcome"] for promise in again["promises"].values()] == ["withdrawn"]
    assert kp_worker(*common, "--labels", first, "--watch", watch, "--promise", "0.8").exit_code == 2

"""Make the labelled corpora of the study of promises from public repositories.

    PYTHONPATH=tests:schemas python -m policies.corpora --mirror FOLDER --out FOLDER [NAME...]

Nothing is fetched: FOLDER holds bare clones as OWNER+NAME.git, at the commits of docs/curators/evidence.md.
A corpus is two files: NAME.jsonl, traces in a random order, and NAME.labels.jsonl, whose group is the task.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from knowledgepulse_convert import Conversion, convert


class Run(NamedTuple):
    """A run as its source has it: a document, and whether its tests or its reward say success."""

    task: str
    agent: str
    trial: int
    document: object
    kept: bool


class Repository:
    def __init__(self, folder):
        self.folder = folder

    def paths(self, under, pattern=""):
        command = ["git", "-C", self.folder, "ls-tree", "-r", "-z", "--name-only", "HEAD", under]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [path for path in listed.split("\0") if path and re.search(pattern, path)]

    def text(self, path):
        """Return a file's text; empty if the copy lacks it."""
        shown = subprocess.run(
            ["git", "-C", self.folder, "show", f"HEAD:{path}"], check=False, capture_output=True
        )
        return shown.stdout.decode("utf-8", "replace") if shown.returncode == 0 else ""

    def json(self, path):
        return json.loads(self.text(path) or "null")


def tau_airline(repository):
    for run in repository.json("historical_trajectories/gpt-4o-airline.json"):
        yield Run(str(run["task_id"]), "gpt-4o", run["trial"], [run], float(run["reward"]) == 1)


def claude_retail(repository):
    for agent in ("sonnet_run", "haiku_run", "haiku_base_solo"):
        folder = f"results/{agent}_complete_dataset"
        right = {
            str(row["task_id"]): row["db_match"] for row in repository.json(f"{folder}/eval_results.json")
        }
        for path in repository.paths(folder, r"task_\d+\.jsonl$"):
            task = re.search(r"task_(\d+)", path)[1]
            events = [json.loads(line) for line in repository.text(path).split("\n") if line]
            messages = [
                {name: event["message"][name] for name in ("role", "content")}
                for event in events
                if event["type"] in {"user", "assistant"} and "message" in event
            ]
            if task in right:
                yield Run(task, agent, 0, {"messages": messages}, bool(right[task]))


def swe_lite(repository):
    for trial in (1, 2, 3):
        folder = f"results/swe-agent-results/cost_2_{trial}"
        resolved = {*repository.json(f"{folder}/final_report.json")["resolved"]}
        for path in repository.paths(folder, r"\.traj$"):
            task = path.rpartition("/")[2].removesuffix(".traj")
            yield Run(task, "SWE-agent", trial, repository.json(path), task in resolved)


def acr(repository):
    for trial in (1, 2, 3):
        folder = f"results/acr-run-{trial}"
        resolved = {*repository.json(f"{folder}/new_eval_results/report.json")["resolved"]}
        of_run = {}
        for path in repository.paths(folder, r"/(conversation_round_\d+|debug_agent_write_patch_1)\.json$"):
            of_run.setdefault(path.rpartition("/")[0], []).append(path)
        for run, paths in of_run.items():
            task = re.sub(r"_2024-\d\d-.*", "", run.rpartition("/")[2])
            last = max(paths, key=lambda path: ("write_patch" in path, len(path), path))
            yield Run(task, "AutoCodeRover", trial, {"messages": repository.json(last)}, task in resolved)


def swe_verified(repository):
    folder = "swebench_results/20251118_gemini-3-pro-74pct"
    rows = repository.json(f"{folder}/results_summary.json")["instances"]
    resolved = {row["instance_id"]: row["resolved"] for row in rows}
    for path in repository.paths(f"{folder}/trajs", r"\.traj\.json$"):
        task = path.rpartition("/")[2].removesuffix(".traj.json")
        yield Run(task, "mini-swe-agent", 0, repository.json(path), bool(resolved[task]))


def swe_java(repository):
    for folder in sorted(
        {"/".join(path.split("/")[:4]) for path in repository.paths("evaluation/java/verified")}
    ):
        results = repository.json(f"{folder}/results/results.json") or {}
        told = {*results.get("completed_ids", ()), *results.get("empty_patch_ids", ())}
        for path in repository.paths(folder, r"\.traj$"):
            task = path.rpartition("/")[2].removesuffix(".traj")
            if task in told:
                agent = folder.rpartition("SWE-agent_")[2]
                yield Run(task, agent, 0, repository.json(path), task in {*results["resolved"]})


_REACT = re.compile(r"^(Thought|Action|Observation)(?: \d+)?: ?", re.MULTILINE)


def hotpotqa(repository):
    for path in repository.paths("trajs", r"\.json$"):
        agent = re.search(r"llama-2-\d+b|gpt-3.5", path)[0]
        for task, run in (repository.json(path) or {}).items():
            if isinstance(run["traj"], str):
                question = run["traj"].partition("### Instruction:\n")[2].partition("\n")[0]
                said = run["traj"].partition("### Response:\n")[2]
            else:
                question, said = run["traj"][0]["content"], "\n".join(m["content"] for m in run["traj"][1:])
            yield Run(task, agent, 0, {"messages": _react(question, said)}, float(run["em"]) == 1)


def _react(question, said):
    """Return the messages of a run that was written as thoughts, actions and observations."""
    messages, thought, action = [{"role": "user", "content": question}], "", ""
    parts = _REACT.split(said)[1:]
    for number, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        if kind == "Thought":
            thought = text.strip()
        elif kind == "Action":
            action = text.strip()
        elif "Episode finished" not in text:
            name, _, argument = action.partition("[")
            call = {"name": name, "arguments": json.dumps({"query": argument.rstrip("]")})}
            calls = [{"id": f"c{number}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": thought, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text.strip()})
            thought = action = ""
    return [*messages, {"role": "assistant", "content": f"{thought} {action}".strip() or "finish"}]


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[⠀-⣿] Waiting for the LM to respond\.\.\.|\r")
_SECTION = re.compile(r"^(User:|mini-swe-agent \(step \d+, \$[\d.]+\):)$", re.MULTILINE)


def terminal(repository):
    under = "results/terminal-bench-core@0.1.1/20250825_swe-agent-mini_claude-4-sonnet"
    logs = repository.paths(under, r"/sessions/agent\.log$")
    trials = {name: number for number, name in enumerate(sorted({path.split("/")[3] for path in logs}))}
    for path in logs:
        text = _ESCAPES.sub("", repository.text(path)).rpartition("INSTALL_SUCCESS\n")[2]
        parts = _SECTION.split(text)[1:]
        messages = [
            {"role": "user" if who == "User:" else "assistant", "content": said.strip("─�\n ")}
            for who, said in zip(parts[::2], parts[1::2], strict=True)
        ]
        told = repository.json(path.removesuffix("/sessions/agent.log") + "/results.json")
        if sum(m["role"] == "assistant" for m in messages) >= 2 and told and told["is_resolved"] is not None:
            _, _, _, trial, task, *_ = path.split("/")
            yield Run(
                task, "mini-swe-agent", trials[trial], {"messages": messages}, bool(told["is_resolved"])
            )


MAKERS = {
    "tau-airline": ("sierra-research+tau-bench", tau_airline),
    "claude-retail": ("codesque16+tau2-mermaid", claude_retail),
    "swe-lite": ("nus-apr+auto-code-rover", swe_lite),
    "acr": ("nus-apr+auto-code-rover", acr),
    "swe-verified": ("gruckion+mini-swe-agent", swe_verified),
    "swe-java": ("multi-swe-bench+experiments", swe_java),
    "hotpotqa": ("anchen1011+FireAct", hotpotqa),
    "terminal": ("laude-institute+terminal-bench-leaderboard", terminal),
}


def write(name, runs, out):
    """Write a corpus; return the numbers of traces, of those kept, of tasks, and of other runs."""
    rows, lost = {}, 0
    for run in runs:
        found = [one for one in convert(run.document) if isinstance(one, Conversion)]
        trace = json.loads(found[0].trace.to_json()) if found else None
        if trace is None:
            lost += 1
            continue
        trace["id"] = f"kp:trace:{uuid5(NAMESPACE_URL, f'{name}/{run.task}/{run.agent}/{run.trial}')}"
        trace["metadata"] |= {
            "agent_id": run.agent,
            "success": True,
            "task_domain": "default",
        }
        for told in ("outcome_source", "rewards"):
            trace["metadata"].pop(told, None)
        rows[trace["id"]] = trace, {"id": trace["id"], "keep": run.kept, "source": name, "group": run.task}
    order = sorted(rows)
    random.Random(1).shuffle(order)
    for suffix, part in ((".jsonl", 0), (".labels.jsonl", 1)):
        lines = "".join(json.dumps(rows[trace_id][part]) + "\n" for trace_id in order)
        (out / f"{name}{suffix}").write_text(lines)
    labels = [label for _, label in rows.values()]
    return (
        len(labels),
        sum(label["keep"] for label in labels),
        len({label["group"] for label in labels}),
        lost,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=list(MAKERS))
    given = parser.parse_args()
    for name in given.names:
        folder, make = MAKERS[name]
        traces, kept, tasks, lost = write(name, make(Repository(given.mirror / f"{folder}.git")), given.out)
        sys.stdout.write(
            f"{name}: {kept} of {traces} traces kept, {tasks} tasks; {lost} runs without a trace\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()

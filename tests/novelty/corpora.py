"""Make the corpora of the evidence from public repositories.

Nothing is fetched: each maker reads a git directory that is already here (``git clone --bare``, at the
commit of README.md). A corpus is two files: traces, and labels with ``id``, ``group`` (the task), ``reward``,
``agent`` and ``domain``. Tasks are drawn with a fixed seed, of every domain the same number.

    PYTHONPATH=tests python -m novelty.corpora --mirror FOLDER --out FOLDER [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from knowledgepulse_schemas.convert import ConversionError, convert, from_anthropic, from_openai


@dataclass(frozen=True)
class Repository:
    folder: Path

    def paths(self, under: str) -> list[str]:
        found = subprocess.run(
            ["git", "-C", self.folder, "ls-tree", "-r", "-z", "--name-only", "HEAD", under],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        return [path for path in found.stdout.split("\0") if path]

    def text(self, path: str) -> str | None:
        """Return a file's text, or None if the copy lacks it."""
        shown = subprocess.run(
            ["git", "-C", self.folder, "show", f"HEAD:{path}"], check=False, capture_output=True
        )
        return shown.stdout.decode("utf-8", "replace") if shown.returncode == 0 else None

    def json(self, path: str) -> Any:
        text = self.text(path)
        return None if text is None else json.loads(text)


@dataclass(frozen=True)
class Run:
    """A run as its source has it; ``trace`` converts it when it has been drawn."""

    task: str
    agent: str
    trial: int
    trace: Callable[[], dict[str, Any]]
    domain: str = "default"
    reward: float = 0


def _openai(messages: list[dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    return lambda: json.loads(from_openai({"messages": messages}).trace.to_json())


def _converted(document: Any) -> Callable[[], dict[str, Any]]:
    def trace() -> dict[str, Any]:
        [conversion] = convert(document)
        if isinstance(conversion, ConversionError):
            raise conversion
        return json.loads(conversion.trace.to_json())

    return trace


def _called(text: str, name: str, argument: dict[str, str], observation: str, number: int) -> list[dict]:
    """Return the messages of a call and its answer."""
    call = {
        "id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(argument)},
    }  # fmt: skip
    return [
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": observation},
    ]


MINT_MODELS = (
    "gpt-4-0613", "claude-2", "Llama-2-70b-chat-hf", "Mistral-7B-Instruct-v0.2", "CodeLlama-34b-Instruct-hf",
    "vicuna-13b-v1.5",
)  # fmt: skip


MINT_OTHER_MODELS = (
    "gpt-3.5-turbo-0613", "claude-instant-1", "Meta-Llama-3-70B-Instruct", "Qwen1.5-72B-Chat",
    "Mixtral-8x7B-Instruct-v0.1", "deepseek-llm-67b-chat",
)  # fmt: skip


def mint(repository: Repository, models: Sequence[str] = MINT_MODELS) -> Iterator[Run]:
    for model in models:
        for path in repository.paths(f"data/outputs/{model}/F=None/max5_p2+tool+cd"):
            if not path.endswith("results.jsonl"):
                continue
            *_, kind, name, _file = path.split("/")
            for line in filter(None, (repository.text(path) or "").split("\n")):
                run = json.loads(line)
                yield Run(
                    f"{name}-{run['task']['task_id']}", model, 0, _openai(run["state"]["history"]),
                    f"{kind}/{name}", float(run["state"]["success"]),
                )  # fmt: skip


def mint_others(repository: Repository) -> Iterator[Run]:
    """Other tasks, by other models."""
    used = {run.task for run in drawn(mint(repository), 120, 0.6)}
    return (run for run in mint(repository, MINT_OTHER_MODELS) if run.task not in used)


def _intercode(repository: Repository, files: dict[str, str], tool: str) -> Iterator[Run]:
    for agent, pattern in files.items():
        for path in repository.paths(f"data/results/{tool}"):
            if not re.fullmatch(pattern, path.rpartition("/")[2]):
                continue
            for run in (repository.json(path) or {}).values():
                history = run["turn_history"]
                thoughts = history.get("thoughts") or [""] * len(history["actions"])
                messages = [{"role": "user", "content": run["query"]}]
                for number, (thought, action, seen) in enumerate(
                    zip(thoughts, history["actions"], history["observations"], strict=False)
                ):
                    messages += _called(thought or "", tool, {"command": str(action)}, str(seen), number)
                if len(messages) > 1:
                    yield Run(
                        f"{run['dataset'].rpartition('/')[2]}-{run['task_id']}", agent, 0, _openai(messages),
                        tool, float(run["summary"]["max_reward"] == 1),
                    )  # fmt: skip


def intercode_bash(repository: Repository) -> Iterator[Run]:
    several = r"ic_bash_multiturn_{}_10_turns_fs_\d.json"
    models = ("gpt-3.5", "gpt-4", "chat-bison-001", "text-davinci-003", "starchat")
    files = {model: several.format(re.escape(model)) for model in models}
    return _intercode(repository, files | {"gpt-3.5-react": r"ic_bash_react_10_turns_fs_\d.json"}, "bash")


def intercode_sql(repository: Repository) -> Iterator[Run]:
    models = ("gpt-3.5", "gpt-4", "chat-bison-001", "text-davinci-003", "vicuna")
    files = {model: f"ic_sql_multiturn_{re.escape(model)}_10_turns.json" for model in models}
    return _intercode(repository, files | {"gpt-3.5-react": "ic_sql_react_10_turns.json"}, "sql")


def tau_airline(repository: Repository) -> Iterator[Run]:
    for run in repository.json("historical_trajectories/gpt-4o-airline.json"):
        yield Run(
            str(run["task_id"]), "gpt-4o", run["trial"], _converted([run]), "airline", float(run["reward"])
        )


def airline_agents(repository: Repository) -> Iterator[Run]:
    """tau2-bench's airline runs of four agents, with tau-bench's of a fifth, by the customer of the task."""
    tau = Repository(repository.folder.parents[1] / "sierra-research+tau-bench" / "repo")
    of_user = defaultdict(set)
    older = tau.json("historical_trajectories/gpt-4o-airline.json")
    for run in older:
        of_user[run["info"]["task"]["user_id"]].add(run["task_id"])
    for path in repository.paths("samples/logs"):
        if "enhanced_logs" in path:
            continue
        document = repository.json(path)
        users = {task["id"]: re.search(r"user id is (\w+)", json.dumps(task)) for task in document["tasks"]}
        agent = path.rpartition("10tasks_2t")[2].removesuffix(".json").strip("_") or "baseline"
        for simulation in document["simulations"]:
            user = users[simulation["task_id"]]
            single = document | {"simulations": [simulation]}
            if user and len(of_user[user[1]]) <= 1 and list(users.values()).count(user) == 1:
                yield Run(
                    user[1], f"gemini-2.5-flash/{agent}", simulation["trial"], _converted(single), "airline"
                )
    for run in older:
        user = run["info"]["task"]["user_id"]
        if len(of_user[user]) == 1:
            yield Run(user, "gpt-4o", run["trial"], _converted([run]), "airline", float(run["reward"]))


def claude_retail(repository: Repository) -> Iterator[Run]:
    for agent in ("sonnet_run", "haiku_run", "haiku_base_solo"):
        for path in repository.paths(f"results/{agent}_complete_dataset"):
            if not (task := re.search(r"task_(\d+)\.jsonl$", path)):
                continue
            messages: list[dict[str, Any]] = []
            for line in filter(None, (repository.text(path) or "").split("\n")):
                event = json.loads(line)
                if event["type"] in {"user", "assistant"} and "message" in event:
                    messages.append({name: event["message"][name] for name in ("role", "content")})
            yield Run(
                task[1], agent, 0,
                lambda messages=messages: json.loads(from_anthropic({"messages": messages}).trace.to_json()),
                "retail",
            )  # fmt: skip


def swe_lite(repository: Repository) -> Iterator[Run]:
    """SWE-bench Lite by AutoCodeRover and by SWE-agent, three runs each, of the tasks that all have."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for trial in (1, 2, 3):
        folders: dict[str, list[str]] = defaultdict(list)
        for path in repository.paths(f"results/acr-run-{trial}"):
            if re.search(r"/(conversation_round_\d+|debug_agent_write_patch_1)\.json$", path):
                folders[path.rpartition("/")[0]].append(path)
        for folder, paths in folders.items():
            task = re.sub(r"_2024-\d\d-.*", "", folder.rpartition("/")[2])
            last = max(paths, key=lambda path: ("write_patch" in path, len(path), path))
            runs[task].append(
                Run(
                    task, "AutoCodeRover", trial, lambda last=last: _openai(repository.json(last))(), "python"
                )
            )
        for path in repository.paths(f"results/swe-agent-results/cost_2_{trial}"):
            if path.endswith(".traj") and (document := repository.json(path)):
                task = path.rpartition("/")[2].removesuffix(".traj")
                runs[task].append(Run(task, "SWE-agent", trial, _converted(document), "python"))
    for several in runs.values():
        if len(several) == 6:
            yield from several


def swe_java(repository: Repository) -> Iterator[Run]:
    for path in repository.paths("evaluation/java/verified"):
        if path.endswith(".traj") and (document := repository.json(path)):
            agent = re.search(r"2024\d+_SWE-agent_([^/]+)", path)[1]
            yield Run(path.rpartition("/")[2].removesuffix(".traj"), agent, 0, _converted(document), "java")


_REACT = re.compile(r"^(Thought|Action|Observation)(?: \d+)?: ?", re.MULTILINE)


def hotpotqa(repository: Repository) -> Iterator[Run]:
    for path in repository.paths("trajs"):
        if not path.endswith(".json"):
            continue
        agent = re.search(r"llama-2-\d+b|gpt-3.5", path)[0]
        for task, run in (repository.json(path) or {}).items():
            if isinstance(run["traj"], str):
                question = run["traj"].partition("### Instruction:\n")[2].partition("\n")[0]
                said = run["traj"].partition("### Response:\n")[2]
            else:
                question, said = run["traj"][0]["content"], "\n".join(m["content"] for m in run["traj"][1:])
            messages = [{"role": "user", "content": question}]
            parts = _REACT.split(said)[1:]
            thought, action = "", ""
            for number, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
                if kind == "Thought":
                    thought = text.strip()
                elif kind == "Action":
                    action = text.strip()
                elif "Episode finished" not in text:
                    name, _, argument = action.partition("[")
                    messages += _called(thought, name, {"query": argument.rstrip("]")}, text.strip(), number)
                    thought = action = ""
            messages.append({"role": "assistant", "content": f"{thought} {action}".strip() or "finish"})
            yield Run(task, agent, 0, _openai(messages), "qa", float(run["em"]))


def livemcpbench(repository: Repository) -> Iterator[Run]:
    """Everyday tasks with tools, judged by people."""
    for run in repository.json("baseline/annotation/claude-sonnet-4-20250514_Qwen3-Embedding-0.6B.json"):
        yield Run(
            run["task_id"], "claude-sonnet-4", 0, _openai(run["messages"]), run["category"],
            float(run["task_success"] == "success"),
        )  # fmt: skip


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|[⠀-⣿] Waiting for the LM to respond\.\.\.|\r")
_SECTION = re.compile(r"^(User:|mini-swe-agent \(step \d+, \$[\d.]+\):)$", re.MULTILINE)


def terminal(repository: Repository) -> Iterator[Run]:
    """Terminal-Bench by mini-swe-agent, from the recorded terminal."""
    under = "results/terminal-bench-core@0.1.1/20250825_swe-agent-mini_claude-4-sonnet"
    logs = [path for path in repository.paths(under) if path.endswith("/sessions/agent.log")]
    trials = {name: number for number, name in enumerate(sorted({path.split("/")[3] for path in logs}))}
    for path in logs:
        text = _ESCAPES.sub("", repository.text(path) or "").rpartition("INSTALL_SUCCESS\n")[2]
        parts = _SECTION.split(text)[1:]
        messages = [
            {"role": "user" if who == "User:" else "assistant", "content": said.strip("─�\n ")}
            for who, said in zip(parts[::2], parts[1::2], strict=True)
        ]
        if sum(message["role"] == "assistant" for message in messages) >= 2:
            _, _, _, trial, task, *_ = path.split("/")
            yield Run(task, "mini-swe-agent", trials[trial], _openai(messages), "terminal")


def _paraphrases(repository: Repository, name: str, each: int) -> Iterator[Run]:
    """Questions of people that have one answer (one SQL query), each with names and numbers of its own."""
    for task, query in enumerate(repository.json(f"data/{name}.json")):
        sentences = {}
        for sentence in query["sentences"]:
            text = sentence["text"]
            for variable, value in sentence["variables"].items():
                text = text.replace(variable, value)
            sentences.setdefault(sentence["text"], text)
        for trial, text in enumerate(list(sentences.values())[:each] if len(sentences) >= each else []):
            yield Run(
                f"{name}-{task}", "people", trial,
                _openai([{"role": "user", "content": text}, {"role": "assistant", "content": "Done."}]), name,
            )  # fmt: skip


def paraphrases(repository: Repository) -> Iterator[Run]:
    yield from _paraphrases(repository, "advising", 6)


def paraphrases_atis(repository: Repository) -> Iterator[Run]:
    yield from _paraphrases(repository, "atis", 6)


def paraphrases_others(repository: Repository) -> Iterator[Run]:
    yield from _paraphrases(repository, "geography", 4)
    yield from _paraphrases(repository, "scholar", 4)


MAKERS: dict[str, tuple[str, Callable[[Repository], Iterable[Run]], int, float]] = {
    "mint": ("xingyaoww+mint-bench", mint, 120, 0.6),
    "mint-others": ("xingyaoww+mint-bench", mint_others, 120, 0.6),
    "intercode-bash": ("princeton-nlp+intercode", intercode_bash, 120, 0.6),
    "intercode-sql": ("princeton-nlp+intercode", intercode_sql, 120, 0.6),
    "tau-airline": ("sierra-research+tau-bench", tau_airline, 50, 0.6),
    "airline-agents": ("jitrc+tau2-enhanced", airline_agents, 50, 0),
    "claude-retail": ("codesque16+tau2-mermaid", claude_retail, 114, 0.6),
    "swe-lite": ("nus-apr+auto-code-rover", swe_lite, 60, 0.6),
    "swe-java": ("multi-swe-bench+experiments", swe_java, 91, 0.6),
    "hotpotqa": ("anchen1011+FireAct", hotpotqa, 200, 0.6),
    "terminal": ("laude-institute+terminal-bench-leaderboard", terminal, 80, 0.6),
    "livemcpbench": ("icip-cas+LiveMCPBench", livemcpbench, 600, 0),
    "paraphrases": ("jkkummerfeld+text2sql-data", paraphrases, 120, 0.6),
    "paraphrases-atis": ("jkkummerfeld+text2sql-data", paraphrases_atis, 120, 0.6),
    "paraphrases-others": ("jkkummerfeld+text2sql-data", paraphrases_others, 120, 0.6),
}
"""By corpus: its repository's folder, what reads it, how many tasks are drawn, and of how many runs at least,
as a share of the most."""


def drawn(runs: Iterable[Run], tasks: int, least: float) -> list[Run]:
    """Draw tasks that most agents ran, of every domain the same number as far as there are any."""
    of_task: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        of_task[run.domain, run.task].append(run)
    most = max(map(len, of_task.values()))
    of_domain: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for task, several in of_task.items():
        if len(several) >= least * most:
            of_domain[task[0]].append(task)
    source = random.Random(1)
    share = -(-tasks // len(of_domain))
    chosen = [
        task for several in of_domain.values() for task in source.sample(several, min(share, len(several)))
    ]
    return [run for task in chosen for run in of_task[task]]


def write(name: str, runs: Iterable[Run], out: Path) -> tuple[int, int]:
    """Write a corpus; return the number of traces and of runs that are no trace."""
    written: set[str] = set()
    lost = 0
    with (out / f"{name}.jsonl").open("w") as traces, (out / f"{name}.labels.jsonl").open("w") as labels:
        for run in runs:
            try:
                trace = run.trace()
            except (ConversionError, ValueError):
                lost += 1
                continue
            trace["id"] = f"kp:trace:{uuid5(NAMESPACE_URL, f'{name}/{run.task}/{run.agent}/{run.trial}')}"
            if trace["id"] in written:
                raise ValueError(f"{name}: two runs of {run.agent} are number {run.trial} of {run.task}")
            trace["metadata"]["agent_id"] = run.agent
            label = {
                "id": trace["id"], "reward": run.reward, "source": name,
                "group": run.task, "agent": run.agent, "domain": run.domain,
            }  # fmt: skip
            traces.write(json.dumps(trace) + "\n")
            labels.write(json.dumps(label) + "\n")
            written.add(trace["id"])
    return len(written), lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mirror", type=Path, required=True, help="holds OWNER+NAME/repo, a git directory each"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=list(MAKERS))
    arguments = parser.parse_args()
    for name in arguments.names:
        folder, make, tasks, least = MAKERS[name]
        repository = Repository(arguments.mirror / folder / "repo")
        count, lost = write(name, drawn(make(repository), tasks, least), arguments.out)
        sys.stdout.write(f"{name}: {count} traces, {lost} runs without one\n")


if __name__ == "__main__":
    main()

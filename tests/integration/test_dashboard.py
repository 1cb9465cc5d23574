"""The dashboard and the alerts on data that a real Prometheus scraped from a real worker."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter, defaultdict
from contextlib import ExitStack, asynccontextmanager
from itertools import takewhile
from pathlib import Path
from statistics import fmean

import aiohttp
import pytest
import yaml

from knowledgepulse_schemas.dead_letter import REASONS
from knowledgepulse_worker.errors import REDACTION_REASONS
from knowledgepulse_worker.policy import DIMENSIONS, Policy
from knowledgepulse_worker.scoring import rescore_all
from knowledgepulse_worker.tools.common.scored_records import read_scored_record
from knowledgepulse_worker.tools.demo.processes import LOOPBACK, free_ports, start
from support.streams import Message, headers_of, score_of
from support.tools import tool

pytestmark = pytest.mark.integration

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/worker.json").read_bytes())
OTHERS = "Beside the workers: assemble, evaluations, contributions"
"""The row of the panels of other processes, which is the last."""
PANELS = [
    panel
    for panel in takewhile(lambda panel: panel["title"] != OTHERS, DASHBOARD["panels"])
    if panel["type"] != "row"
]
ANNOTATIONS = DASHBOARD["annotations"]["list"]
UNSCORABLE = {"not_json": b"{", "invalid_trace": b"{}", "empty": None}
NO_DATA_IS_RIGHT = {
    "Policy reload failed: {{instance}} keeps the policy that it has",
    "Drift from the reference: {{domain}}: {{dimension}}",
    "Disturbances: seconds waited for {{request}} {{error}}",
    "Thresholds and shares: ",  # whether a promise holds, of which there is none
}
PROFILES = tuple(Policy().profiles)
SHADOW = {"threshold": 0.35, "domains": {"code": {"threshold": 0.6}}}
LEARNED = {
    "share": 0.2,
    "facts_version": 1,
    "intercept": 0.1,
    "terms": {"steps": {"mean": 3, "deviation": 1, "weight": 0.4, "clip": 3}},
}
AGENT, FRAMEWORK = "kp:agent:swe-agent", "tau-bench"

# Seconds: between scrapes; between a panel's points; more than the test takes; to wait for something.
SCRAPE, STEP, WHOLE, LIMIT = 1, 4, 600, 120


class Prometheus:
    """A Prometheus server that scrapes one worker every second, with the deployed rules."""

    def __init__(self, url, session):
        self._url, self._session = url, session

    async def get(self, path, **parameters):
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        return answer["data"]

    async def instant(self, expr, at=None):
        """Return the labels and values of an expression's results."""
        time = {} if at is None else {"time": at}
        result = (await self.get("query", query=expr, **time))["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    async def holds(self, expr):
        """Wait until an expression has a result."""
        async with asyncio.timeout(LIMIT):
            while not await self.instant(expr):
                await asyncio.sleep(0.1)


@asynccontextmanager
async def scraping(worker, folder):
    """Start Prometheus with compose's configuration, except for the worker's address and the interval."""
    port = free_ports(1)[0]
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_bytes())
    (job,) = config["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [worker.url.removeprefix("http://")]}]
    config["global"] = dict.fromkeys(
        ("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{SCRAPE}s"
    )
    for name in config["rule_files"]:
        rules = yaml.safe_load((DEPLOY / "prometheus" / name).read_bytes())
        for group in rules["groups"]:
            group.pop("interval", None)
        (folder / name).write_text(yaml.safe_dump(rules))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--enable-feature=exemplar-storage",
    ]
    url = f"http://{LOOPBACK}:{port}"
    with ExitStack() as stack:
        process = start(stack, command, folder / "prometheus.log")
        async with aiohttp.ClientSession() as session, asyncio.timeout(LIMIT):
            while not await is_ready(session, url):
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                await asyncio.sleep(0.1)
        async with aiohttp.ClientSession() as session:
            yield Prometheus(url, session)


async def is_ready(session, url):
    try:
        async with session.get(f"{url}/-/ready") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


def filled(expr, interval, rates_over, domain=".*"):
    """Return a query with its variables substituted, as Grafana does: seconds and selected domains."""
    variables = {
        "$__rate_interval": f"{rates_over}s",
        "$__interval": f"{interval}s",
        "$__range": f"{WHOLE}s",
        "$domain": domain,
        'group="$group"': 'group=~".+"',  # there is one
        "$instance": ".*",
    }
    for name, value in variables.items():
        expr = expr.replace(name, value)
    return expr


def queries():
    """Yield every query of panels and annotations: title, legend, expression, and whether it is instant."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target.get("legendFormat", ""), target["expr"], target.get("instant", False)
    for annotation in ANNOTATIONS:
        yield annotation["name"], annotation["textFormat"], annotation["target"]["expr"], False


def named(legend, labels):
    """Return Grafana's name of a result."""
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend or ", ".join(labels.values())


async def has_data(prometheus, expr, instant, at):
    """Return whether the panel would show data now."""
    sent = filled(expr, STEP, STEP + SCRAPE)
    if instant:
        return any(math.isfinite(value) for _, value in await prometheus.instant(sent, at))
    data = await prometheus.get("query_range", query=sent, start=at - 10 * STEP, end=at, step=STEP)
    return any(math.isfinite(float(value)) for series in data["result"] for _, value in series["values"])


async def test_every_dashboard_query_matches_the_output_topics(make_stream, real_traces, tmp_path):
    stream = await make_stream(
        4,
        policy={
            "threshold": 0.4,
            "domains": {
                "code": {"threshold": 0.5, "learned": LEARNED},
                "customer_service": {"share": 0.2},
            },
        },
        shadow=SHADOW,
        fleet={"agent_ids": [AGENT], "frameworks": [FRAMEWORK]},
        limits={"budget": 60.0},  # no alert is to fire, however slow the machine
    )
    values = [*real_traces, *UNSCORABLE.values()]
    async with stream.worker() as worker, scraping(worker, tmp_path) as prometheus:
        await worker.owns(4)
        await prometheus.holds('kp_partitions{state="owned"} == 4')
        raw = await stream.publish(
            Message(value, b"%d" % number, partition=number % 4) for number, value in enumerate(values)
        )
        outputs = await stream.outputs(worker, raw)
        await prometheus.holds(f"sum(kp_traces_total) == {len(raw)} and sum(kp_consumer_lag_records) == 0")
        await prometheus.holds("count(kp_last_commit_timestamp_seconds) == 4")
        # Over all that there is, from zero at the first scrape to the moment of the last, rates are exact.
        ((_, at),) = await prometheus.instant("max(timestamp(kp_build_info))")

        shown = defaultdict(dict)
        silent = set()
        for title, legend, expr, instant in queries():
            if not await has_data(prometheus, expr, instant, at):
                silent.add(f"{title}: {legend}")
            for labels, value in await prometheus.instant(filled(expr, WHOLE, WHOLE), at):
                shown[title][named(legend, labels)] = value
        heatmap = next(expr for title, _, expr, _ in queries() if title == "Quality scores")
        of_code = await prometheus.instant(filled(heatmap, WHOLE, WHOLE, domain="code"), at)
        domains = await prometheus.get("label/domain/values", **{"match[]": "kp_quality_score_count"})
        exemplars = await prometheus.get(
            "query_exemplars", query="kp_scoring_seconds_bucket", start=at - WHOLE, end=at
        )
        rules = [rule for group in (await prometheus.get("rules"))["groups"] for rule in group["rules"]]
    print(*(f"{title}: {values}" for title, values in shown.items()), sep="\n")

    contributed, rejected, buried = (
        [output for output in outputs if output.topic == topic]
        for topic in (
            stream.settings.topics.contribute,
            stream.settings.topics.rejected,
            stream.settings.topics.dead_letter,
        )
    )
    scores = [score_of(output) for output in (*contributed, *rejected)]
    of_domain = Counter(score["domain"] for score in scores)
    contributed_of = Counter(score_of(output)["domain"] for output in contributed)
    assert len(contributed) + len(rejected) + len(buried) == len(outputs) == len(raw)
    assert min(len(contributed), len(rejected), of_domain["code"]) > 0

    assert silent == NO_DATA_IS_RIGHT
    assert {rule["name"]: rule for rule in rules if rule["health"] != "ok"} == {}
    assert counted(shown["Outcomes"]) == {
        "contribute": len(contributed),
        "rejected": len(rejected),
        "dead_letter": len(buried),
    }
    assert counted(shown["Records a second"]) == {"": len(raw)}
    assert counted(shown["Dead letters"]) == {
        **dict.fromkeys((*REASONS, "skipped"), 0),
        **{f"not redacted: {reason}": 0 for reason in REDACTION_REASONS},
        **dict.fromkeys(UNSCORABLE, 1),
        **{f"value: {form}": 1 for form in ("json", "malformed")},
    }
    assert shown["Contributed"] == {"": pytest.approx(len(contributed) / len(scores))}
    assert shown["Contribute ratio"] == pytest.approx(
        {
            domain: contributed_of[domain] / of_domain[domain] if of_domain[domain] else math.nan
            for domain in PROFILES
        }
        | {"customer_service, policy": 0.2},
        nan_ok=True,
    )
    assert up_to_each_boundary(shown["Quality scores"].items()) == cumulated(scores)
    assert up_to_each_boundary((labels["le"], value) for labels, value in of_code) == cumulated(
        [score for score in scores if score["domain"] == "code"]
    )
    assert shown["The four dimensions"] == pytest.approx(
        {dimension: fmean(score[dimension] for score in scores) for dimension in DIMENSIONS}
    )
    assert shown["Dimensions by domain"] == pytest.approx(
        {
            f"{domain}: {dimension}": mean_of(
                score[dimension] for score in scores if score["domain"] == domain
            )
            for domain in PROFILES
            for dimension in DIMENSIONS
        },
        nan_ok=True,
    )
    assert shown["Learned value by domain"] == pytest.approx(
        {"code": fmean(score["learned"] for score in scores if score["domain"] == "code")}
    )
    rescored = rescore_all(map(read_scored_record, (*contributed, *rejected)), Policy.model_validate(SHADOW))
    flips = Counter(flip.after.decision for flip in rescored.flips)
    assert min(flips["contribute"], flips["rejected"]) > 0
    assert counted(shown["Flips"]) == {"gained": flips["contribute"], "lost": flips["rejected"]}
    assert shown["Contribute ratio of the shadow"] == pytest.approx(
        {
            "policy": len(contributed) / len(scores),
            "shadow": (len(contributed) + flips["contribute"] - flips["rejected"]) / len(scores),
        }
    )
    assert shown["Shadow policies"] == {rescored.policy.digest: 1}
    for member, listed, title in (("agent_id", AGENT, "agent"), ("framework", FRAMEWORK, "framework")):
        of_all, of_contributed = (
            Counter(named_or_other(record, member, listed) for record in records)
            for records in ((*contributed, *rejected), contributed)
        )
        assert counted(shown[f"Traces by {title}"]) == of_all
        assert shown[f"Contribute ratio by {title}"] == pytest.approx(
            {name: of_contributed[name] / of_all[name] for name in (listed, "other")}
        )
    assert shown["Novelty cache"] == Counter(f"partition {o.partition}" for o in (*contributed, *rejected))
    partitions = [f"partition {number}" for number in range(4)]
    held_back = [f"{partition}, open transactions" for partition in partitions]
    assert shown["Lag"] == dict.fromkeys((*partitions, *held_back), 0)
    assert shown["Policies"] == shown["Policy history"] == {headers_of(contributed[0])["kp-policy"]: 1}
    rules = {"code": 0.5, "customer_service": 0.2}  # of each domain the last query that has it
    assert shown["Thresholds and shares"] == dict.fromkeys(PROFILES, 0.4) | rules
    assert set(domains) == set(PROFILES)
    for title, value in {
        "Workers": 1,
        "Alerts firing": 0,
        "Waiting records": 0,
        "Partitions without a worker": 0,
    }.items():
        assert shown[title] == {"": value}, title
    traces = {json.loads(line)["id"] for line in real_traces}
    dots = {dot["labels"]["trace_id"] for series in exemplars for dot in series["exemplars"]}
    assert dots
    assert dots <= traces


def mean_of(values):
    values = list(values)
    return fmean(values) if values else math.nan


def named_or_other(record, member, listed):
    name = json.loads(record.value)["metadata"].get(member)
    return name if name == listed else "other"


def counted(rates):
    """Return the sum of rates over the whole time range."""
    return {name: round(rate * WHOLE) for name, rate in rates.items()}


def up_to_each_boundary(buckets):
    return {float(le): round(count) for le, count in buckets}


def cumulated(scores):
    """Return the cumulative number of scores by bucket boundary."""
    boundaries = [*(step / 20 for step in range(1, 21)), math.inf]
    return {boundary: sum(score["score"] <= boundary for score in scores) for boundary in boundaries}

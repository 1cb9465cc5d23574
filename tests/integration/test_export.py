"""Exports of real topics to datasets."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet
from pyarrow.fs import FileSystem

from knowledgepulse_curator.export import dataset_store
from knowledgepulse_curator.export.manifest import PLAN
from knowledgepulse_worker.cli.entry import main
from knowledgepulse_worker.records.decode import with_quality_score
from support.commands import kp_worker
from support.s3 import s3_server
from support.streams import Message, ended, headers_of, source_of

pytestmark = pytest.mark.integration

ALL_PASS = {"policy": {"threshold": 0.0}}
KILLS = 4


def tree(folder):
    """Return the dataset's files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def rows(folder):
    """Return the rows by trace id; each has its split."""
    found = {}
    for path in sorted(Path(folder).glob("data/*/**/*.parquet")):
        for row in parquet.read_table(path).to_pylist():
            assert row["id"] not in found
            found[row["id"]] = row | {"split": path.relative_to(folder).parts[1]}
    return found


@pytest.fixture
def export(config):
    async def run(stream, folder, *options, settings=None):
        place = config(settings or stream.settings)
        return await kp_worker("export", str(folder), "--not-cleaned", "--config", place, *options)

    return run


async def contributed(stream, lines):
    """Let a worker score lines; return the records of `contribute`."""
    raw = await stream.publish(Message(line, str(n).encode(), n % 2) for n, line in enumerate(lines))
    await stream.scored(raw)
    return await stream.read(stream.settings.topics.contribute)


async def write(stream, topic, value, headers):
    await stream.write(topic, value, key=b"key", timestamp_ms=1, headers=[*headers])


def files(folder):
    """Yield the files below a folder, which change meanwhile."""
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


@pytest.mark.timeout(600)  # eight processes, one after another
async def test_an_export_that_is_killed_again_and_again_ends_as_one_that_is_not(
    make_stream, real_traces, export, config, tmp_path
):
    stream = await make_stream(2, **ALL_PASS)
    outputs = await contributed(stream, real_traces[:100])
    repeat = outputs[0]
    await write(stream, repeat.topic, repeat.value, repeat.headers)
    options = ("--also", "messages", "--also", "atif", "--keep-tail")

    status, _, errors = await export(stream, tmp_path / "whole", *options)
    assert (status, errors) == (
        0,
        "export 1: 100 of 101 records exported; 1 left out: repeat of an earlier record\n",
    )
    folder = tmp_path / "killed"
    seen = {folder / ".lock"}

    async def gets_on(program):
        while len(new := {*files(folder)} - seen) < 3 and program.process.returncode is None:
            await asyncio.sleep(0.0005)
        seen.update(new)

    command = " ".join(["export", str(folder), "--not-cleaned", *options])
    assert await stream.killed(*[gets_on] * KILLS, ended, command=command) >= 3
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    exported = rows(tmp_path / "whole")
    for record in outputs:
        row = exported[json.loads(record.value)["id"]]
        assert (row["trace"].encode(), row["source"]) == (record.value, headers_of(record)["kp-source"])
    assert (await export(stream, tmp_path / "whole", *options, "--check"))[:2] == (0, "")

    # Later traces: the earlier files are as they were, and no trace changes its split.
    before = tree(tmp_path / "whole")
    await contributed(stream, real_traces[100:])
    for folder in ("whole", "killed"):
        assert (await export(stream, tmp_path / folder, *options))[0] == 0
    after = tree(tmp_path / "whole")
    assert after == tree(tmp_path / "killed")
    kept = {name: content for name, content in before.items() if Path(name).suffix in (".parquet", ".jsonl")}
    assert kept.items() <= after.items()
    grown = rows(tmp_path / "whole")
    assert len(grown) == len({json.loads(line)["id"] for line in real_traces})
    assert {name: grown[name]["split"] for name in exported} == {
        name: row["split"] for name, row in exported.items()
    }
    assert (await export(stream, tmp_path / "whole", *options))[2] == "no new records to export\n"


async def test_what_may_not_leave_does_not_and_is_counted(make_stream, real_traces, export, tmp_path):
    stream = await make_stream(2, **ALL_PASS)
    outputs = await contributed(stream, real_traces[:6])
    guarded = stream.configured(policy={"contribute_visibility": ["org"]})
    status, _, errors = await export(stream, tmp_path / "guarded", "--for", "network", settings=guarded)
    assert status == 0
    told = "export 1: 0 of 6 records exported; 6 left out: its visibility does not permit export: network ("
    assert told in errors
    assert rows(tmp_path / "guarded") == {}

    # The redacted copies, where there are any: one of them could not be made.
    redacted = f"{stream.settings.topics.raw}-redacted"
    await stream.recreate_topic(redacted, 1)
    settings = stream.configured(
        topics={"redacted": redacted}, redaction={"function": "support.redact:redact"}
    )
    for number, record in enumerate(outputs[:3]):
        ours = [(name, value) for name, value in record.headers if name in ("kp-source", "kp-policy")]
        trace = json.loads(record.value)
        copy = json.dumps(trace | {"task": {"objective": f"[gone] {number}"}}).encode()
        if number == 2:
            copy, ours = None, [*ours, ("kp-redaction-error", b"raised")]
        await write(stream, redacted, copy, ours)
    status, _, errors = await export(stream, tmp_path / "redacted", settings=settings)
    assert errors == (
        "export 1: 2 of 3 records exported; 1 left out: no redacted copy could be made: raised "
        "(`--unredacted` reads the traces on `contribute`)\n"
    )
    assert {row["objective"] for row in rows(tmp_path / "redacted").values()} == {"[gone] 0", "[gone] 1"}
    assert "The traces are redacted copies" in " ".join((tmp_path / "redacted/README.md").read_text().split())


async def test_what_does_not_fit_the_topic_is_refused_and_what_was_deleted_is_counted(
    make_stream, real_traces, export, tmp_path
):
    stream = await make_stream(2, **ALL_PASS)
    topic = stream.settings.topics.contribute
    outputs = await contributed(stream, real_traces[:10])
    assert (await export(stream, tmp_path / "set"))[0] == 0
    before = tree(tmp_path / "set")

    with (tmp_path / "set/.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, _, errors = await export(stream, tmp_path / "set")
        assert (status, errors) == (
            1,
            f"Error: {tmp_path / 'set'}: another export is writing to it; wait until it has ended\n",
        )

    # Retention deletes what was never exported.
    for record in outputs[:4]:
        headers = [(name, b"raw-traces/0/9%d" % record.offset if name == "kp-source" else value)
                   for name, value in record.headers]  # fmt: skip
        await write(stream, topic, record.value, headers)
    ends = {record.partition: record.offset for record in await stream.read(topic)}
    await stream.delete_records(topic, 0, before=ends[0])
    status, _, errors = await export(stream, tmp_path / "set")
    assert status == 0
    assert f"{topic}/0: 3 offsets deleted since the last export" in errors
    assert "3 offsets had been deleted" in " ".join((tmp_path / "set/README.md").read_text().split())
    assert before.keys() < tree(tmp_path / "set").keys()

    await stream.recreate_topic(topic, 2)
    status, _, errors = await export(stream, tmp_path / "set")
    assert status == 1
    assert f"{tmp_path / 'set'}: contains a different dataset: {topic} (id) was" in errors
    assert PLAN not in tree(tmp_path / "set")


async def test_another_policy_is_applied_exactly(make_stream, real_traces, export, tmp_path):
    stream = await make_stream(2, policy={"threshold": 0.5})
    await contributed(stream, real_traces[:40])
    (tmp_path / "policy.toml").write_text("[policy]\nthreshold = 0.45\n")

    status, _, errors = await export(stream, tmp_path / "set", "--policy", str(tmp_path / "policy.toml"))

    topics = stream.settings.topics
    scored = await stream.read(topics.contribute, topics.rejected)
    wanted = {
        source_of(record) for record in scored if json.loads(headers_of(record)["kp-score"])["score"] >= 0.45
    }
    found = {tuple(map(int, row["source"].split("/")[1:])) for row in rows(tmp_path / "set").values()}
    assert (status, found) == (0, wanted), errors
    assert {row["threshold"] for row in rows(tmp_path / "set").values()} == {0.45}


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Return the URL of a folder in a bucket of a real S3 server, and where that keeps it."""
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required"),  # S3Proxy knows no others
    ):
        monkeypatch.setenv(name, value)
    (tmp_path / "s3/bucket").mkdir(parents=True)
    with s3_server(tmp_path / "s3", "key", "secret") as query:
        yield f"s3://bucket/set?{query}", tmp_path / "s3/bucket/set"


def test_a_bucket_gets_the_same_dataset_however_its_credentials_end(
    bucket, real_traces, tmp_path, monkeypatch
):
    url, folder = bucket
    scored = tmp_path / "scored.jsonl"
    scored.write_bytes(b"".join(with_quality_score(line, 0.5) + b"\n" for line in real_traces))
    monkeypatch.setattr(dataset_store, "RENEWAL_INTERVAL", 0.02)
    monkeypatch.setattr(dataset_store, "RENEWAL_LIMIT", 1.0)

    def export(place):
        options = (str(scored), "--not-cleaned", "--embedder", "lexical", "--also", "messages", "--keep-tail")
        result = CliRunner().invoke(main, ["export", place, *options])
        *_, last = result.stderr.splitlines(keepends=True)  # after 10 s, others tell the progress
        return last + str(result.exception if result.exit_code else "")

    assert export(str(tmp_path / "local")).endswith("export 1: 154 of 154 records exported\n")

    # The first upload that is refused is a data file's.
    publish = dataset_store.Store.publish
    with monkeypatch.context() as ended:

        def refused(self, path):
            if path.startswith("messages/"):
                ended.setenv("AWS_SECRET_ACCESS_KEY", "of another day")
                ended.setattr(self, "_files", FileSystem.from_uri(url)[0])
            publish(self, path)

        ended.setattr(dataset_store.Store, "publish", refused)
        said = export(url)
    assert "s3://bucket/set?***: cannot be written: " in said
    assert "SIGNATURE_DOES_NOT_MATCH" in said
    assert not (folder / "manifest.json").exists()

    # Its claim is left, and is not renewed any more.
    assert list(folder.glob(".lock/*"))
    assert export(url).endswith("export 1: 154 of 154 records exported\n")
    assert objects(folder) == tree(tmp_path / "local")

    with dataset_store.open_store(url) as held:
        assert "s3://bucket/set?***: another export is writing to it: " in export(url)
        monkeypatch.setattr(dataset_store, "RENEWAL_INTERVAL", 3600.0)
        with pytest.raises(OSError, match="another export took over"):
            _take_over(folder, held)
    assert export(url) == "no new records to export\n"


def _take_over(folder, held):
    """Delete a claim; a renewal that was under way may write it once more."""
    for _ in range(100):
        for claim in folder.glob(".lock/*"):
            claim.unlink(missing_ok=True)
        held.require_claim()


def objects(folder):
    return {name: content for name, content in tree(folder).items() if not name.startswith(".lock/")}

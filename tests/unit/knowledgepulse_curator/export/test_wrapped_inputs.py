"""What leaves of a wrapped trace is the trace alone: the scan and the cleaner see nothing else."""

import json

from knowledgepulse_curator.export.export_inputs import TopicInputs
from knowledgepulse_curator.export.secret_scan import has_secret
from knowledgepulse_kafka.records import RawRecord
from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.policy import Policy
from knowledgepulse_worker.records.ledger_records import Entry
from knowledgepulse_worker.records.outputs import Outputs
from knowledgepulse_worker.records.score_header import encode_score
from knowledgepulse_worker.records.wrapping import ValueRead
from knowledgepulse_worker.scoring import Scorer
from knowledgepulse_worker.settings import RecordSettings, TopicSettings
from knowledgepulse_worker.tools.common.egress_rule import is_clean_json
from support.letters import consumed
from support.wrapped import plain_trace
from support.written import Written

SECRET = "AKIA" + "ABCDEFGHIJKLMNOP"


async def test_an_export_reads_the_trace_alone_and_the_secret_of_an_envelope_does_not_leave():
    trace = plain_trace()
    value = json.dumps({"subject": SECRET, "before": {"payload": SECRET}, "data": json.loads(trace)}).encode()
    topics = TopicSettings()
    record = RawRecord(topics.raw, 0, 0, 1_000, None, value, ())
    score = Scorer().evaluate(ReasoningTrace.model_validate_json(trace))
    entry = Entry(0, 1_000, decision="contribute", score=encode_score(score), policy=Policy().digest)
    builder = Outputs(
        topics, dict.fromkeys(topics.model_dump().values(), 1), RecordSettings(unwrap=["/data"])
    )
    output = builder.build(record, entry, ValueRead(steps=("/data",)))
    reader = Written("contribute", records=[consumed(output, partition=0, offset=0)]).reader

    inputs = TopicInputs(reader, lambda *_: None, ranges={"contribute/0": range(1)})
    (read,) = [record async for record in inputs.read("contribute/0", range(1))]

    assert SECRET in output.value.decode()
    assert has_secret(output.value)
    assert not has_secret(read.value)
    assert is_clean_json(read.value)
    assert json.loads(read.value)["metadata"].pop("quality_score") == score.quality_score
    assert [name for name, _ in read.headers] == ["kp-source", "kp-score", "kp-policy"]

"""The SDK's cleaning: equal to it on the cases of its ``pii-cleaner.test.ts``, and nothing planted stays."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given

from knowledgepulse_schemas import ReasoningTrace
from knowledgepulse_worker.redaction.sdk import clean, clean_text
from knowledgepulse_worker.tools.common.egress_rule import is_clean_json
from support.planted import JWT, KEY, PLANTED, planted_traces
from support.traces import made

CASES = [
    (f"My key is {KEY}", "My key is [REDACTED:api_key]"),
    (f"Token: ghp_{'A' * 36}", "Token: [REDACTED:api_key]"),
    (f"OAuth: gho_{'B' * 36}", "OAuth: [REDACTED:api_key]"),
    (f"App: ghs_{'C' * 36}", "App: [REDACTED:api_key]"),
    ("AWS key: AKIAIOSFODNN7EXAMPLE", "AWS key: [REDACTED:api_key]"),
    ("API key: kp_a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6", "API key: [REDACTED:api_key]"),
    ("Slack: xoxb-fake-token-for-testing", "Slack: [REDACTED:api_key]"),
    ("Token: xoxp-123-456-789-abcdef", "Token: [REDACTED:api_key]"),
    ("password=mysecretpass123", "password=[REDACTED:password]"),
    ("secret=topsecretvalue", "secret=[REDACTED:password]"),
    ("token=abc123def456", "token=[REDACTED:password]"),
    ("api_key=myapikey123", "api_key=[REDACTED:password]"),
    ('password: "hunter2"', "password: [REDACTED:password]"),
    ("DB_URL=postgresql://admin:secret@db.example.com:5432/mydb", "DB_URL=[REDACTED:connection_string]"),
    ("REDIS_URL=redis://:mypassword@redis.example.com:6379/0", "REDIS_URL=[REDACTED:connection_string]"),
    ("MONGO=mongodb+srv://user:pass@cluster.mongodb.net/db", "MONGO=[REDACTED:connection_string]"),
    ("postgresql://user:password=test@host:5432/db", "[REDACTED:connection_string]"),
    (f"Authorization: Bearer {JWT}", "Authorization: Bearer [REDACTED:bearer_token]"),
    ("Authorization: Bearer kp_a1b2c3d4e5f6a7b8", "Authorization: Bearer [REDACTED:api_key]"),
    ("Contact: alice@example.com for details", "Contact: [REDACTED:email] for details"),
    ("From: a@b.com to c@d.org", "From: [REDACTED:email] to [REDACTED:email]"),
    ("Call me at (555) 123-4567", "Call me at [REDACTED:phone]"),
    ("Phone: 555-234-5678", "Phone: [REDACTED:phone]"),
    ("WhatsApp: +441234567890", "WhatsApp: [REDACTED:phone]"),
    ("From 10.0.0.1 to 10.0.0.2", "From [REDACTED:ip] to [REDACTED:ip]"),
    ("Found at /home/alice/documents/secret.txt", "Found at [REDACTED:filepath]"),
    ("Config at /Users/bob/.config/app.json", "Config at [REDACTED:filepath]"),
    ("File: C:\\Users\\charlie\\Desktop\\report.xlsx", "File: [REDACTED:filepath]"),
    ("This is perfectly clean text with no PII whatsoever.", None),
    ("# Title\n\n- item 1\n- item 2\n\n```code block```", None),
    ("", None),
    # As the SDK, unlike Python: spaces of JavaScript, ASCII digits and letters, characters of two units.
    ("token:\ufeff\u00a0hunter2", "token:\ufeff\u00a0[REDACTED:password]"),
    ("token:\U0001f511 x", "token:[REDACTED:password] x"),
    ("pa\u017f\u017fword=hunter2 \u0661\u0660.\u0661.\u0661.\u0661", None),
    # The run that no address ends is read once; what follows an address may begin another.
    ("a@b.co1@c.de _@x", "[REDACTED:email][REDACTED:email] _@x"),
]


@pytest.mark.parametrize(("text", "cleaned"), CASES)
def test_texts_are_cleaned_as_by_the_sdk(text, cleaned):
    assert clean_text(text) == clean_text(text, "federated") == (text if cleaned is None else cleaned)


@pytest.mark.parametrize(
    "kept", ["alice@example.com", "192.168.1.1", "(555) 123-4567", "/home/alice/file.txt"]
)
def test_private_texts_keep_identifiers_and_lose_secrets(kept):
    assert clean_text(f"{kept} {KEY} password=x1", "private") == (
        f"{kept} [REDACTED:api_key] password=[REDACTED:password]"
    )


@given(trace=planted_traces())
def test_nothing_planted_in_any_text_of_a_trace_stays(trace):
    cleaned = clean(copy.deepcopy(trace))
    text = json.dumps(cleaned, ensure_ascii=False).replace("\\\\", "\\")
    assert not [secret for secret in PLANTED if secret in text]
    ReasoningTrace.model_validate(cleaned)
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize(
    ("quoted", "cleaned"),
    [
        ('{"db_password": "hun\\"ter2", "x": 1}', '{"db_password": "[REDACTED:password]", "x": 1}'),
        ("{'Api-Key' : 12.5e3}", "{'Api-Key' : '[REDACTED:password]'}"),
        ('"password": "cut o', '"password": "[REDACTED:password]"'),
        ('{"tokens": 12, "token": null, "secret": ""}', None),
    ],
)
def test_what_a_text_quotes_of_json_is_cleaned_as_json(quoted, cleaned):
    trace = {"id": "kp:trace:1", "metadata": {"created_at": "", "privacy_level": "private"}}
    assert clean(trace | {"text": quoted})["text"] == (cleaned or quoted)


def test_what_a_member_that_names_a_secret_has_is_cleaned_if_it_has_anything():
    trace = {"id": "kp:trace:1", "metadata": {"created_at": "", "privacy_level": "private"}}
    given = {"password": "x", "api_key": 12.5, "secret": ["a", True], "token": None, "db_password": ""}
    gone = "[REDACTED:password]"

    cleaned = clean(trace | {"input": copy.deepcopy(given)})["input"]

    assert cleaned == given | {"password": gone, "api_key": gone, "secret": [gone, True]}


@pytest.mark.parametrize(
    ("text", "is_clean"),
    [("a", True), ("\\ud800", True), ("alice@example.com", False), ('b", "objective": "a', False)],
)
def test_a_member_that_stands_twice_is_not_clean(text, is_clean):
    """Whoever reads the first one reads what the cleaning did not."""
    metadata = '"metadata": {"created_at": "", "privacy_level": "aggregated"}'
    value = f'{{"id": "kp:trace:1", {metadata}, "objective": "{text}"}}'
    assert is_clean_json(value.encode()) is is_clean


def test_what_the_schema_needs_stays_whatever_it_looks_like():
    trace = made(created_at="2026-01-31T12:00:00.123456-0100")
    trace = trace.model_dump(mode="json", by_alias=True, exclude_none=True)
    trace["id"] = "kp:trace:cd123456-7890-4aaa-8aaa-aaaaaaaaaaaa"
    assert "[REDACTED:phone]" in clean_text(trace["id"] + trace["metadata"]["created_at"])
    assert clean(copy.deepcopy(trace)) == trace

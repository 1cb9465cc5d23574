"""Settings: their sources, the errors about invalid ones, and that no secret is shown."""

import json
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledgepulse_worker import errors
from knowledgepulse_worker.settings import (
    KafkaSettings,
    Settings,
    ignored_variables,
    load_policy,
    load_settings,
    render,
    sections,
)
from support.texts import TEXTS, matches

SECRET = "correct-horse-battery-staple"
SETTINGS = {
    f"{section}.{key}": field
    for section, model in sections().items()
    for key, field in model.model_fields.items()
}
"""Every setting's field, by its name."""
INVALID = [block for block in (TEXTS / "settings.txt").read_text().split("\n\n") if "→ " in block]
"""Variables and lines of worker.toml, and what is said of them."""


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch):
    for name in os.environ:
        if name.upper().startswith("KP_"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path) -> Callable[[str], Settings]:
    """A function that loads settings from a file's text."""

    def load_text(text: str) -> Settings:
        config = tmp_path / "worker.toml"
        config.write_text(text, encoding="utf-8")
        return load_settings(config)

    return load_text


@pytest.fixture
def problems_of(load, tmp_path) -> Callable[[str], list[str]]:
    """A function that loads invalid settings from the text of worker.toml, and returns the error's lines."""

    def problems(text: str = "") -> list[str]:
        with pytest.raises(errors.SettingsError) as raised:
            load(text)
        return str(raised.value).replace(f"{tmp_path}{os.sep}", "").splitlines()

    return problems


# --- where they come from


def test_the_defaults_apply_without_a_file_and_variables():
    assert load_settings().model_dump() == Settings().model_dump()
    assert load_settings().policy.profile("default").threshold == 0.75


def test_the_environment_overrides_the_file_key_by_key(load, monkeypatch):
    monkeypatch.setenv("KP_KAFKA__GROUP", "from-environment")
    monkeypatch.setenv("kp_cache__ttl", "60")

    settings = load('[kafka]\ngroup = "from-file"\nbootstrap_servers = "from-file:9092"\n[web]\nport = 7000')

    assert settings.kafka.group == "from-environment"
    assert settings.kafka.bootstrap_servers == "from-file:9092"
    assert settings.kafka.request_timeout == 30
    assert settings.web.port == 7000
    assert settings.cache.ttl == 60


def test_a_domain_of_the_policy_can_be_set_by_variables(load, monkeypatch):
    monkeypatch.setenv("KP_POLICY__DOMAINS__CUSTOMER_SERVICE__THRESHOLD", "0.6")
    monkeypatch.setenv("KP_POLICY__DOMAINS__LEGAL__WEIGHTS__NOVELTY", "0.75")
    weights = "[policy.domains.legal.weights]\ncomplexity = 0.25\nnovelty = 0\ntool_diversity = 0\n"

    policy = load(weights + "outcome_confidence = 0\n").policy

    assert policy.profile("customer_service").threshold == 0.6
    assert policy.profile("legal").weights.novelty == 0.75
    assert policy.profile("legal").weights.complexity == 0.25


def test_visibilities_can_be_set_by_a_variable_of_json(monkeypatch):
    monkeypatch.setenv("KP_POLICY__CONTRIBUTE_VISIBILITY", '["network", "org"]')
    assert load_settings().policy.contribute_visibility == ("org", "network")


def test_a_shadow_policy_is_set_like_the_policy_and_inherits_nothing(load, monkeypatch):
    monkeypatch.setenv("KP_SHADOW__DOMAINS__CODE__THRESHOLD", "0.6")

    settings = load("[policy]\nthreshold = 0.4\n[shadow.domains.legal]\nthreshold = 0.9")

    assert settings.shadow.profile("code").threshold == 0.6
    assert settings.shadow.profile("legal").threshold == 0.9
    assert settings.shadow.profile("default").threshold == 0.75
    assert load("[policy]\nthreshold = 0.4").shadow is not None
    monkeypatch.delenv("KP_SHADOW__DOMAINS__CODE__THRESHOLD")
    assert load("[policy]\nthreshold = 0.4").shadow is None
    assert load("[shadow]").shadow == Settings().policy


def test_a_whole_section_can_be_one_variable_of_json(monkeypatch):
    monkeypatch.setenv("KP_TOPICS", '{"raw": "traces"}')

    assert load_settings().topics.raw == "traces"


# --- what is said about wrong ones


def test_all_problems_are_reported_at_once_with_the_value_and_what_is_accepted(problems_of, monkeypatch):
    monkeypatch.setenv("KP_LOG__LEVEL", "loud")

    problems = problems_of(
        '[web]\nport = 0\n[topics]\nraw = ""\n[kafka]\ngroup = 5\n[policy]\nthreshold = "x"'
    )

    lines = re.compile(r"(.+): got (.+?); .*should .+")
    assert sorted(lines.fullmatch(problem).groups() for problem in problems) == [
        ("KP_LOG__LEVEL", "'loud'"),
        ("worker.toml: kafka.group", "5"),
        ("worker.toml: policy.threshold", "'x'"),
        ("worker.toml: topics.raw", "''"),
        ("worker.toml: web.port", "0"),
    ]
    assert any("should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'" in problem for problem in problems)


@pytest.mark.parametrize("block", INVALID)
def test_what_is_said_of_invalid_settings(problems_of, monkeypatch, block):
    given, *told = block.split("→ ")
    variable = re.compile(r"^(KP_\w+)=(.*)\n", re.IGNORECASE | re.MULTILINE)
    for name, value in variable.findall(given):
        monkeypatch.setenv(name, value)

    said = "\n".join(problems_of(variable.sub("", given)))

    assert matches("".join(told).rstrip(), said), said


@pytest.mark.parametrize("value", ["true", "false", '"0.5"', "'1'"])
@pytest.mark.parametrize(
    "setting",
    [
        "policy.threshold",
        "policy.share_window",
        "policy.domains.code.min_novelty",
        "shadow.domains.code.weights.novelty",
        "cache.ttl",
        "limits.in_flight_records",
        "kafka.request_timeout",
    ],
)
def test_a_truth_value_or_a_text_is_no_number(problems_of, setting, value):
    """`threshold = true` was a threshold of 1, with which nothing passes."""
    got = value.replace("'", '"')
    line = f"worker.toml: {setting}: got {got}; should be a number, without quotation marks"
    assert line in problems_of(f"{setting} = {value}")


def test_a_list_of_numbers_has_no_text(problems_of):
    table = "policy.domains.code.learned.fitted"
    (line,) = [
        problem for problem in problems_of(f'{table}.auc = [0.5, "0.6", 0.7]') if "quotation" in problem
    ]
    assert line.startswith(f'worker.toml: {table}.auc: got "0.6"')


def test_a_number_of_the_environment_is_a_text(load, monkeypatch):
    monkeypatch.setenv("KP_POLICY__THRESHOLD", "0.5")
    assert load("policy.min_novelty = 0").policy.threshold == 0.5


FLOATS = [name for name, field in SETTINGS.items() if isinstance(field.default, float) or name == "cache.ttl"]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
@pytest.mark.parametrize("name", FLOATS)
def test_no_setting_accepts_a_non_finite_number(problems_of, name, value):
    section, key = name.split(".")
    assert any(f"{name}: got {value}" in line for line in problems_of(f"[{section}]\n{key} = {value}"))


@pytest.mark.parametrize(
    "servers",
    ["", "kafka", "kafka:0", "kafka:99999", "kafka:x", "kafka://kafka:9092", "a:1,", "::1:9092", "a b:1"],
)
def test_an_invalid_server_list_is_reported(problems_of, servers):
    (problem,) = problems_of(f'[kafka]\nbootstrap_servers = "{servers}"')
    setting = "worker.toml: kafka.bootstrap_servers"
    assert problem.startswith(f"{setting}: got {servers!r}; should be host:port, several with")


@pytest.mark.parametrize("name", ["a:b", "a/b", "Größe", "a" * 250, ".", "..", "a b", "a\n"])
@pytest.mark.parametrize("setting", ["topics.raw", "topics.evaluations", "assemble.spans", "assemble.late"])
def test_a_name_that_kafka_refuses_for_a_topic_is_reported(problems_of, setting, name):
    section, key = setting.split(".")
    (problem,) = problems_of(f"[{section}]\n{key} = {json.dumps(name)}")
    assert problem.startswith(
        f"worker.toml: {setting}: got {name!r}; should be 1 to 249 ASCII letters, digits, '.', '_'"
    )


def test_the_message_is_bounded_whatever_a_file_has(problems_of):
    """A hundred thousand unknown keys made a message of 12 MB."""
    keys = [f"k{number} = 1" for number in range(1000)]

    problems = problems_of("\n".join(["[cache]", f'ttl = "{"1" * 10_000}"', '"\\u001b]0;x" = 1', *keys]))

    assert len(problems) == 21
    assert problems[-1] == "and 982 other problems"
    assert max(map(len, problems)) < 1100
    assert not any("\x1b" in problem for problem in problems)


@pytest.mark.parametrize("name", ["KP_NOSUCH__KEY", "kp_nosuch__key", "KP___"])
def test_a_variable_of_an_unknown_section_is_reported_with_the_other_problems(problems_of, monkeypatch, name):
    monkeypatch.setenv(name, "x")

    problems = problems_of("[web]\nport = 0")

    assert [line.split(": ")[0] for line in problems] == [name, "worker.toml"]
    with pytest.raises(errors.SettingsError, match=f"{name}: no such setting; variables are KP_<SECTION>"):
        load_settings()


@pytest.mark.parametrize("name", ["KP_WORKER_SERVICE_HOST", "KP_LOG_LEVEL", "kp_nosuch", "KP_"])
def test_a_variable_without_the_separator_is_ignored(monkeypatch, name):
    """Kubernetes sets KP_WORKER_SERVICE_HOST where there is a Service named kp-worker."""
    monkeypatch.setenv(name, "x")

    assert ignored_variables() == [name]
    assert load_settings() == Settings()


def test_a_variable_that_is_nested_too_deeply_is_reported(problems_of, monkeypatch):
    monkeypatch.setenv("KP_POLICY__DOMAINS", "[" * 100_000)

    assert [line.split(":")[0] for line in problems_of()] == ["KP_POLICY__DOMAINS"]


@pytest.mark.parametrize(
    "name", ["KP_KAFKA", "KP_POLICY__DOMAINS", "KP_SHADOW", "KP_SHADOW__DOMAINS", "KP_FLEET__AGENT_IDS"]
)
def test_a_variable_that_is_not_json_is_reported_with_the_other_problems(problems_of, monkeypatch, name):
    monkeypatch.setenv(name, "{")

    assert any(name in line for line in problems_of())


def test_an_unreadable_file_is_named(tmp_path, problems_of):
    with pytest.raises(errors.SettingsError, match=r"nosuch\.toml: cannot be read: No such file"):
        load_settings(tmp_path / "nosuch.toml")
    assert "worker.toml: is not TOML: " in problems_of("[kafka")[0]


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path):
    """Some Windows editors write one."""
    config = tmp_path / "worker.toml"
    config.write_text('[kafka]\ngroup = "g"', encoding="utf-8-sig")

    assert load_settings(config).kafka.group == "g"


def test_a_key_of_hundreds_of_dots_is_named(tmp_path):
    """It is nested without a bracket, at which the parser would stop."""
    config = tmp_path / "worker.toml"
    config.write_text(f"[policy.domains]\n{'.'.join('a' * 500)} = 1\n")
    for load in (load_settings, load_policy):
        with pytest.raises(errors.SettingsError, match="keys are nested more than 100 levels deep"):
            load(config)


@pytest.mark.parametrize(
    "content",
    [b'[kafka]\ngroup = "\xff"', b"a = " + b"[" * 100_000, b"[web]\nport = " + b"9" * 5_000],
    ids=["not UTF-8", "nested too deeply", "too many digits"],
)
def test_a_file_that_cannot_be_parsed_is_named(tmp_path, content):
    config = tmp_path / "worker.toml"
    config.write_bytes(content)

    with pytest.raises(errors.SettingsError, match="is not TOML"):
        load_settings(config)


# --- secrets


@pytest.mark.parametrize(
    "text",
    [
        f'[kafka]\nsasl_pasword = "{SECRET}"',
        f'[kafka.sasl_password]\nvalue = "{SECRET}"',
        f'[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_password = "{SECRET}"',
        f'[kafka]\ngroup = ""\nsasl_password = "{SECRET}"',
        f'[[kafka]]\nsasl_password = "{SECRET}"',
        f'[kafka]\nsasl_password = "{SECRET}',
        *(f'[kafka]\n{name} = ["{SECRET}"]' for name in KafkaSettings.secrets()),
        f'[registry]\napi_key = ["{SECRET}"]',
        f'[kafka]\nbootstrap_servers = "user:{SECRET}@host:9092"',
        f'[kafka]\nbootstrap_servers = "user:{SECRET},1@host:9092"',
        f'[kafka]\nsasl_oauthbearer_token_endpoint_url = "ftp://user:{SECRET}@host/?{SECRET}"',
        f'[registry]\nurl = "http://user:{SECRET}@host"',
        f'[registry]\nurl = "http://host?key={SECRET}"',
        f'[embedding]\nbackend = "http://user:{SECRET}@host"',
    ],
)
def test_no_error_shows_a_secret(problems_of, text):
    assert not any(SECRET in line for line in problems_of(text))


@pytest.mark.parametrize("name", KafkaSettings.secrets())
def test_a_secret_can_come_from_a_file(tmp_path, name):
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert KafkaSettings(**{f"{name}_file": file}).secret(name) == SECRET


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), (b"\n", "is empty"), (b"\xff", "is not UTF-8")],
)
def test_a_file_without_a_secret_is_reported(tmp_path, content, message):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(errors.SettingsError, match=f"kafka.sasl_password_file: {file}: {message}"):
        KafkaSettings(sasl_password_file=file).secret("sasl_password")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KP_KAFKA__SASL_PASSWORD__VALUE", SECRET),
        ("KP_KAFKA__SASL_PASWORD", SECRET),
        ("KP_KAFKA", f'[{{"sasl_password": "{SECRET}"}}]'),
        ("KP_KAFKA", f'{{"sasl_password": "{SECRET}"'),
    ],
)
def test_no_error_shows_a_secret_from_the_environment(problems_of, monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    assert not any(SECRET in line for line in problems_of())


def test_the_shown_settings_have_no_secret_of_a_url(load):
    url = f"https://user:{SECRET}@host/token?key={SECRET}"
    shown = render(load(f'[kafka]\nsasl_oauthbearer_token_endpoint_url = "{url}"'))
    assert 'sasl_oauthbearer_token_endpoint_url = "https://***@host/token?***"' in shown
    assert SECRET not in shown


def test_the_registrys_key_is_a_secret_too(monkeypatch):
    monkeypatch.setenv("KP_REGISTRY__API_KEY", SECRET)
    assert "# registry.api_key is set, but omitted here" in render(load_settings())


# --- the model


@pytest.mark.parametrize(
    ("embedding", "only"),
    [
        ({}, True),
        ({"model": "/models/all-MiniLM-L6-v2/"}, True),
        ({"model": "sentence-transformers/all-MiniLM-L6-v2", "revision": "1"}, True),
        ({"model": "intfloat/multilingual-e5-small", "revision": "1"}, False),
        ({"backend": "lexical"}, False),
        ({"backend": "none"}, False),
    ],
)
def test_only_the_default_model_counts_as_one_that_knows_only_english(embedding, only):
    assert Settings(embedding=embedding).embedding.knows_only_english is only


# --- shown and described

NAMES = st.text(min_size=1, max_size=8)
WEIGHTS = {"complexity": 0.5, "novelty": 0.5, "tool_diversity": 0.0, "outcome_confidence": 0.0}


@given(NAMES, NAMES, st.floats(0, 1), st.floats(1e-3, 1e6), st.booleans())
def test_rendered_settings_load_back_to_equal_settings(tmp_path_factory, name, other, share, number, is_set):
    policy = {"threshold": share, "domains": {name: {"threshold": share}, other: {"weights": WEIGHTS}}}
    optional = {"ssl_cafile": Path("ca.pem"), "sasl_username": name} if is_set else {}
    settings = Settings(
        kafka={"bootstrap_servers": "kafka:1,[::1]:65535", "group": other, **optional},
        topics={"raw": "a.b-c_d"},
        cache={"max_elements": 7, "ttl": number if is_set else None},
        policy=policy,
        shadow=policy if is_set else None,
        fleet={"agent_ids": [name, other]},
        limits={"budget": min(number, 60)},
    )
    config = tmp_path_factory.getbasetemp() / "shown.toml"

    config.write_text(render(settings), encoding="utf-8")

    assert load_settings(config) == settings


def test_every_setting_is_rendered_with_what_it_is_and_its_default():
    shown = render(Settings())
    values = tomllib.loads(shown)

    for name, field in SETTINGS.items():
        section, key = name.split(".")
        assert field.description
        assert "".join(field.description.split()) in "".join(shown.replace("\n# ", "").split())
        if section != "shadow":
            unset = field.get_default(call_default_factory=True) is None
            assert (key in values[section]) != unset
            assert (f"# {name} is not set" in shown) == unset
    assert "# [shadow] is not set" in shown

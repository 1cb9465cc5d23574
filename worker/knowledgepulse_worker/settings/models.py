"""The settings: one TOML file, overridden by environment variables.

A setting is named ``section.key``: in the file, ``key`` under ``[section]``; in the environment,
``KP_<SECTION>__<KEY>``.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, cast

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from knowledgepulse_kafka.config import Config, TokenFunction
from knowledgepulse_worker.errors import SettingsError
from knowledgepulse_worker.function_reference import FUNCTION_REFERENCE, import_function
from knowledgepulse_worker.policy import ROUTES, Policy, Route
from knowledgepulse_worker.settings.assemble_settings import AssembleSettings
from knowledgepulse_worker.settings.record_settings import RecordSettings
from knowledgepulse_worker.settings.redaction_settings import RedactionSettings
from knowledgepulse_worker.settings.registry_settings import RegistrySettings
from knowledgepulse_worker.settings.section import SecretSection, TopicName
from knowledgepulse_worker.settings.section import Section as _Section

ENV_PREFIX = "KP_"
NESTED = "__"


_SERVER = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s\[\]/@:,]+):(?P<port>[0-9]{1,5})")


def _servers(value: str) -> str:
    """Require a list of ``host:port``."""
    if "@" in value:  # between a password with a comma and a list, nobody can tell
        raise ValueError("should be host:port, several with commas, without user and password")
    for server in value.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 1 <= int(match["port"]) <= 65_535:
            raise ValueError(f"should be host:port, several with commas; {server.strip()!r} is not")
    return value


REMEDY = "`kp-worker topics` creates them"
"""How to get missing topics."""


class KafkaSettings(SecretSection):
    """The connection to the brokers, and the consumer group."""

    name: ClassVar[str] = "kafka"

    bootstrap_servers: Annotated[str, AfterValidator(_servers)] = Field(
        "localhost:9092", description="`host:port`, several separated by commas"
    )
    group: str = Field(
        "knowledgepulse-worker",
        min_length=1,
        description="consumer group; also the prefix of the changelog's name",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="security of the connection"
    )
    ssl_cafile: Path | None = Field(
        None,
        description="file with the certificate authorities (PEM), in librdkafka `ssl.ca.location`; the "
        "system's by default",
    )
    ssl_certfile: Path | None = Field(
        None,
        description="file with the client certificate and its chain (PEM) for mutual TLS, in librdkafka "
        "`ssl.certificate.location`; a renewed certificate is read without a restart",
    )
    ssl_keyfile: Path | None = Field(
        None,
        description="file with the private key of the client certificate (PEM), in librdkafka "
        "`ssl.key.location`; by default, the key is in the certificate's file",
    )
    ssl_key_password: SecretStr | None = Field(
        None,
        description="password of an encrypted private key, in librdkafka `ssl.key.password`; never printed",
    )
    ssl_key_password_file: Path | None = Field(None, description="file with the password")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        "SCRAM-SHA-512", description="login mechanism of the SASL protocols"
    )
    sasl_username: str | None = Field(None, description="user name for PLAIN and SCRAM")
    sasl_password: SecretStr | None = Field(None, description="password for PLAIN and SCRAM; never printed")
    sasl_password_file: Path | None = Field(None, description="file with the password")
    sasl_oauthbearer_token_endpoint_url: str | None = Field(
        None,
        pattern="^https?://",
        description="OAUTHBEARER: URL that exchanges the client credentials for a token (RFC 6749, section "
        "4.4)",
    )
    sasl_oauthbearer_client_id: str | None = Field(None, description="OAUTHBEARER: client id")
    sasl_oauthbearer_client_secret: SecretStr | None = Field(
        None, description="OAUTHBEARER: client secret; never printed"
    )
    sasl_oauthbearer_client_secret_file: Path | None = Field(None, description="file with the secret")
    sasl_oauthbearer_scope: str | None = Field(None, description="OAUTHBEARER: scope of the token")
    sasl_oauthbearer_token_provider: str | None = Field(
        None,
        pattern=FUNCTION_REFERENCE,
        description="OAUTHBEARER: `module:function`, an async function that returns a token; it replaces the "
        "client credentials",
    )
    session_timeout: float = Field(
        10.0, ge=1, le=80, description="seconds without a heartbeat until the group reassigns the partitions"
    )
    request_timeout: float = Field(
        30.0,
        ge=1,
        le=3600,
        description="seconds for the brokers to answer when records are published or read; if they do not, "
        "the process ends",
    )
    commit_interval: float = Field(
        0.1,
        gt=0,
        le=5,
        description="seconds from the start of a transaction to the next while records wait to be scored, "
        "which then have the processor. Otherwise, no output waits longer for the next transaction, or half "
        "as long while no record is being scored",
    )
    commit_min_interval: float = Field(
        0.01,
        gt=0,
        le=5,
        description="least number of seconds from the start of a transaction to the next, which begins as "
        "soon as an output is complete, and not before four times the duration of the last one. A smaller "
        "interval publishes outputs sooner, in more transactions. Where only `commit_interval` is set, this "
        "is the same, and transactions are as far apart as before 0.6",
    )

    @model_validator(mode="after")
    def _least_interval_is_no_longer(self) -> KafkaSettings:
        """Leave transactions as far apart as ever where only the longer interval is set."""
        if "commit_min_interval" not in self.model_fields_set and "commit_interval" in self.model_fields_set:
            object.__setattr__(self, "commit_min_interval", self.commit_interval)  # the model is frozen
        if self.commit_min_interval > self.commit_interval:
            raise ValueError(
                f"commit_min_interval, {self.commit_min_interval:g}, is more than commit_interval, "
                f"{self.commit_interval:g}"
            )
        return self

    @model_validator(mode="after")
    def _security_is_complete(self) -> KafkaSettings:
        if self.ssl_keyfile and not self.ssl_certfile:
            raise ValueError("ssl_keyfile needs ssl_certfile")
        if not self.security_protocol.startswith("SASL"):
            return self
        if self.sasl_mechanism != "OAUTHBEARER":
            if not (self.sasl_username and self._has_secret("sasl_password")):
                raise ValueError(
                    f"{self.security_protocol} needs sasl_username and sasl_password or sasl_password_file"
                )
        elif not self.sasl_oauthbearer_token_provider and not (
            self.sasl_oauthbearer_token_endpoint_url
            and self.sasl_oauthbearer_client_id
            and self._has_secret("sasl_oauthbearer_client_secret")
        ):
            raise ValueError(
                "OAUTHBEARER needs sasl_oauthbearer_token_endpoint_url, sasl_oauthbearer_client_id and "
                "sasl_oauthbearer_client_secret or its file, or a sasl_oauthbearer_token_provider"
            )
        return self

    @property
    def pace(self) -> str:
        """When transactions begin."""
        interval, least = self.commit_interval, self.commit_min_interval
        if least == interval:
            return f"every {interval:g} s, or {interval / 2:g} s while no record is being scored"
        return (
            f"with each output, but not within {least:g} s or four times the duration of the last one; every "
            f"{interval:g} s while records wait to be scored"
        )

    def _has_secret(self, name: str) -> bool:
        return bool(getattr(self, name) or getattr(self, f"{name}_file"))

    def client_config(self) -> Config:
        """Return the configuration of the Kafka clients, which read the secrets' files themselves.

        Raises:
            SettingsError: there is no such token provider.
        """
        names = {field.name for field in fields(Config)} & type(self).model_fields.keys()
        values = {name: getattr(self, name) for name in names}
        values |= {name: partial(self.secret, name) for name in self.secrets()}
        values["sasl_oauthbearer_token_provider"] = self._token_provider()
        if self.sasl_password_file is not None:
            values["password_setting"] = "sasl_password_file"  # noqa: S105 - a name
        return Config(**values, prefix=f"{self.name}.", remedy=REMEDY)

    def _token_provider(self) -> TokenFunction | None:
        setting, name = "kafka.sasl_oauthbearer_token_provider", self.sasl_oauthbearer_token_provider
        logs_in = self.security_protocol.startswith("SASL") and self.sasl_mechanism == "OAUTHBEARER"
        if name is None or not logs_in:
            return None
        function = import_function(setting, name)
        if not inspect.iscoroutinefunction(function):
            raise SettingsError(f"{setting}: {name}: is not an async function")
        return cast("TokenFunction", function)


class TopicSettings(_Section):
    """The topics' names."""

    raw: TopicName = Field("raw-traces", description="topic to which agents publish")
    contribute: TopicName = Field("contribute", description="traces worth keeping")
    rejected: TopicName = Field("rejected", description="traces below the threshold")
    dead_letter: TopicName = Field("dead-letter", description="records that could not be scored")
    redacted: TopicName | None = Field(
        None,
        description="redacted copies of contributed traces; needs `redaction.function`",
    )
    evaluations: TopicName = Field(
        "otlp_logs",
        description="scores as OTLP logs, by `kp-worker evaluations`; the default is the topic that the "
        "Collector's Kafka receiver reads logs from",
    )
    evaluation_spans: TopicName = Field(
        "otlp_evaluations",
        description="scores as OTLP spans, by `kp-worker evaluations`; not `assemble.spans`",
    )

    def of(self, route: Route) -> str:
        """Return the topic of a route."""
        name: str = getattr(self, route.topic)
        return name

    @property
    def scored(self) -> tuple[str, ...]:
        """The topics of scored traces, in the order of the routes."""
        return tuple(map(self.of, ROUTES.values()))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The topics in which each raw record has its outcome once."""
        return *self.scored, self.dead_letter

    @property
    def copies(self) -> tuple[str, ...]:
        """The topic of redacted copies, if there is one."""
        return () if self.redacted is None else (self.redacted,)

    @model_validator(mode="after")
    def _distinct(self) -> TopicSettings:
        names = [name for name in self.model_dump().values() if name is not None]
        if len(set(names)) < len(names):
            raise ValueError(f"the topics must have different names, got {', '.join(names)}")
        return self


class EmbeddingSettings(_Section):
    """The embedding of traces."""

    backend: Literal["sentence-transformers", "lexical", "none"] = Field(
        "sentence-transformers",
        description="`sentence-transformers`: a model, as in the SDK; `lexical`: hashed words of the "
        "objective, the agent's steps and the user's messages; `none`: no embedding, so novelty is 0.5",
    )
    model: str | None = Field(
        None,
        description="folder or hub name of the model; by default all-MiniLM-L6-v2, from its package or the "
        "hub",
    )
    revision: str | None = Field(
        None, description="revision of a model from the hub; required with a hub name"
    )
    max_tokens: int = Field(
        256, ge=3, le=512, description="tokens read of each text, special tokens included"
    )
    truncation: Literal["standard", "sdk"] = Field(
        "standard",
        description="`standard` keeps the closing [SEP] of a truncated text, `sdk` drops it as the SDK does",
    )
    text: Literal["sdk", "agent", "parts"] | None = Field(
        None,
        description="text that is embedded. `sdk`: the objective and all steps, as in the SDK; `agent`: "
        "the beginning of the objective, then thoughts and tool calls; `parts`: like `agent`, "
        "with the end of the objective and the user's later messages. The default is `parts` "
        "with `lexical`, otherwise `sdk`",
    )
    prefix: str = Field(
        "",
        max_length=200,
        description="text that precedes each text, if the model was trained so: `query: ` for "
        "multilingual-e5-small",
    )
    precision: Literal["auto", "float32", "bfloat16", "int16"] = Field(
        "auto",
        description="precision of the model's products; `auto`: bfloat16 if the processor has instructions "
        "for it, then int16 (integers of 13 bits) where it was compiled, otherwise float32",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="device of the model; `cuda` needs the extra `sentence-transformers`, and `auto` uses "
        "it if possible",
    )
    cache_folder: Path | None = Field(
        None, description="folder for a downloaded model; by default `~/.cache/knowledgepulse-worker`"
    )

    @property
    def trace_text(self) -> Literal["sdk", "agent", "parts"]:
        """The text that is embedded."""
        return self.text or ("parts" if self.backend == "lexical" else "sdk")

    @property
    def knows_only_english(self) -> bool:
        """Whether the model is the default one, wherever it is read from."""
        is_default = self.model is None or Path(self.model).name == "all-MiniLM-L6-v2"
        return self.backend == "sentence-transformers" and is_default


class CacheSettings(_Section):
    """Each partition's novelty cache."""

    max_elements: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="number of scored traces with which a new one is compared. 1,000, 10,000 and 100,000 "
        "traces take 4.5, 45 and 450 MB per partition, and more while it is opened; 2, 20 and 200 MB of "
        "changelog; 0.05, 0.2 and 20 ms per look-up; and 0.03, 0.3 and 3 s when a partition is opened",
    )
    dimensions: int = Field(384, ge=1, le=16_384, description="dimensions of the model's vectors")
    ttl: float | None = Field(
        None,
        gt=0,
        description="largest difference in age, in seconds, between compared traces; unlimited by default",
    )


_Name = Annotated[str, Field(min_length=1, max_length=200)]


class FleetSettings(_Section):
    """The agents and frameworks that metrics distinguish; producers cannot add any."""

    agent_ids: tuple[_Name, ...] = Field(
        (),
        max_length=50,
        description="agents with their own series in `kp_agent_traces_total`; all others count as `other`",
    )
    frameworks: tuple[_Name, ...] = Field(
        (),
        max_length=50,
        description="frameworks with their own series in `kp_framework_traces_total`; all others count as "
        "`other`",
    )


class LimitSettings(_Section):
    """The worker's bounds on time and memory."""

    budget: float = Field(
        0.1, gt=0, le=60, description="seconds from a trace's admission to the embedding queue to its score"
    )
    trace_bytes: int = Field(
        1_048_576, ge=1024, description="largest record; larger ones go to `dead-letter` as `too_large`"
    )
    batch_bytes: int = Field(
        67_108_864,
        ge=1_048_576,
        description="largest compressed batch when inflated; larger ones go to `dead-letter` as `too_large`, "
        "record by record and without content",
    )
    in_flight_records: int = Field(
        1024,
        ge=1,
        le=65_536,
        description="largest number of records between fetch and commit, per partition. At this limit, the "
        "worker commits without waiting for `kafka.commit_interval`",
    )
    in_flight_bytes: int = Field(
        16_777_216,
        ge=1024,
        description="largest size of these records in bytes; a single record may exceed it",
    )
    heartbeat: float = Field(
        30.0, ge=2, description="seconds that the event loop may block before the process is killed"
    )
    stall: float = Field(
        60.0,
        ge=5,
        description="seconds that records may wait without any being finished before the process is "
        "restarted",
    )
    drain: float = Field(
        20.0,
        gt=0,
        description="seconds for the last transaction when partitions leave or the worker stops; if it takes "
        "longer, the process ends and the transaction is aborted",
    )
    poison_attempts: int = Field(
        3,
        ge=1,
        description="number of consecutive processes that a record may kill before it goes to "
        "`dead-letter` as `poison`; at least two, since the first death does not tell the record",
    )
    skip_poison: bool = Field(
        False,
        description="whether to skip a record that kills the process even as a dead letter; otherwise, it "
        "blocks its partition",
    )

    @property
    def rebalance(self) -> float:
        """Seconds that a rebalance allows its members, who commit meanwhile."""
        return self.drain + 40.0


class WebSettings(_Section):
    """The web port of metrics and status page, and what they show."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(6066, ge=1, le=65_535, description="port to listen on")
    show_content: bool | None = Field(
        None,
        description="whether the status page shows the content of traces; by default, only on a loopback "
        "address",
    )
    runbook: str | None = Field(
        None,
        pattern="^https?://",
        description="address of your copy of the runbook, to which the status page links, such as that in "
        "the external label `runbook` of the alerts",
    )
    evaluation: Path | None = Field(
        None,
        description="file to which `kp-worker policy evaluate --json` is written on a schedule; the status "
        "page shows what it says",
    )


class LogSettings(_Section):
    """Log level and format."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="lowest level that is logged"
    )
    format: Literal["auto", "human", "json"] = Field(
        "auto", description="`human` or `json` lines; `auto`: human on a terminal, otherwise JSON"
    )


class Settings(BaseSettings):
    """The effective settings, by section."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=NESTED,
        extra="forbid",
        frozen=True,
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    topics: TopicSettings = Field(default_factory=TopicSettings)
    embedding: EmbeddingSettings = Field(default_factory=EmbeddingSettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
    policy: Policy = Field(default_factory=Policy)
    shadow: Policy | None = Field(
        None,
        description="a second policy with the same keys as `policy`; its decisions are counted and "
        "compared, but not published",
    )
    fleet: FleetSettings = Field(default_factory=FleetSettings)
    records: RecordSettings = Field(default_factory=RecordSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    redaction: RedactionSettings = Field(default_factory=RedactionSettings)
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    web: WebSettings = Field(default_factory=WebSettings)
    assemble: AssembleSettings = Field(default_factory=AssembleSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    @model_validator(mode="after")
    def _redaction_is_complete(self) -> Settings:
        if (self.redaction.function is None) != (self.topics.redacted is None):
            raise ValueError(
                "redaction.function and topics.redacted need each other; only one of them is set"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give the environment precedence over the file, which :func:`load_settings` passes in."""
        return env_settings, init_settings

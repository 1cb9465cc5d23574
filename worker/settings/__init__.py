"""The settings: models, loading, explaining errors, rendering."""

from worker.settings.assemble import AssembleSettings
from worker.settings.explaining import ignored_variables
from worker.settings.loading import load_policy, load_settings, override, parse_file, read_file, settings_from
from worker.settings.models import (
    ENV_PREFIX,
    NESTED,
    CacheSettings,
    EmbeddingSettings,
    FleetSettings,
    KafkaSettings,
    LimitSettings,
    LogSettings,
    Settings,
    TopicSettings,
    WebSettings,
)
from worker.settings.redaction import RedactionSettings
from worker.settings.rendering import render
from worker.settings.tree import describe, sections

__all__ = [
    "ENV_PREFIX",
    "NESTED",
    "AssembleSettings",
    "CacheSettings",
    "EmbeddingSettings",
    "FleetSettings",
    "KafkaSettings",
    "LimitSettings",
    "LogSettings",
    "RedactionSettings",
    "Settings",
    "TopicSettings",
    "WebSettings",
    "describe",
    "ignored_variables",
    "load_policy",
    "load_settings",
    "override",
    "parse_file",
    "read_file",
    "render",
    "sections",
    "settings_from",
]

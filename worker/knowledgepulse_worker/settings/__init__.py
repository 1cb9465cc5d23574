"""The settings: models, loading, explaining errors, rendering."""

from knowledgepulse_worker.settings.assemble_settings import AssembleSettings
from knowledgepulse_worker.settings.doubts import doubtful_domains, doubts_about
from knowledgepulse_worker.settings.explaining import ignored_variables, warning_of_ignored_variables
from knowledgepulse_worker.settings.loading import (
    load_policy,
    load_settings,
    override,
    parse_file,
    read_file,
    settings_from,
)
from knowledgepulse_worker.settings.models import (
    ENV_PREFIX,
    NESTED,
    REMEDY,
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
from knowledgepulse_worker.settings.record_settings import RecordSettings
from knowledgepulse_worker.settings.registry_settings import RegistrySettings
from knowledgepulse_worker.settings.rendering import render, render_changed
from knowledgepulse_worker.settings.setting_paths import sections

__all__ = [
    "ENV_PREFIX",
    "NESTED",
    "REMEDY",
    "AssembleSettings",
    "CacheSettings",
    "EmbeddingSettings",
    "FleetSettings",
    "KafkaSettings",
    "LimitSettings",
    "LogSettings",
    "RecordSettings",
    "RegistrySettings",
    "Settings",
    "TopicSettings",
    "WebSettings",
    "doubtful_domains",
    "doubts_about",
    "ignored_variables",
    "load_policy",
    "load_settings",
    "override",
    "parse_file",
    "read_file",
    "render",
    "render_changed",
    "sections",
    "settings_from",
    "warning_of_ignored_variables",
]

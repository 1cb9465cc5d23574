"""See whether a model that knows only English embeds texts in another script, which it takes for alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from knowledgepulse_worker.policy import Policy

MANY_OTHER = 0.2
"""The share of letters of other scripts from which on the worker's state says so."""

_FEWEST_TEXTS = 50

_Letters = Collection[tuple[int, int]]


def unknown_script(last: Mapping[str, _Letters], policy: Policy) -> str:
    """Say which domain has many letters that are not Latin; empty if none has.

    A domain in which nearly all are has a language of its own. With a share, about as many traces pass as in
    any other domain.

    Args:
        last: for each domain, the numbers of Latin and of other letters of the last texts.
        policy: the policy in force.
    """
    for domain, profile in policy.profiles.items():
        texts = last.get(domain, ())
        latin, other = (sum(numbers) for numbers in zip(*texts, strict=True)) if texts else (0, 0)
        part = other / max(1, latin + other)
        is_apart = profile.share is not None and part > 1 - MANY_OTHER
        if len(texts) >= _FEWEST_TEXTS and part >= MANY_OTHER and not is_apart:
            return (
                f"{part:.0%} of the letters in the last {len(texts)} traces of {domain} are not Latin, and "
                "the model, which knows English, finds such texts alike; give each language a domain with "
                "a share, or use a multilingual model"
            )
    return ""

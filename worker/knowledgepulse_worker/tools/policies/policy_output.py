"""Policies and their changes in words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from knowledgepulse_worker.message_text import printable
from knowledgepulse_worker.policy import (
    DEFAULT_DOMAIN,
    DIMENSIONS,
    MINIMUMS,
    LearnedValue,
    Policy,
    Profile,
    Term,
    Words,
)
from knowledgepulse_worker.tools.terminal.reports import new_table, print_parts

DIMENSION_TITLES = [name.replace("_", " ") for name in DIMENSIONS]

DISTINCT_WORDS = 200
"""About the number of distinct words of a trace, for which the strengths of words are told."""

SAME_AS_SDK = "scores and decides as the SDK's policy does"
"""Said of a policy without effective changes from the SDK's."""


def changes(old: Policy, new: Policy) -> list[str]:
    """Describe the effective changes of a new policy, one per line; empty if there are none.

    A domain that only one policy names is compared with the other policy's ``default``.
    """
    names = [*dict.fromkeys([*old.profiles, *new.profiles])]
    lines = {name: _profile_changes(old.profile(name), new.profile(name)) for name in names}
    if len({*lines.values()}) == 1:
        lines = {"every domain": lines[DEFAULT_DOMAIN]}
    for guard, listed in old.guards.items():
        if new.guards[guard] != listed:
            lines[f"contribute_{guard}"] = f"{', '.join(listed)} → {', '.join(new.guards[guard])}"
    if old.withhold_endings != new.withhold_endings:
        before, after = (", ".join(policy.withhold_endings) or "none" for policy in (old, new))
        lines["withhold_endings"] = f"{before} → {after}"
    return [f"{name}: {line}" for name, line in lines.items() if line]


def _profile_changes(old: Profile, new: Profile) -> str:
    before, after = dict(old.weights), dict(new.weights)
    parts = list(_rule_changes(old, new))
    for name, weight in after.items():
        if before[name] != weight:
            parts.append(f"weight of {name} {before[name]!r} → {weight!r}")
    parts += _learned_changes(old.learned, new.learned)
    if old.share is not None and new.share is not None and old.scale != new.scale:
        parts.append("its last scores begin anew")
    return ", ".join(parts)


def _rule_changes(old: Profile, new: Profile) -> Iterator[str]:
    (was, before), (is_now, after) = (next(iter(profile.rule.items())) for profile in (old, new))
    if was != is_now:
        yield f"{was} {before!r} → {is_now} {after!r}"
    elif before != after:
        yield f"{was} {before!r} → {after!r}"
    if was == is_now == "share" and old.threshold != new.threshold:
        yield f"threshold until there are enough scores {old.threshold!r} → {new.threshold!r}"
    of_share = ("share_window", "agent_cap") if was == is_now == "share" else ()
    for name in (*of_share, *MINIMUMS):
        if (before := getattr(old, name)) != (after := getattr(new, name)):
            yield f"{name} {before!r} → {after!r}"


def _learned_changes(old: LearnedValue | None, new: LearnedValue | None) -> Iterator[str]:
    """Yield the changes of a learned value: only those that affect scores."""
    shares = [learned.share if learned else 0.0 for learned in (old, new)]
    if shares[0] != shares[1]:
        yield f"share of the learned value {shares[0]!r} → {shares[1]!r}"
    if old is None or new is None:
        return
    if old.intercept != new.intercept:
        yield f"intercept {old.intercept!r} → {new.intercept!r}"
    for name in dict.fromkeys([*old.terms, *new.terms]):
        before, after = old.terms.get(name), new.terms.get(name)
        if before is None or after is None:
            yield f"term {name} {'removed' if after is None else 'added'}"
        elif before != after:
            yield f"term {name} {_term(before)} → {_term(after)}"
    words = [
        learned.words and (learned.words.unit, learned.words.mean, learned.words.table)
        for learned in (old, new)
    ]
    if words[0] != words[1]:
        yield f"words {'removed' if words[1] is None else 'changed' if words[0] else 'added'}"


def _term(term: Term) -> str:
    return f"{term.weight:+g} of (value - {term.mean:g}) / {term.deviation:g} up to ±{term.clip:g}"


def print_changes(old: Policy, new: Policy, head: str, none: str) -> None:
    """Print the effective changes of a new policy below a head, or another text if there are none."""
    lines = changes(old, new)
    print_parts(*([head, *(f"  {line}" for line in lines)] if lines else [none]))


def print_policy(policy: Policy, head: str) -> None:
    """Print thresholds, weights and learned values by domain, and the changes from the SDK's policy."""
    table = new_table("domain", "threshold", *DIMENSION_TITLES)
    for profile in policy.profiles.values():
        weights = (repr(weight) for _, weight in profile.weights)
        rule = repr(profile.threshold) if profile.share is None else f"share {profile.share!r}"
        table.add_row(profile.domain, rule, *weights)
    print_parts(head, table, *_notes(policy), *_learned_tables(policy), "")
    print_changes(Policy(), policy, "Changes from the SDK's policy:", SAME_AS_SDK)


def _notes(policy: Policy) -> Iterator[str]:
    """Yield what applies besides the table: how shares are counted, and what no rank lets pass."""
    shared = [profile for profile in policy.profiles.values() if profile.share is not None]
    for threshold in sorted({profile.threshold for profile in shared}):
        yield (
            f"a share is counted among the last {policy.share_window:,} scores of a partition and domain, or "
            "the newer half of fewer; before one of them would pass, the threshold "
            f"{threshold!r} decides"
        )
    if shared and policy.agent_cap < 1:
        yield (
            f"the better scores of one agent take at most the part {policy.agent_cap!r} of a share's places "
            "from the others"
        )
    if policy.withhold_endings:
        yield f"a trace whose metadata.ending is {' or '.join(policy.withhold_endings)} is rejected"
    for profile in policy.profiles.values():
        for name in MINIMUMS:
            if value := getattr(profile, name):
                dimension = name.removeprefix("min_")
                yield f"{profile.domain}: a trace with a {dimension} below {value!r} is rejected"


def _learned_tables(policy: Policy) -> Iterator[Table | str]:
    """Yield the terms of each learned value, and what it was fitted to."""
    for name, domain in policy.domains.items():
        if (learned := domain.learned) is None:
            continue
        yield ""
        of = f" of {printable(learned.prior)}" if learned.prior else ""
        yield f"{name}: learned value{of}, with a share of {learned.share!r} in the score"
        yield learned_table(learned)
        if learned.words is not None:
            yield from words_table(learned.words)
        if (fitted := learned.fitted) is not None:
            sources = ", ".join(
                f"{count:,} from {printable(source)}" for source, count in fitted.labels.items()
            )
            yield (
                f"fitted on {printable(fitted.on)} to {fitted.traces:,} traces, of which {fitted.kept:,} are "
                f"worth keeping, in {fitted.groups:,} groups; labels: {sources}"
            )
            value, low, high = fitted.auc
            yield f"AUC {value:.2f} ({low:.2f}-{high:.2f}) on traces that it was not fitted to"


def words_table(words: Words) -> Iterator[Table | str]:
    """Yield the strongest words, with what each adds to a trace of :data:`DISTINCT_WORDS` distinct words."""
    if not words.strongest:
        return
    yield ""
    yield f"the strongest words, with the log odds of each in a trace of {DISTINCT_WORDS} distinct words"
    table = new_table("words of a bucket", "log odds")
    for bucket, names in words.strongest.items():
        points = words.unit * int.from_bytes(words.table[bucket : bucket + 1], signed=True)
        table.add_row(printable(names), f"{points / DISTINCT_WORDS**0.5:+.3f}")
    yield table


def learned_table(learned: LearnedValue) -> Table:
    """Return the terms of a learned value, those with the largest weights first."""
    table = new_table("term", "mean", "deviation", "clip", "weight")
    for term, fitted_term in sorted(learned.terms.items(), key=lambda item: -abs(item[1].weight)):
        figures = (f"{figure:g}" for figure in (fitted_term.mean, fitted_term.deviation, fitted_term.clip))
        table.add_row(term.replace("_", " "), *figures, f"{fitted_term.weight:+g}")
    table.add_row("intercept", "", "", "", f"{learned.intercept:+g}")
    return table

"""The traces that a learned value was fitted to, as its policy records them: there, its figures flatter."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

from knowledgepulse_worker.errors import InputError
from knowledgepulse_worker.policy import LearnedValue, Policy
from knowledgepulse_worker.scoring import ScoredRecord
from knowledgepulse_worker.tools.policies.estimates import Array

MAX_TRACES = 20_000
"""With more traces, none are recorded, since the policy would become too long."""

_HASH_BYTES = 3
"""Of each hash: of 16 million other traces, one is taken for a given trace."""


def recorded(records: Sequence[ScoredRecord]) -> str | None:
    """Return the traces as a policy records them: hashes of their ids, in base64."""
    if len(records) > MAX_TRACES:
        return None
    return b64encode(b"".join(sorted({*map(hash_of, records)}))).decode()


def fitted_to(policy: Policy, records: Iterable[ScoredRecord]) -> Array:
    """Return whether the learned value of its domain was fitted to each trace, shape (records,).

    Raises:
        InputError: the record in the policy is not what a fit writes.
    """
    known = {name: _known(profile.learned) for name, profile in policy.profiles.items()}
    return np.array(
        [hash_of(record) in known[policy.profile(record.task_domain).domain] for record in records], bool
    )


def _known(learned: LearnedValue | None) -> set[bytes]:
    if learned is None or learned.fitted is None or learned.fitted.ids is None:
        return set()
    return hashes_in(learned.fitted.ids)


def hashes_in(ids: str) -> set[bytes]:
    """Return the hashes of recorded traces; raise an InputError if they are none."""
    try:
        text = b64decode(ids, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("`fitted.ids` of a learned value should be base64, as `fit` writes it") from None
    return {text[at : at + _HASH_BYTES] for at in range(0, len(text), _HASH_BYTES)}


def hash_of(record: ScoredRecord) -> bytes:
    """Return the hash of a trace's id."""
    return blake2b(record.id.encode("utf-8", "replace"), digest_size=_HASH_BYTES).digest()

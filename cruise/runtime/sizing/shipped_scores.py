"""The scores of public traces that come with cruise, and stand in for a cluster's own: `prior_scores.json`.

`python -m benchmarks.headroom_prior` makes the file; each line of counts is `bucket:count` of one part of one trace.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

import numpy as np

from cruise.decisions.sizing.headroom.prior import Prior, prior_of
from cruise.decisions.sizing.headroom.scores import BUCKETS
from cruise.domain.arrays import Int64Array
from cruise.domain.headroom import PlaceScores
from cruise.domain.policy import HeadroomStart, Policy
from cruise.domain.resources import ResourceName


def shipped_priors(policy: Policy) -> Mapping[ResourceName, Prior | None]:
    """Return what stands in for scores that are missing; nothing where the policy starts without."""
    return _pooled() if policy.starts_with is HeadroomStart.PRIOR else {}


@cache
def shipped_scores() -> Sequence[PlaceScores]:
    """Return the scores of each trace and resource."""
    text = resources.files("cruise.runtime.sizing").joinpath("prior_scores.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return tuple(
        PlaceScores(
            one["trace"],
            ResourceName(one["resource"]),
            document["measure"],
            _unpacked(one["firstDay"]),
            _unpacked(one["later"]),
        )
        for one in document["scores"]
    )


@cache
def _pooled() -> Mapping[ResourceName, Prior | None]:
    return {resource: prior_of(shipped_scores(), resource) for resource in ResourceName}


def packed(counts: Int64Array) -> str:
    """Return counts as `bucket:count` where there are any."""
    return " ".join(f"{bucket}:{counts[bucket]}" for bucket in np.flatnonzero(counts))


def _unpacked(text: str) -> Int64Array:
    counts = np.zeros(BUCKETS, dtype=np.int64)
    for pair in text.split():
        bucket, count = pair.split(":")
        counts[int(bucket)] = int(count)
    return counts

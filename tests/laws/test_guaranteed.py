"""Guaranteed pods on random clusters, checked in every second of a kubelet's resizes."""

import numpy as np

from cruise.domain.cluster import QosClass
from tests.laws.guaranteed_clusters import draw_guaranteed_clusters
from tests.laws.laws import check_guaranteed_sizes, check_qos_classes
from tests.laws.observed_passes import ObservedRun
from tests.tiers import Seeds

PASSES = 3
# A kubelet allocates after one second and has resized after five more.
SECONDS = range(1, 9)


async def test_a_thousand_guaranteed_pods_keep_their_class_at_every_step(seeds: Seeds) -> None:
    pods, resized = set[tuple[int, str]](), set[tuple[int, str]]()
    for seed in seeds(300):
        drawn = draw_guaranteed_clusters(np.random.default_rng(seed))
        run = ObservedRun(drawn, seed)
        for number in range(PASSES):
            seen = await run.run_pass(SECONDS)
            found = [text for law in (check_qos_classes, check_guaranteed_sizes) for text in law(drawn, seen)]
            assert not found, f"seed {seed}, pass {number}: {found[:5]}"
            pods |= {(seed, pod.uid) for pod in seen.before.pods if pod.qos is QosClass.GUARANTEED}
            resized |= {(seed, one.uid) for one in seen.resized()}
    assert len(pods & resized) > len(pods) / 5

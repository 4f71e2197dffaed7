"""Statistics from two readings: one rate and one size for each container."""

import numpy as np

from cruise.decisions.usage.plausibility import estimate_from_short_sample
from cruise.domain.usage import ContainerKey, SampleBlock
from tests.builders import make_container, make_node, make_pod, make_snapshot

AT = 1_767_268_800
SNAPSHOT = make_snapshot(
    [make_pod("web-1", containers=[make_container("app"), make_container("proxy")]), make_pod("web-2", node=None)],
    [make_node("n1", cpu=4000)],
)


def block(cpu: list[float], memory: list[float]) -> SampleBlock:
    return SampleBlock(
        keys=[ContainerKey("shop", "web-1", name) for name in ("app", "proxy")][: len(cpu)],
        times=np.array([AT - 60, AT]),
        cpu_demand_millicores=np.array([[np.nan, one] for one in cpu], dtype=np.float32),
        memory_bytes=np.array([[one, one] for one in memory]),
        psi_known=np.ones(len(cpu), dtype=np.bool_),
        nodes=["n1"] * len(cpu),
    )


def test_base_and_peak_are_the_sampled_value():
    table = estimate_from_short_sample([block([120.2, 30.0], [2e8, 3e7])], SNAPSHOT, AT)
    assert [(key.pod, key.container, key.workload) for key in table.keys] == [
        ("web-1", "app", "Deployment/web"),
        ("web-1", "proxy", "Deployment/web"),
    ]
    assert table.cpu_base_millicores.tolist() == table.cpu_peak_millicores.tolist() == [121, 30]
    assert table.memory_base_bytes.tolist() == table.memory_7d_max_bytes.tolist() == [200_000_000, 30_000_000]
    assert table.history_since.tolist() == [0, 0]


def test_implausible_and_missing_samples_make_no_row():
    table = estimate_from_short_sample([block([50_000.0, np.nan], [2e8, 3e7])], SNAPSHOT, AT)
    assert not table.keys
    assert not estimate_from_short_sample([], SNAPSHOT, AT).keys

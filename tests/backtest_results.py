"""Results of a replay, built for tests: figures that look like a real one's, and time lines with a spike."""

import math

import numpy as np

from cruise.domain.backtest import BacktestResult, ContainerScore, NodeTimeLine, PolicyScore, ResourceScore
from cruise.domain.resources import Resources

NODE = Resources(16_000, 64 << 30)
START = 1_767_225_600


def make_score(
    policy: str = "cruise",
    cpu: tuple[float, float, float] = (0.35, 0.0012, 0.004),
    memory: tuple[float, float, float] | None = (0.41, 0.0, 0.0005),
    oom: float = 1.5,
    resizes: float = 4.2,
    reversals: float = 0.22,
    evictions: float = 12.0,
    nodes_mean: float = 8.25,
    nodes_peak: int = 10,
    moves: float = 2.0,
    mean_slack: tuple[float, float] = (0.0, 0.0),
    **others,
) -> PolicyScore:
    return PolicyScore(
        policy=policy,
        cpu=ResourceScore(*cpu, mean_slack=mean_slack[0]),
        memory=ResourceScore(*memory, mean_slack=mean_slack[1]) if memory is not None else None,
        oom_per_1000_container_days=oom,
        resizes_per_container_day=resizes,
        resize_reversal_share=reversals,
        evictions_per_1000_pod_days=evictions,
        moves_per_1000_pod_days=min(moves, evictions),
        nodes_mean=nodes_mean,
        nodes_peak=nodes_peak,
        **{"pending_pod_minutes": 0.0, "container_days": 1_250.0, **others},
    )


def make_container(pod: str = "web-7d9-x2x", **others) -> ContainerScore:
    figures = {
        "cpu_slack_millicores": 812.4,
        "memory_slack_bytes": 3.2e9,
        "starved_minutes": 35.0,
        "oom_kills": 2,
        "evictions": 1,
        "resizes": 96,
    }
    return ContainerScore("shop", "Deployment/web", pod, **{**figures, **others})


def make_time_line(times: int = 288, node: str = "node-1", base: bool = True, spike_at: int | None = None):
    """A day and night of use, one entry a pass; `spike_at` is where a single pass uses nearly all of the node."""
    wave = np.array([0.5 + 0.3 * math.sin(2 * math.pi * at / 288) for at in range(times)])
    cpu, memory = wave * NODE.cpu_millicores * 0.8, (0.6 + 0.2 * wave) * NODE.memory_bytes
    peak_cpu = cpu * 0.8
    if spike_at is not None:
        peak_cpu[spike_at] = NODE.cpu_millicores * 0.98

    def whole(values):
        return values.astype(np.int64)

    return NodeTimeLine(
        node=node,
        times=START + 300 * np.arange(1, times + 1, dtype=np.int64),
        allocatable=NODE,
        requested_cpu_millicores=whole(cpu),
        requested_memory_bytes=whole(memory),
        peak_cpu_millicores=whole(peak_cpu),
        peak_memory_bytes=whole(memory * 0.9),
        base_cpu_millicores=whole(cpu * 0.7) if base else None,
        base_memory_bytes=whole(memory * 0.85) if base else None,
        headroom_cpu_millicores=whole(cpu * 0.3) if base else None,
        headroom_memory_bytes=whole(memory * 0.15) if base else None,
    )


def make_policies(memory: bool = True, cost: bool = False, times: int = 288) -> dict[str, PolicyScore]:
    """All policies, in their order, with figures of the size that real ones have."""
    rows = {
        "as-requested": ((0.81, 0.0, 0.0), (0.72, 0.0, 0.0), 0.0, 0.0, 0.0, 0.0, 25.0, 25),
        "vpa": ((0.52, 0.0004, 0.001), (0.55, 0.0, 0.0), 3.1, 0.6, 0.31, 240.0, 14.2, 18),
        "cruisekube": ((0.47, 0.012, 0.031), (0.52, 0.0, 0.008), 9.4, 31.0, 0.44, 85.0, 12.4, 16),
        "autopilot": ((0.49, 0.0021, 0.004), (0.38, 0.0, 0.012), 41.0, 2.4, 0.2, 410.0, 13.6, 17),
        "cruise": ((0.36, 0.0004, 0.0012), (0.37, 0.0, 0.0011), 2.9, 4.2, 0.22, 12.0, 9.1, 12),
        "cruise-seeds": ((0.3, 0.0071, 0.012), (0.31, 0.0, 0.0077), 2.9, 99.0, 0.7, 31.0, 9.0, 12),
        "cruise-shared-max": ((0.33, 0.0071, 0.012), (0.5, 0.0, 0.0077), 12.0, 5.1, 0.27, 31.0, 9.4, 13),
        "cruise-joint-peak": ((0.41, 0.0006, 0.0031), (0.54, 0.0, 0.0045), 4.4, 4.6, 0.25, 20.0, 10.2, 13),
        "cruise-risk": ((0.36, 0.0004, 0.0012), (0.37, 0.0, 0.0011), 2.9, 4.2, 0.22, 12.0, 9.1, 12),
        "oracle": ((0.11, 0.0, 0.0), (0.04, 0.0, 0.0), 0.0, 288.0, 0.5, 0.0, 6.1, 8),
    }
    found = {}
    for name, (cpu, of_memory, oom, resizes, reversals, evictions, mean, peak) in rows.items():
        found[name] = make_score(
            name,
            cpu,
            of_memory if memory else None,
            oom if memory else 0.0,
            resizes,
            reversals,
            evictions,
            mean,
            peak,
            nodes_mean_by_requests=mean - 0.2,
            moves_by_requests=3.0,
            cost=mean * 30 * 24 * 0.7 if cost else None,
            mean_slack=(1000 * cpu[0], of_memory[0] * (1 << 30)),
            worst_containers=tuple(make_container(f"web-7d9-{at}", starved_minutes=60.0 - at) for at in range(6)),
            time_line=make_time_line(times, base="cruise" in name, spike_at=times // 3),
        )
    return found


def make_result(trace: str = "bitbrains-a", policies=None, **others) -> BacktestResult:
    figures = {"containers": 100, "days": 30.0, "step_seconds": 300, "node": NODE}
    return BacktestResult(trace, policies=make_policies() if policies is None else policies, **{**figures, **others})

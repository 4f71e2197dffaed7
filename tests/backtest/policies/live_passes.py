"""cruise under replay through its ports: usage pass, node pass and OOM reactor as in `cruise serve`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from cruise.backtest.policies.replayed_pods import ReplayedPods, get_container_sizes
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomReaction,
)
from cruise.decisions.eviction.ranking import NO_EARLIER_PASSES
from cruise.domain.actions import EvictPod, ResizePod
from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.cluster import OomKill, Pod
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.policy import AdmissionSize, Mode, Policy
from cruise.domain.usage import NO_NODE_USAGE, ContainerKey, NodeLoadAverage, SampleBlock
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.headroom import HeadroomState
from cruise.runtime.node_pass import run_node_pass
from cruise.runtime.oom import OomReactor
from cruise.runtime.ports import PassContext
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.evictions import PendingGrowths, WriteExclusions
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.store import InMemoryStore


class LivePasses:
    """A policy under replay that runs the passes themselves."""

    name = "live"

    def __init__(self, recording, policy: Policy):
        self.recording = recording
        # A replay adds nodes, and creates pods at their peak all the same: that is what its consolidators are about.
        self.policy = replace(policy, mode=Mode.FULL, admission_size=policy.admission_size or AdmissionSize.PEAK)
        self.cluster = FleetCluster(recording)
        self.source = ObservedUsage(recording)
        self.store = InMemoryStore()
        self.seconds = 0.0
        # One loop for all passes, since each new one begins with new threads.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.run, self.close = runner.run, runner.close
        self.state = UsageState()
        self.headroom = HeadroomState(self.state)
        self.earlier = NO_EARLIER_PASSES
        exclusions = WriteExclusions()
        self.writer = ClusterWriter(
            self.cluster, self.store, self.policy, growths=PendingGrowths(lambda: self.seconds), exclusions=exclusions
        )
        self.reactor = OomReactor(self.cluster, self.store, self.policy, self.writer, exclusions, self.state)
        self.reading = UsageReadingSettings(step_seconds=recording.step_seconds, scrape_delay_seconds=0)

    def observe(self, at, cpu, memory):
        self.seconds = float(at)
        self.source.take(at, cpu, memory, self.cluster.names)

    def admit(self, containers, view):
        now = datetime.fromtimestamp(view.time, UTC)
        self.cluster.name(containers, view)
        pods = self.cluster.pods
        statistics = self.run(self.store.read_workload_statistics())
        admitter = PodAdmitter(pods.build_snapshot(view, NO_CONTAINERS), statistics, {}, self.policy, now)
        admitted = []
        for container in containers.tolist():
            pods.record_admission(container, False)
            created = pods.get_created(container, now)
            pod, _ = admitter.admit(created)
            pods.record_admission(container, pod is not created)
            admitted.append(pod)
        return get_container_sizes(admitted)

    def decide(self, view):
        now = datetime.fromtimestamp(view.time, UTC)
        self.cluster.show(view)
        self.run(self._pass(now))
        return self.cluster.decision()

    async def _pass(self, now):
        await run_usage_pass(self.cluster, self.source, self.store, self.state, self.policy, now, self.reading)
        done = await run_node_pass(
            PassContext(self.cluster, self.store, self.policy, now),
            usage=self.state,
            headroom=self.headroom,
            writer=self.writer,
            earlier=self.earlier,
        )
        self.earlier = done.for_next_pass

    def react_to_oom_kill(self, kill, view):
        at = datetime.fromtimestamp(kill.time, UTC)
        self.cluster.show(view)
        pod = self.cluster.pod_of(kill.container)
        [container] = pod.containers
        reaction = self.run(
            self.reactor.react(
                OomKill(
                    pod.namespace,
                    pod.name,
                    pod.uid,
                    container.name,
                    pod.workload,
                    "",
                    pod.node,
                    at,
                    container.limits.memory_bytes,
                    container.requests.memory_bytes,
                    kill.used_bytes,
                ),
                at,
            )
        )
        decision = self.cluster.decision()
        assert reaction is not None
        if decision.evict.size:
            return ReplayedOomReaction(evict=True)
        return ReplayedOomReaction(sizes=decision.sizes if decision.resize.size else None)


class FleetCluster:
    """The Cluster port over a replay's view: actions are collected, and take effect in the view."""

    def __init__(self, recording):
        self.pods = ReplayedPods(recording)
        self.recording = recording
        self.names: list[str] = [""] * len(recording.containers)
        self._view: ReplayClusterView | None = None
        self._resized: dict[int, Pod] = {}
        self._evicted: list[int] = []

    def show(self, view):
        self._view = view
        self._resized, self._evicted = {}, []
        self._snapshot = self.pods.build_snapshot(view)
        self._index = {(one.namespace, self.names[i]): i for i, one in enumerate(self.recording.containers)}

    def name(self, containers, view):
        """Give new pods new names."""
        for index in containers.tolist():
            self.names[index] = f"{self.recording.containers[index].pod}.{int(view.creation_count[index])}"

    def pod_of(self, index):
        assert self._view is not None
        pod = self._resized.get(index) or self.pods.get_pod(index, self._view)
        return replace(pod, name=self.names[index])

    def decision(self) -> ReplayDecision:
        places = np.array(sorted(self._resized), dtype=np.int64)
        sizes = get_container_sizes([self._resized[index] for index in places.tolist()])
        return ReplayDecision(places, sizes, np.array(self._evicted, dtype=np.int64))

    async def snapshot(self):
        assert self._view is not None
        there = [i for i in range(len(self.names)) if self._view.node[i] >= -1 and i not in self._evicted]
        pods = sorted((self.pod_of(index) for index in there), key=lambda pod: (pod.namespace, pod.name))
        # A replay adds nodes for what waits.
        return replace(self._snapshot, pods=tuple(pods), node_autoscaler=NodeAutoscalerKind.CLUSTER_AUTOSCALER)

    async def read_pod(self, namespace, name):
        index = self._index.get((namespace, name))
        return None if index is None or index in self._evicted else self.pod_of(index)

    def get_cached_pod(self, namespace, name):
        index = self._index.get((namespace, name))
        return None if index is None or index in self._evicted else self.pod_of(index)

    def get_cached_autoscalers(self):
        return ()

    def watch_oom_kills(self):
        raise AssertionError("the replay reports kills itself")

    async def wait_for_write_turn(self):
        pass

    async def perform(self, action):
        index = self._index[(action.namespace, action.pod)]
        match action:
            case ResizePod():
                self._resized[index] = replace_spec_resources(self.pod_of(index), action.containers)
            case EvictPod():
                self._evicted.append(index)
            case _:
                raise AssertionError(f"not expected: {action}")


class ObservedUsage:
    """The UsageSourcePort port over the samples that a replay has shown so far."""

    def __init__(self, recording):
        self.recording = recording
        self._samples: dict[tuple[int, int], tuple[str, float, float]] = {}

    def take(self, at, cpu, memory, names):
        step = self.recording.step_seconds
        for row in range(len(cpu)):
            time = at - step * (len(cpu) - 1 - row)
            for index in range(cpu.shape[1]):
                if not (np.isnan(cpu[row, index]) and np.isnan(memory[row, index])):
                    self._samples[(time, index)] = (names[index], cpu[row, index], memory[row, index])

    async def list_partitions(self, snapshot) -> Sequence[str]:
        return ["all"]

    async def read(self, partition, start, end, tail):
        step = self.recording.step_seconds
        times = np.arange((start // step + 1) * step, end + 1, step, dtype=np.int64)
        found: dict[ContainerKey, dict[int, tuple[float, float]]] = {}
        for column, time in enumerate(times.tolist()):
            for index, one in enumerate(self.recording.containers):
                sample = self._samples.get((time, index))
                if sample is not None:
                    key = ContainerKey(one.namespace, sample[0], one.container)
                    found.setdefault(key, {})[column] = (sample[1], sample[2])
        keys = sorted(found)
        cpu = np.full((len(keys), len(times)), np.nan, dtype=np.float32)
        memory = np.full((len(keys), len(times)), np.nan, dtype=np.float64)
        for row, key in enumerate(keys):
            for column, (one_cpu, one_memory) in found[key].items():
                cpu[row, column], memory[row, column] = one_cpu, one_memory
        return SampleBlock(keys, times, cpu, memory, np.ones(len(keys), dtype=np.bool_)), None

    async def read_node_usage(self, nodes, start, end):
        return NO_NODE_USAGE

    async def read_node_loads(self, at) -> Mapping[str, NodeLoadAverage]:
        return {}


def list_written_sizes(decision: ReplayDecision) -> dict[int, tuple[int, int, int]]:
    """Return what a decision writes, by container."""
    sizes: ContainerSizes = decision.sizes
    rows = zip(
        sizes.cpu_millicores.tolist(), sizes.memory_bytes.tolist(), sizes.memory_limit_bytes.tolist(), strict=True
    )
    return dict(zip(decision.resize.tolist(), rows, strict=True))

"""VPA's real recommender, admission and updater as a replay policy: a Go program that receives the samples.

The program `benchmarks/vpa/arena_test.go` calls VPA's packages. In each interval it receives the pods, samples and
kills, runs the recommender, and runs the updater's loops of the interval for a decision.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.vpa_module import built
from cruise.backtest.baselines.bounds import get_provisioned_sizes
from cruise.backtest.baselines.vpa import VpaBaseline
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayOptions,
    ReplayPolicy,
)
from cruise.domain.arrays import Float32Array, Int64Array

_LOOP_SECONDS = 60


class VpaProgram:
    """The Go program, which answers one message at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", answers: int) -> None:
        self._process = process
        self._answers = os.fdopen(answers, "rb")

    def ask(self, **message: object) -> Mapping[str, Any]:
        """Send one message and return the answer. Raises RuntimeError if the program has ended."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise RuntimeError(f"VPA's program has ended with exit code {self._process.wait()}")
        found: Mapping[str, Any] = json.loads(answer)
        return found


@contextmanager
def running_vpa() -> Iterator[VpaProgram]:
    """Build the program if needed, and run it."""
    sources = ("go.mod", "go.sum", "arena_test.go")
    program = built("vpa-arena", ("test", "-c", "-vet=off"), ".", sources)
    ours, theirs = os.pipe()
    command, environment = [str(program), "-test.timeout=0"], {**os.environ, "ARENA_ANSWERS": str(theirs)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=sys.stderr, env=environment, pass_fds=(theirs,)
    ) as process:
        os.close(theirs)
        try:
            yield VpaProgram(process, ours)
        finally:
            process.kill()


class RealVpa(ReplayPolicy):
    """VPA itself, with minReplicas 1 like the replica, or 2, VPA's default.

    `zero_bytes` passes recorded usage of 0 bytes on; the replica counts it as one byte.
    """

    name = "vpa-real"

    def __init__(
        self,
        recording: UsageRecording,
        options: ReplayOptions,
        program: VpaProgram,
        *,
        min_replicas: int = 1,
        zero_bytes: bool = False,
    ) -> None:
        provisioned = get_provisioned_sizes(recording)
        self._program = program
        self._step_seconds = recording.step_seconds
        self._least_bytes = 0 if zero_bytes else 1
        self._has_memory = recording.has_memory
        self._provisioned = provisioned
        self._used: Int64Array = np.zeros(len(recording.containers), dtype=np.int64)
        self._kills: list[tuple[int, int, int]] = []
        self._samples: tuple[int, Float32Array, Float32Array] | None = None
        program.ask(
            setup={
                "workload": recording.number_workload_containers().tolist(),
                "cpu": provisioned.cpu_millicores.tolist(),
                "memory": provisioned.memory_bytes.tolist(),
                "limit": provisioned.memory_limit_bytes.tolist(),
                "nodeCPU": options.node.cpu_millicores,
                "nodeMemory": options.node.memory_bytes,
                "hasMemory": recording.has_memory,
                "stepSeconds": recording.step_seconds,
                "loops": max(1, max(options.pass_seconds, recording.step_seconds) // _LOOP_SECONDS),
                "minReplicas": min_replicas,
            }
        )

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Store the samples until the next view, which tells which pods they belong to."""
        self._samples = at, cpu, memory
        for row in memory:
            seen = ~np.isnan(row)
            self._used[seen] = row[seen]

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the sizes set by the admission controller."""
        answer = self._program.ask(admit=containers.tolist())
        return self._sizes(answer["Sizes"])

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Send the interval to the recommender, and return the updater's decision."""
        self._take_in(view)
        answer = self._program.ask(decide={"view": _view(view), "used": self._used.tolist()})
        resize = np.array(answer["Sizes"]["Container"] or [], dtype=np.int64)
        return ReplayDecision(resize, self._sizes(answer["Sizes"]), np.array(answer["Evict"] or [], dtype=np.int64))

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Record the kill for the recommender and for the pod's status."""
        self._kills.append((kill.container, kill.time, int(view.sizes.memory_bytes[kill.container])))
        return ReplayedOomReaction()

    def _take_in(self, view: ReplayClusterView) -> None:
        if self._samples is None:
            return
        at, cpu, memory = self._samples
        rows = []
        for place, (of_cpu, of_memory) in enumerate(zip(cpu, memory, strict=True)):
            row_at = at - (len(cpu) - 1 - place) * self._step_seconds
            used = _pairs(of_memory, self._least_bytes) if self._has_memory else []
            rows.append({"at": row_at, "cpu": _pairs(of_cpu, 0), "memory": used})
        self._program.ask(observe={"view": _view(view), "rows": rows, "kills": self._kills})
        self._kills, self._samples = [], None

    def _sizes(self, answer: Mapping[str, list[int] | None]) -> ContainerSizes:
        found = ContainerSizes(*(np.array(answer[key] or [], dtype=np.int64) for key in ("CPU", "Memory", "Limit")))
        if self._has_memory:
            return found
        places = np.array(answer["Container"] or [], dtype=np.int64)
        kept = self._provisioned.select(places)
        return ContainerSizes(found.cpu_millicores, kept.memory_bytes, kept.memory_limit_bytes)


class ShadowedPolicy(ReplayPolicy):
    """The replica decides and VPA observes; their decisions and admission sizes are compared."""

    name = "vpa"

    def __init__(self, recording: UsageRecording, options: ReplayOptions, program: VpaProgram) -> None:
        self._replica = VpaBaseline(recording, options)
        self._real = RealVpa(recording, options, program)
        self.passes = 0
        self.equal_decisions = 0
        self.compared = 0
        self.equal_cpu = 0
        self.equal_memory = 0

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Send the samples to both."""
        self._replica.observe(at, cpu, memory)
        self._real.observe(at, cpu, memory)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the replica's sizes."""
        return self._replica.admit(containers, view)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Compare the decisions, and the targets of all running pods; return the replica's decision."""
        decision = self._replica.decide(view)
        self.passes += 1
        self.equal_decisions += _same(decision, self._real.decide(view))
        running = np.flatnonzero(view.node >= 0)
        if running.size:
            one, other = self._replica.admit(running, view), self._real.admit(running, view)
            self.compared += len(running)
            self.equal_cpu += int(np.count_nonzero(one.cpu_millicores == other.cpu_millicores))
            self.equal_memory += int(np.count_nonzero(one.memory_bytes == other.memory_bytes))
        return decision

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Report the kill to both."""
        self._real.react_to_oom_kill(kill, view)
        return self._replica.react_to_oom_kill(kill, view)


def _same(one: ReplayDecision, other: ReplayDecision) -> bool:
    amounts = (
        (decision.resize, decision.sizes.cpu_millicores, decision.sizes.memory_bytes, np.sort(decision.evict))
        for decision in (one, other)
    )
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(*amounts, strict=True))


def _pairs(row: Float32Array, least: int) -> list[tuple[int, int]]:
    """Return the containers with samples, and their amounts rounded up to whole units."""
    seen = np.flatnonzero(row >= 0)
    amounts = np.maximum(np.ceil(row[seen].astype(np.float64)), least).astype(np.int64)
    return list(zip(seen.tolist(), amounts.tolist(), strict=True))


def _view(view: ReplayClusterView) -> Mapping[str, object]:
    return {
        "at": view.time,
        "node": view.node.tolist(),
        "born": view.creation_count.tolist(),
        "bornAt": view.created_at.tolist(),
        "cpu": view.sizes.cpu_millicores.tolist(),
        "memory": view.sizes.memory_bytes.tolist(),
        "limit": view.sizes.memory_limit_bytes.tolist(),
    }

"""From raw counters to usage: increments, restarts, pressure.

A step's usage is the growth of its CPU counter over the step. The meaning of a first value depends on what was there
one step before:

- the same series, higher: the counter was reset, and the value is what it has counted since;
- another series of the same container: the container was restarted under a new id, and the value is what the new one
  has counted since its start;
- nothing: the counter may have run for days unseen, so the step has no usage.

In the first two cases a value that the cores could not have counted within one step is no usage either. Old and new
id side by side are one container: of their demands at a step the larger counts, never the sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruise.adapters.prometheus.matrix import Matrix
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, CounterTail, SampleBlock

# The end of a runtime's id is what differs between a container and its restarted self.
SERIES_LENGTH = 24

SeriesKey = tuple[ContainerKey, str]


@dataclass(frozen=True, slots=True)
class CountersBefore:
    """The counters at the grid time before a read, ready to be looked up; `containers` gives each key as it is."""

    tail: CounterTail | None = None
    rows: Mapping[SeriesKey, int] = field(default_factory=dict)
    containers: Mapping[ContainerKey, ContainerKey] = field(default_factory=dict)

    @staticmethod
    def of(tail: CounterTail | None) -> "CountersBefore":
        """Index a tail."""
        if tail is None:
            return CountersBefore()
        rows = {id_: row for row, id_ in enumerate(zip(tail.keys, tail.series, strict=True))}
        return CountersBefore(tail, rows, {key: key for key in tail.keys})

    def values(self, ids: Sequence[SeriesKey], counters: Float64Array) -> Float64Array:
        """Return each series' counter, NaN for one that was not there."""
        rows = np.fromiter((self.rows.get(id_, -1) for id_ in ids), np.int64, len(ids))
        if not self.rows:
            return np.full(len(ids), np.nan)
        return np.where(rows >= 0, counters[rows], np.nan)


@dataclass(frozen=True, slots=True)
class Answers:
    """The three families of the same containers over the same grid."""

    cpu_seconds: Matrix
    cpu_waiting_seconds: Matrix
    memory_bytes: Matrix


def usage_of(
    answers: Answers, times: Int64Array, step: int, before: CountersBefore, cores: float, pressured_nodes: set[str]
) -> tuple[SampleBlock, CounterTail]:
    """Turn the answers into usage and the tail for the next read.

    `cores` bounds what one container can use; `pressured_nodes` are the nodes on which some pressure was ever seen,
    and is added to: zeros from another node are the kernel's silence, not a measurement.
    """
    ids, cpu, _ = _folded(answers.cpu_seconds, before)
    containers: dict[ContainerKey, int] = {}
    owners = _owners(ids, containers)
    waiting, reported = _pressure(answers.cpu_waiting_seconds, ids, len(times), before, pressured_nodes)

    tail = before.tail
    nowhere = np.full(len(ids), np.nan)
    cpu_full = np.column_stack((nowhere if tail is None else before.values(ids, tail.cpu_seconds), cpu))
    waiting_full = np.column_stack((nowhere if tail is None else before.values(ids, tail.cpu_waiting_seconds), waiting))
    running = _by_owner(np.logical_or, ~np.isnan(cpu_full), owners, len(containers))
    for key, row in containers.items():
        running[row, 0] |= key in before.containers
    restarted_beside = running[owners, :-1]
    used = _increments(cpu_full, restarted_beside, cores * step)
    waited = _increments(waiting_full, restarted_beside, step)
    pressure = np.clip(np.nan_to_num(waited / step), 0.0, 1.0)
    demand = _by_owner(np.fmax, used / step * 1000 * (1 + pressure), owners, len(containers))
    psi_known = _by_owner(np.logical_or, reported[:, None], owners, len(containers))[:, 0]

    memory_ids, memory, nodes = _folded(answers.memory_bytes, before)
    memory_owners = _owners(memory_ids, containers)
    count = len(containers)
    block = SampleBlock(
        keys=list(containers),
        times=times,
        cpu_demand_millicores=_padded(demand, count, np.nan).astype(np.float32),
        memory_bytes=_by_owner(np.fmax, memory, memory_owners, count),
        psi_known=_padded(psi_known, count, False),
        nodes=_nodes(nodes, memory_owners, count),
    )
    alive = np.flatnonzero(~np.isnan(cpu_full[:, -1]))
    return block, CounterTail(
        at=int(times[-1]),
        keys=[ids[row][0] for row in alive],
        series=[ids[row][1] for row in alive],
        cpu_seconds=cpu_full[alive, -1],
        cpu_waiting_seconds=waiting_full[alive, -1],
    )


def joined_tail(tails: Sequence[CounterTail], at: int) -> CounterTail:
    """Return the tails of disjoint reads up to `at` as one."""
    if len(tails) == 1:
        return tails[0]
    return CounterTail(
        at=at,
        keys=[key for tail in tails for key in tail.keys],
        series=[series for tail in tails for series in tail.series],
        cpu_seconds=np.concatenate([tail.cpu_seconds for tail in tails]),
        cpu_waiting_seconds=np.concatenate([tail.cpu_waiting_seconds for tail in tails]),
    )


def _folded(matrix: Matrix, before: CountersBefore) -> tuple[list[SeriesKey], Float64Array, list[str]]:
    """Return the series by container and id, each once, with their values and nodes.

    Keys that the tail holds are taken from there, so that they are in memory once.
    """
    rows: dict[SeriesKey, int] = {}
    nodes: list[str] = []
    keep: list[int] = []
    twins: list[tuple[int, int]] = []
    known = before.containers
    for row, name in enumerate(matrix.series):
        if not (name.namespace and name.pod and name.container):
            continue
        key = ContainerKey(name.namespace, name.pod, name.container)
        place = rows.setdefault((known.get(key, key), name.id[-SERIES_LENGTH:]), len(keep))
        if place == len(keep):
            keep.append(row)
            nodes.append(name.node)
        else:
            twins.append((place, row))
            nodes[place] = nodes[place] or name.node
    values = matrix.values if len(keep) == len(matrix.series) else matrix.values[keep]
    for place, row in twins:
        values[place] = np.fmax(values[place], matrix.values[row])
    return list(rows), values, nodes


def _pressure(
    matrix: Matrix, ids: Sequence[SeriesKey], columns: int, before: CountersBefore, pressured_nodes: set[str]
) -> tuple[Float64Array, BoolArray]:
    """Return the waiting counters of the series `ids`, NaN where absent, and for which of them they mean something."""
    waiting = np.full((len(ids), columns), np.nan)
    reported = np.zeros(len(ids), dtype=np.bool_)
    waiting_ids, values, nodes = _folded(matrix, before)
    counted: BoolArray = np.logical_or.reduce(values > 0, axis=1)
    pressured_nodes.update(node for node, some in zip(nodes, counted, strict=True) if some and node)
    row_of = {id_: row for row, id_ in enumerate(ids)}
    places = np.fromiter((row_of.get(id_, -1) for id_ in waiting_ids), np.int64, len(waiting_ids))
    measured = counted | np.fromiter((node in pressured_nodes for node in nodes), np.bool_, len(nodes))
    found = places >= 0
    waiting[places[found]] = values[found]
    reported[places[found]] = measured[found]
    return waiting, reported


def _owners(ids: Sequence[SeriesKey], containers: dict[ContainerKey, int]) -> Int64Array:
    """Return each series' row among the containers, to which new ones are added."""
    return np.fromiter((containers.setdefault(key, len(containers)) for key, _ in ids), np.int64, len(ids))


def _increments(counters: Float64Array, container_ran: BoolArray, most: float) -> Float64Array:
    """Return the growth over each step of counters (the first column is the time before), NaN where unknown."""
    now, previous = counters[:, 1:], counters[:, :-1]
    growth = now - previous
    seen_before = np.logical_or.accumulate(~np.isnan(previous), axis=1)
    restarted = ~seen_before & container_ran & ~np.isnan(now)
    since_start = restarted | (growth < 0)
    return np.where(since_start, np.where(now <= most, now, np.nan), growth)


def _by_owner(fold: np.ufunc, rows: NDArray[Any], owners: Int64Array, count: int) -> NDArray[Any]:
    """Fold the rows of each owner into one; owners without rows get NaN or False."""
    if len(owners) == count and np.array_equal(owners, np.arange(count)):
        return rows
    folded = np.full((count, rows.shape[1]), False if rows.dtype == np.bool_ else np.nan)
    if len(owners):
        order = np.argsort(owners, kind="stable")
        found, starts = np.unique(owners[order], return_index=True)
        folded[found] = fold.reduceat(rows[order], starts, axis=0)
    return folded


def _padded(rows: NDArray[Any], count: int, filling: float | bool) -> NDArray[Any]:
    if len(rows) == count:
        return rows
    padded = np.full((count, *rows.shape[1:]), filling)
    padded[: len(rows)] = rows
    return padded


def _nodes(nodes: Sequence[str], owners: Int64Array, count: int) -> list[str]:
    of_container = [""] * count
    for node, owner in zip(nodes, owners.tolist(), strict=True):
        of_container[owner] = node or of_container[owner]
    return of_container

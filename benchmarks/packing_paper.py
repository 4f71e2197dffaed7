"""Algorithm 1 of "Priority Matters", implemented from the paper: one boolean per pod and node, tier by tier."""

import time
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.columns.instance import PackingInstance

# The share of the budget that is split equally between the tiers; the rest is for those that need it.
RESERVED_SHARE = 0.6
STAY_WEIGHT, MOVE_WEIGHT = 2, 1


@dataclass(frozen=True, slots=True)
class PaperAnswer:
    """The pods placed per priority from the highest, and which runs of the solver ended with a proof."""

    placed: tuple[int, ...]
    counts_proved: bool
    proved: bool


@dataclass(frozen=True, slots=True)
class _Pod:
    priority: int
    compute_demand: tuple[int, ...]
    where: int | None


def solve_as_paper(instance: PackingInstance, limit_seconds: float, workers: int) -> PaperAnswer:
    """Run both stages of every tier within the limit."""
    run = _Run(instance, limit_seconds, workers)
    for tier in instance.list_priorities():
        run.tier(tier)
    return PaperAnswer(run.placed(), all(run.places_proved), all(run.places_proved) and all(run.moves_proved))


class _Run:
    def __init__(self, instance: PackingInstance, limit_seconds: float, workers: int) -> None:
        self.started = time.monotonic()
        self.instance, self.limit, self.workers = instance, limit_seconds, workers
        self.pods = _pods(instance)
        self.model = cp_model.CpModel()
        nodes = range(instance.node_count)
        self.on = [[self.model.new_bool_var("") for _ in nodes] for _ in self.pods]
        self.reserve = RESERVED_SHARE * limit_seconds / len(instance.list_priorities())
        self.still_reserved = RESERVED_SHARE * limit_seconds
        self.active: list[int] = []
        self.values: dict[int, int | None] = {k: pod.where for k, pod in enumerate(self.pods)}
        self.reached: set[int] = set()
        self.places_proved: list[bool] = []
        self.moves_proved: list[bool] = []

    def tier(self, priority: int) -> None:
        """Maximize the pods placed up to a priority, then the pods that do not move."""
        fresh = [k for k, pod in enumerate(self.pods) if pod.priority == priority]
        self.active += fresh
        for k in fresh:
            self.model.add_at_most_one(self.on[k])
        for n in range(self.instance.node_count):
            for r in range(self.instance.demands.shape[1]):
                load = cp_model.LinearExpr.weighted_sum(
                    [self.on[k][n] for k in self.active], [self.pods[k].compute_demand[r] for k in self.active]
                )
                self.model.add(load <= int(self.instance.capacities[n, r]))
        placed = cp_model.LinearExpr.sum([x for k in self.active for x in self.on[k]])
        self.places_proved.append(self._maximise(placed))
        bound = [k for k in self.active if self.pods[k].where is not None]
        kept = cp_model.LinearExpr.weighted_sum(
            [x for k in bound for x in self.on[k]],
            [STAY_WEIGHT if n == self.pods[k].where else MOVE_WEIGHT for k in bound for n in range(len(self.on[k]))],
        )
        self.still_reserved -= self.reserve
        self.moves_proved.append(self._maximise(kept))

    def placed(self) -> tuple[int, ...]:
        """Return the pods of each priority that the last solution places."""
        return tuple(
            sum(1 for k, pod in enumerate(self.pods) if pod.priority == tier and self.values[k] is not None)
            if tier in self.reached
            else 0
            for tier in self.instance.list_priorities()
        )

    def _maximise(self, metric: cp_model.LinearExprT) -> bool:
        """Maximize within the remaining time; later stages must keep the result."""
        elapsed = time.monotonic() - self.started
        free = self.limit - elapsed - max(self.still_reserved - self.reserve / 2, 0.0)
        self.model.clear_hints()
        for k in self.active:
            for n, x in enumerate(self.on[k]):
                self.model.add_hint(x, self.values[k] == n)
        self.model.maximize(metric)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.workers
        solver.parameters.max_time_in_seconds = max(free, 0.001)
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return False
        for k in self.active:
            self.values[k] = next((n for n, x in enumerate(self.on[k]) if solver.boolean_value(x)), None)
        self.reached |= {self.pods[k].priority for k in self.active}
        value = round(solver.objective_value)
        if status == cp_model.OPTIMAL:
            self.model.add(metric == value)
        else:
            self.model.add(metric >= value)
        return bool(status == cp_model.OPTIMAL)


def _pods(instance: PackingInstance) -> list[_Pod]:
    pods = []
    for c in range(instance.class_count):
        homes: list[int | None] = list(np.repeat(np.arange(instance.node_count), instance.running[c]).tolist())
        homes += [None] * (int(instance.counts[c]) - len(homes))
        demand = tuple(int(value) for value in instance.demands[c])
        pods += [_Pod(int(instance.priorities[c]), demand, where) for where in homes]
    return pods

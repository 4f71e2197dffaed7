"""Sets of obstacles are minimal: every smaller set is tried on tiny clusters."""

import math
from itertools import combinations

import numpy as np

from cruise.decisions.packing.problem import BuiltProblem, build_packing_problem
from cruise.decisions.packing.unschedulable import explain_unplaced_pods
from cruise.decisions.packing.volumes import VolumeIndex
from cruise.domain.cluster import Node
from cruise.domain.scheduling import SchedulingConstraints
from cruise.packer.budget import BudgetMeter
from cruise.packer.exact.model import solve_exact
from cruise.packer.problem import ExclusionRule, IntArray
from tests.decisions.packing.clusters import cluster_of
from tests.decisions.packing.reports import ignore

PROTECTIONS = {"disruption-budget", "eviction-limit", "not-evictable"}


def test_no_smaller_set_would_let_the_pod_in_and_this_one_does():
    seen: dict[tuple[str, ...], int] = {}
    for seed in range(200):
        built = build_packing_problem(cluster_of(seed))
        packing = solve_exact(built.problem, built.problem.pod_node, BudgetMeter(math.inf, math.inf), ignore)
        of_name = {(pod.namespace, pod.name): index for index, pod in enumerate(built.pods)}
        for one in explain_unplaced_pods(built, packing):
            index = of_name.get((one.namespace, one.pod))
            if index is None:
                continue
            asked = Asked(built, packing.pod_node, index)
            known = asked.everything()
            if not asked.may_ever(set()):
                would, must = asked.may_ever, True
            else:
                would, must = asked.would_fit, False
            # What a budget stands in the way of is possible once it allows more.
            passing = bool({"disruption-budget", "eviction-limit"} & set(one.blocked_by))
            assert not (one.impossible and passing)
            assert one.impossible or passing or one.reason.preemptible or not must
            assert would(set(one.blocked_by)), (seed, one)
            for smaller in combinations(sorted(known), len(one.blocked_by) - 1):
                assert not would(set(smaller)), (seed, one, smaller)
            seen[one.blocked_by] = seen.get(one.blocked_by, 0) + 1
    assert len(seen) > 15


class Asked:
    """Whether a waiting pod would fit some node with some obstacles dropped, one plain check after the other."""

    def __init__(self, built: BuiltProblem, pod_node: IntArray, index: int) -> None:
        self.built, self.problem, self.pod_node, self.index = built, built.problem, pod_node, index
        self.pod = built.pods[index]
        self.kind = int(self.problem.pod_class[index])
        self.volumes = VolumeIndex(built.snapshot.storage_and_namespaces)
        ran = self.problem.pod_node >= 0
        self.gone = ran & (pod_node != self.problem.pod_node)

    def everything(self) -> set[str]:
        resources = {"attach-limit" if name.startswith("attach:") else name for name in self.problem.resources}
        fixed = {"cordoned", "not-ready", "taints", "node-selector", "node-affinity", "volume", "preemption-policy"}
        return resources | fixed | PROTECTIONS | {"affinity", "anti-affinity", "host-ports", "topology-spread"}

    def would_fit(self, dropped: set[str]) -> bool:
        placed = [p for p in range(self.problem.pod_count) if self.pod_node[p] >= 0]
        return any(
            self._admits(node, dropped)
            and self._has_room(n, placed, dropped)
            and self._keeps_apart(n, placed, dropped)
            and self._has_company(n, placed, dropped)
            and self._is_even(n, placed, dropped)
            and self._takes_from_nobody(n, dropped)
            for n, node in enumerate(self.built.nodes)
        )

    def may_ever(self, dropped: set[str]) -> bool:
        stuck = [
            p
            for p in range(self.problem.pod_count)
            if self.problem.pod_node[p] >= 0 and not self.problem.movable[self.problem.pod_class[p]]
        ]
        return any(
            self._admits(node, dropped)
            and self._has_room_beside_stuck(n, stuck, dropped)
            and self._keeps_apart(n, stuck, dropped)
            and self._may_have_company(n, dropped)
            for n, node in enumerate(self.built.nodes)
        )

    def _admits(self, node: Node, dropped: set[str]) -> bool:
        placement, pod = self.pod.placement, self.pod
        keys = [term.topology_key for term in pod.constraints.affinity]
        spread_keys = [spread.topology_key for spread in pod.constraints.spread]
        terms = self.volumes.get_for_pod(pod).terms
        faults = {
            "cordoned": node.unschedulable,
            "not-ready": not node.ready,
            "taints": not placement.tolerates_all(node.taints),
            "node-selector": not SchedulingConstraints(node_selector=placement.node_selector).allows_node(
                node.name, node.labels
            ),
            "node-affinity": not SchedulingConstraints(terms=placement.terms).allows_node(node.name, node.labels),
            "volume": not all(any(term.matches(node.name, node.labels) for term in one) for one in terms),
            "affinity": any(key not in node.labels for key in keys),
            "topology-spread": any(key not in node.labels for key in spread_keys),
        }
        return not any(wrong and obstacle not in dropped for obstacle, wrong in faults.items())

    def _has_room(self, n: int, placed: list[int], dropped: set[str]) -> bool:
        here = [p for p in placed if self.pod_node[p] == n]
        if self._fits(n, here, dropped):
            return True
        polite = not self.problem.preempt[self.kind]
        if polite and "preemption-policy" not in dropped:
            return False
        if not polite and not dropped & PROTECTIONS:
            return False
        mine = self.problem.priorities[self.kind]
        left = [p for p in here if not (self._priority(p) < mine and self._goes(p, dropped))]
        return self._fits(n, left, set())

    def _has_room_beside_stuck(self, n: int, stuck: list[int], dropped: set[str]) -> bool:
        here = [p for p in stuck if self.problem.pod_node[p] == n]
        left = [p for p in here if self._protection(p) not in dropped]
        return self._fits(n, here, dropped) or self._fits(n, left, set())

    def _fits(self, n: int, here: list[int], dropped: set[str]) -> bool:
        for r, name in enumerate(self.problem.resources):
            if ("attach-limit" if name.startswith("attach:") else name) in dropped:
                continue
            wanted = [self.problem.demands[self.problem.pod_class[p], r] for p in (*here, self.index)]
            if self.problem.demands[self.kind, r] > 0 and sum(wanted) > self.problem.capacities[n, r]:
                return False
        return True

    def _priority(self, p: int) -> int:
        return int(self.problem.priorities[self.problem.pod_class[p]])

    def _goes(self, p: int, dropped: set[str]) -> bool:
        protection = self._protection(p)
        return protection in dropped if protection else bool(self.problem.movable[self.problem.pod_class[p]])

    def _protection(self, p: int) -> str:
        kind = self.problem.pod_class[p]
        if self.problem.pod_node[p] >= 0 and not self.problem.movable[kind]:
            return self._named(self.built.immovable_reasons[p] or "")
        named = ""
        for index, limit in enumerate(self.problem.rules.eviction_limits):
            used = sum(bool(self.gone[q]) for q in range(self.problem.pod_count) if self._in(q, limit.members))
            if self._in(p, limit.members) and self.problem.pod_node[p] == self.pod_node[p] and used >= limit.allowed:
                named = self.built.limit_obstacles[index].value
        return named

    def _in(self, p: int, classes: IntArray) -> bool:
        return int(self.problem.pod_class[p]) in classes.tolist()

    def _named(self, stays: str) -> str:
        if stays.startswith(("several-budgets", "budget-exhausted")):
            return "disruption-budget"
        return "eviction-limit" if stays.startswith("evictions-spent") else "not-evictable"

    def _keeps_apart(self, n: int, placed: list[int], dropped: set[str]) -> bool:
        alike = sum(self._in(p, np.array([self.kind])) and self.pod_node[p] == n for p in placed)
        alone = "anti-affinity" if self.pod.constraints.anti_affinity else "host-ports"
        if alike >= self.problem.max_on_node[self.kind] and alone not in dropped:
            return False
        for index, rule in enumerate(self.problem.rules.exclusions):
            if self.built.exclusion_obstacles[index] in dropped:
                continue
            domains = self.problem.rules.topologies[rule.topology]
            for p in placed:
                together = domains[n] >= 0 and domains[self.pod_node[p]] == domains[n]
                met = rule.holder == self.kind and self._in(p, rule.targets)
                meets = self.kind in rule.targets.tolist() and self._in(p, np.array([rule.holder]))
                if together and (met or meets):
                    return False
        return True

    def _has_company(self, n: int, placed: list[int], dropped: set[str]) -> bool:
        if "affinity" in dropped:
            return True
        for rule in self.problem.rules.attractions:
            if rule.holder != self.kind:
                continue
            there = [p for p in placed if self._in(p, rule.targets)]
            labels = self.problem.rules.topologies[list(rule.topologies)] >= 0
            counted = [p for p in there if labels[:, self.pod_node[p]].any()]
            if not counted and self.kind in rule.targets.tolist():
                continue
            for topology in rule.topologies:
                domains = self.problem.rules.topologies[topology]
                if not any(domains[self.pod_node[p]] == domains[n] for p in there):
                    return False
        return True

    def _may_have_company(self, n: int, dropped: set[str]) -> bool:
        if "affinity" in dropped:
            return True
        for rule in self.problem.rules.attractions:
            if rule.holder != self.kind:
                continue
            shunned = [
                exclusion
                for exclusion in self.problem.rules.exclusions
                if exclusion.holder == self.kind or self.kind in exclusion.targets.tolist()
            ]
            for topology in rule.topologies:
                domains = self.problem.rules.topologies[topology]
                domain = [m for m in range(self.problem.node_count) if domains[m] == domains[n]]
                if not any(self._may_be_in(target, domain) for target in rule.targets.tolist()):
                    return False
                if self.kind not in rule.targets.tolist() and all(
                    any(self._always_meets(exclusion, target, domains) for exclusion in shunned)
                    for target in rule.targets.tolist()
                ):
                    return False
        return True

    def _may_be_in(self, target: int, domain: list[int]) -> bool:
        runs = self.problem.pod_node[self.problem.pod_class == target]
        return bool(
            np.isin(runs, domain).any()
            or self.problem.allowed_nodes[self.problem.node_mask_of_class[target], domain].any()
        )

    def _always_meets(self, exclusion: ExclusionRule, target: int, domains: IntArray) -> bool:
        apart = self.problem.rules.topologies[exclusion.topology]
        held = exclusion.holder == self.kind and target in exclusion.targets.tolist()
        holds = exclusion.holder == target and self.kind in exclusion.targets.tolist()
        pairs = [(a, b) for a in range(len(domains)) for b in range(len(domains)) if domains[a] == domains[b] >= 0]
        return (held or holds) and all(apart[a] == apart[b] >= 0 for a, b in pairs)

    def _is_even(self, n: int, placed: list[int], dropped: set[str]) -> bool:
        if "topology-spread" in dropped:
            return True
        for rule in self.problem.rules.spreads:
            counted = self.kind in rule.targets.tolist()
            if rule.holder != self.kind and not counted:
                continue
            domains = self.problem.rules.topologies[rule.topology]
            counts = {int(domains[m]): 0 for m in range(len(domains)) if rule.eligible[m] and domains[m] >= 0}
            for p in placed:
                if self._in(p, rule.targets) and rule.eligible[self.pod_node[p]] and domains[self.pod_node[p]] >= 0:
                    counts[int(domains[self.pod_node[p]])] += 1
            least = 0 if len(counts) < rule.min_domains else min(counts.values(), default=0)
            after = counts.get(int(domains[n]), 0) + counted - least
            arrived = {
                int(domains[self.pod_node[p]])
                for p in placed
                if self._in(p, np.array([rule.holder])) and self.pod_node[p] != self.problem.pod_node[p]
            }
            if rule.holder == self.kind and after > rule.max_skew:
                return False
            if rule.holder != self.kind and int(domains[n]) in arrived and rule.eligible[n] and after > rule.max_skew:
                return False
        return True

    def _takes_from_nobody(self, n: int, dropped: set[str]) -> bool:
        if self.problem.preempt[self.kind] or "preemption-policy" in dropped:
            return True
        return not ((self.problem.pod_node == n) & (self.pod_node < 0)).any()

"""The judge of plans: slow, obvious, and sharing nothing with what makes them."""

from cruise.packer.dense.instance import Instance
from tests.packer.dense.plans import Plan


def find_violations(instance: Instance, plan: Plan) -> tuple[str, ...]:
    """Everything that is wrong with a plan, in words; empty for a plan that may be used."""
    classes, nodes = range(instance.demands.shape[0]), range(instance.capacities.shape[0])
    if plan.assignment.shape != (len(classes), len(nodes)):
        return (f"the assignment has shape {plan.assignment.shape}",)
    found: list[str] = []
    for c in classes:
        total = sum(int(plan.assignment[c, n]) for n in nodes)
        if total > int(instance.counts[c]):
            found.append(f"class {c}: {total} copies placed, {int(instance.counts[c])} exist")
        ran = sum(int(instance.running[c, n]) for n in nodes)
        if not instance.preemptible[c] and total < ran:
            found.append(f"class {c}: {total} copies placed of {ran} that may not be preempted")
        for n in nodes:
            found += _judge_cell(instance, plan, c, n)
    for n in nodes:
        found += _judge_node(instance, plan, n)
    return (*found, *_judge_vector(instance, plan))


def _judge_cell(instance: Instance, plan: Plan, c: int, n: int) -> list[str]:
    copies, running = int(plan.assignment[c, n]), int(instance.running[c, n])
    found = []
    if copies < 0:
        found.append(f"class {c} on node {n}: {copies} copies")
    if copies > int(instance.most[c, n]) and copies > running:
        found.append(f"class {c} on node {n}: {copies} copies, {int(instance.most[c, n])} allowed, {running} running")
    if not instance.movable[c] and copies < running:
        found.append(f"class {c} on node {n}: {copies} copies, though {running} may not move")
    return found


def _judge_node(instance: Instance, plan: Plan, n: int) -> list[str]:
    found = []
    for r in range(instance.capacities.shape[1]):
        used = stuck = shared = stuck_shared = 0
        for c in range(instance.demands.shape[0]):
            used += int(plan.assignment[c, n]) * int(instance.demands[c, r])
            if plan.assignment[c, n] > 0:
                shared = max(shared, int(instance.headroom[c, r]))
            if not instance.movable[c] and instance.running[c, n] > 0:
                stuck += int(instance.running[c, n]) * int(instance.demands[c, r])
                stuck_shared = max(stuck_shared, int(instance.headroom[c, r]))
        if used + shared > int(instance.capacities[n, r]) and used + shared > stuck + stuck_shared:
            there = int(instance.capacities[n, r])
            found.append(f"node {n}: {used} of resource {r} used and {shared} kept for all, {there} there")
    return found


def _judge_vector(instance: Instance, plan: Plan) -> list[str]:
    placed: dict[int, int] = {}
    stayed: dict[int, int] = {}
    for c in range(instance.demands.shape[0]):
        tier = int(instance.priorities[c])
        copies = [int(plan.assignment[c, n]) for n in range(instance.capacities.shape[0])]
        placed[tier] = placed.get(tier, 0) + sum(copies)
        kept = sum(min(x, int(instance.running[c, n])) for n, x in enumerate(copies))
        stayed[tier] = stayed.get(tier, 0) + kept
    claimed = [(figures.priority, figures.placed, figures.stayed) for figures in plan.vector]
    true = [(tier, placed[tier], stayed[tier]) for tier in sorted(placed, reverse=True)]
    return [] if claimed == true else [f"the plan claims {claimed}, it achieves {true}"]


def find_faults(instance: Instance) -> list[str]:
    """What makes the arrays no problem at all, in words; an empty list for a sound instance."""
    classes, nodes = instance.class_count, instance.node_count
    resources = instance.demands.shape[1] if instance.demands.ndim == 2 else 0
    shapes = {
        "demands": (instance.demands.shape, (classes, resources)),
        "headroom": (instance.headroom.shape, (classes, resources)),
        "priorities": (instance.priorities.shape, (classes,)),
        "counts": (instance.counts.shape, (classes,)),
        "movable": (instance.movable.shape, (classes,)),
        "preemptible": (instance.preemptible.shape, (classes,)),
        "weights": (instance.weights.shape, (classes,)),
        "running": (instance.running.shape, (classes, nodes)),
        "most": (instance.most.shape, (classes, nodes)),
        "capacities": (instance.capacities.shape, (nodes, resources)),
    }
    faults = [f"{name} has shape {found}, not {wanted}" for name, (found, wanted) in shapes.items() if found != wanted]
    if faults:
        return faults
    for name in ("demands", "headroom", "counts", "weights", "running", "most", "capacities"):
        if (getattr(instance, name) < 0).any():
            faults.append(f"{name} has a negative entry")
    if (instance.running.sum(axis=1) > instance.counts).any():
        faults.append("more copies run than exist")
    return faults

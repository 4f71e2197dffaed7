"""`cruise plan`: node plans from files; nothing is contacted."""

from typing import TYPE_CHECKING, Annotated

from cruise.cli.options import (
    ConfigOption,
    Format,
    FormatOption,
    ModeName,
    ModeOption,
    NowOption,
    RulesOption,
    SnapshotOption,
    UsageOption,
    near,
    optional,
    parse_time,
    policy_of,
)
from cruise.cli.terminal import busy, print_parts, table_console, write_json
from cruise.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from cruise.decisions.sizing.node_plans import NodePlan
    from cruise.domain.cluster import Snapshot
    from cruise.domain.policy import Mode


def plan(
    snapshot: SnapshotOption,
    usage: UsageOption,
    now: NowOption = None,
    node: Annotated[
        list[str] | None, optional("--node", "NAME", "Only this node, every container; repeatable.")
    ] = None,
    mode: ModeOption = ModeName.FULL,
    rules: RulesOption = None,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Plan every node from files: what each container gets, which pods are evicted, what is left alone.

    Nothing is contacted and nothing is changed. A snapshot shows one moment: what a node is short of in it is taken to
    have been short a pass before as well, which is when the controller begins to evict.

    The snapshot is what this prints:

      kubectl get no,po,rs,deploy,sts,ds,job,cj,pdb,hpa,limits,ns -A -o json

    Examples:
      cruise plan --snapshot cluster.json --usage usage.json

      cruise plan --snapshot cluster.json --usage usage.json --node worker-3

      cruise plan --snapshot cluster.json --usage usage.json --format json
    """
    from cruise.cli.inputs.files import is_large, load_snapshot, load_usage
    from cruise.collection import uncollected
    from cruise.decisions.admission.replacing import replacements
    from cruise.decisions.sizing.node_plans import decide_node_plans
    from cruise.interfaces.plan.document import plan_json

    policy, at = policy_of(config, mode, rules), parse_time(now)
    with uncollected():
        cluster = load_snapshot(snapshot, policy.node_autoscaler)
        wanted = _wanted(node, cluster)
        statistics, at = load_usage(usage, cluster, at, policy)
        with busy(f"deciding {len(cluster.nodes):,} nodes", is_large(snapshot)):
            # All of them, since a pod that goes may take the room that another one would need.
            plans = decide_node_plans(cluster, statistics, policy, at, replacements=replacements)
        if wanted is not None:
            plans = [one for one in plans if one.node in wanted]
        if format is Format.JSON:
            write_json(plan_json(plans))
        else:
            _print_table(plans, cluster, wanted is not None, at, policy.mode)


def _print_table(
    plans: "Sequence[NodePlan]", snapshot: "Snapshot", in_full: bool, at: "datetime", mode: "Mode"
) -> None:
    from cruise.decisions.usage.shown_kills import kills_that_count
    from cruise.interfaces.plan.node_table import node_table
    from cruise.interfaces.plan.table import plan_table

    console = table_console()
    console.print(f"Decided for {at:%Y-%m-%d %H:%M:%S} UTC as mode {mode.label}; nothing was contacted.\n")
    pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    print_parts(plan_table(plans, pods, console, in_full), console)
    if in_full:
        killed = {(kill.namespace, kill.pod) for kill in kills_that_count(snapshot, at)}
        for plan in plans:
            print_parts(node_table(plan, pods, killed), console)


def _wanted(names: list[str] | None, snapshot: "Snapshot") -> frozenset[str] | None:
    """Return the nodes to plan, None for all. Raises BadInput for one that is not there."""
    if not names:
        return None
    known = {node.name for node in snapshot.nodes}
    for name in names:
        if name not in known:
            raise BadInput(f"--node: the snapshot has no node {name}{near(name, sorted(known))}")
    return frozenset(names)

"""What one kubelet tells of its containers, for comparison with what is read elsewhere."""

from collections.abc import Callable

import numpy as np

from cruise.adapters.kubelets.source import Ask, figures_of_node
from cruise.adapters.prometheus.folding import SERIES_LENGTH
from cruise.domain.cluster import Node
from cruise.domain.cross_check import NodeTold
from cruise.domain.usage import ContainerKey


async def told_by(ask: Ask, node: Node, clock: Callable[[], float]) -> NodeTold:
    """Ask a kubelet; `clock` gives Unix seconds. Raises BadInput, Unavailable."""
    figures = figures_of_node(await ask(node), node)
    rows = [row for row, name in enumerate(figures.series) if name.container]
    names = [figures.series[row] for row in rows]
    taken_at = figures.taken_at[rows]
    return NodeTold(
        node=node.name,
        # Each container is measured at a moment of its own, some seconds before.
        at=float(np.nanmedian(taken_at)) if not np.isnan(taken_at).all() else clock(),
        keys=[ContainerKey(name.namespace, name.pod, name.container) for name in names],
        series=[name.id[-SERIES_LENGTH:] for name in names],
        cpu_seconds=figures.cpu_seconds[rows],
        memory_bytes=figures.memory_bytes[rows],
    )

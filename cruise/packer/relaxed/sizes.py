"""Classes by their sizes: what is nearly alike is worth nearly the same."""

import numpy as np

from cruise.packer.arrays import FloatArray
from cruise.packer.problem import Problem

# Sizes in each of the two scarcest resources at which prices are known, from coarse to fine; between, they blend.
_KNOTS = (2, 4, 8)


def by_size(problem: Problem) -> FloatArray:
    """How much of a class's price is that of each corner of the nets over all sizes: a row for each class."""
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    wanted = problem.demands[problem.pod_class].sum(axis=0) / total
    scarce = np.argsort(-wanted, kind="stable")[:2]
    nets = []
    for knots in _KNOTS:
        net = np.ones((problem.class_count, 1))
        for r in scarce.tolist():
            share = _shares(problem.demands[:, r].astype(np.float64), knots)
            net = (net[:, :, None] * share[:, None, :]).reshape(len(net), -1)
        nets.append(net)
    # What is small fits into gaps for nothing: its price follows that of the others less.
    room = (problem.demands[:, scarce] / total[scarce]).sum(axis=1)
    every = np.minimum(room / max(room.mean(), 1e-12), 1.0)[:, None] * np.concatenate(nets, axis=1)
    return np.asarray(every[:, every.any(axis=0)], dtype=np.float64)


def _shares(sizes: FloatArray, knots: int) -> FloatArray:
    """Each size as a blend of the two knots beside it, which have equally many classes between them."""
    at = np.unique(np.quantile(sizes, np.linspace(0.0, 1.0, knots))) if len(sizes) else np.zeros(1)
    shares = np.zeros((len(sizes), len(at)))
    if len(at) == 1:
        return shares + 1.0
    below = np.clip(np.searchsorted(at, sizes, side="right") - 1, 0, len(at) - 2)
    blend = (sizes - at[below]) / (at[below + 1] - at[below])
    every = np.arange(len(sizes))
    shares[every, below], shares[every, below + 1] = 1.0 - blend, blend
    return shares

"""Prices at which known changes agree: derived from the shares of changes, and never too optimistic."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.kernels.price_agreement import create_node_changes, improve_prices
from tests.tiers import examples

STEP = 50.0


def _known(draws, nodes, classes):
    """Changes of each node, at random, none of them with a share yet."""
    changes = create_node_changes(nodes, 5, 3)
    for g in range(nodes):
        changes.change_count[g] = draws.integers(1, 6)
        for k in range(1, changes.change_count[g]):
            length = int(draws.integers(1, min(3, classes) + 1))
            changes.length[g, k] = length
            changes.pod_class[g, k, :length] = draws.choice(classes, length, replace=False)
            changes.added_copies[g, k, :length] = draws.integers(-2, 3, length)
            changes.cost[g, k] = draws.integers(0, 300)
    return changes


def _brought(changes, share, classes):
    brought = np.zeros(classes)
    for g, k in np.argwhere(share > 0.0):
        length = changes.length[g, k]
        np.add.at(brought, changes.pod_class[g, k, :length], share[g, k] * changes.added_copies[g, k, :length])
    return brought


def _most(changes, price):
    """What nodes gain at most by known changes."""
    total = 0.0
    for g, known in enumerate(changes.change_count.tolist()):
        gains = [
            price[changes.pod_class[g, k, : changes.length[g, k]]] @ changes.added_copies[g, k, : changes.length[g, k]]
            - changes.cost[g, k]
            for k in range(known)
        ]
        total += max(gains)
    return total


@examples(60)
@given(st.integers(0, 2**32))
def test_agreed_prices_follow_from_what_lacks_and_promise_no_less_than_those_they_are_near_to(seed):
    draws = np.random.default_rng(seed)
    classes = int(draws.integers(1, 6))
    changes = _known(draws, int(draws.integers(1, 6)), classes)
    wanted, near = draws.integers(0, 4, classes).astype(float), draws.integers(0, 400, classes).astype(float)
    most = np.where(draws.random(classes) < 0.3, 400.0, np.inf)
    lacks, price, scratch = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    gains = improve_prices(changes, wanted, near, STEP, most, lacks, price, scratch, 2000, np.zeros(1, dtype=np.int64))
    assert np.allclose(changes.share.sum(axis=1), 1.0)
    assert (changes.share >= -1e-12).all()
    assert np.allclose(lacks, wanted - _brought(changes, changes.share, classes))
    assert np.allclose(price, np.clip(near + STEP * lacks, 0.0, most))
    assert not scratch.any()
    assert np.isclose(gains, _most(changes, price))
    # Up to gains that count as even, of which each node has one.
    assert wanted @ price - gains >= wanted @ near - _most(changes, near) - len(changes.change_count)

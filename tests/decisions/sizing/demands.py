"""Synthetic demand and past demand for headroom models."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from cruise.decisions.sizing.demand import ResourceDemand
from cruise.decisions.sizing.headroom import HourlyMaxima, PastDemand
from cruise.domain.resources import ResourceName

CPU = ResourceName.CPU


def make_demand(base, headroom):
    base, headroom = np.array(base, dtype=np.int64), np.array(headroom, dtype=np.int64)
    nothing, managed = np.zeros_like(base), np.ones(len(base), dtype=np.bool_)
    return ResourceDemand(
        base, base + headroom, base, headroom, base + headroom, nothing, nothing, nothing, managed, nothing
    )


def make_past_demand(recent, hours=None):
    recent = np.array(recent, dtype=np.float32)
    hours = np.empty((len(recent), 0)) if hours is None else hours
    hours = np.array(hours, dtype=np.float32)
    return make_past_demand_by_resource(dict.fromkeys(ResourceName, recent), dict.fromkeys(ResourceName, hours))


def make_past_demand_by_resource(recent, hours=None):
    """Return past demand from matrices with a row per row of the statistics."""
    count = len(recent[CPU])
    if hours is None:
        return replace(PastDemand.create_empty(count), recent=recent)
    maxima = HourlyMaxima({one: values.T for one, values in hours.items()})
    return PastDemand(recent, maxima, np.arange(count))


@st.composite
def pods(draw, most=6):
    """Return demand with one container per pod, and matching past demand, partly unknown."""
    count = draw(st.integers(1, most))
    amounts = st.integers(0, 1000)
    recent = np.array(
        draw(st.lists(st.lists(amounts, min_size=12, max_size=12), min_size=count, max_size=count)), float
    )
    hours = np.array(draw(st.lists(st.lists(amounts, min_size=7, max_size=7), min_size=count, max_size=count)), float)
    base = np.array(draw(st.lists(amounts, min_size=count, max_size=count)))
    peak = np.maximum(np.maximum(recent.max(axis=1), hours.max(axis=1)), base).astype(np.int64)
    unknown = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    recent[unknown] = np.nan
    return make_demand(base, peak - base), make_past_demand(recent, hours)


def make_joint_demand(model, demand, rows=None):
    """Return the headroom of one node with all pods on it."""
    rows = np.arange(len(demand.base)) if rows is None else np.array(rows)
    chosen = ResourceDemand(*(getattr(demand, name)[rows] for name in ResourceDemand.__slots__))
    extras = model.get_columns_to_sum(CPU, rows, chosen).sum(axis=0, keepdims=True)
    [found] = model.compute_node_headroom(
        CPU, chosen.base.sum(keepdims=True), chosen.headroom.max(initial=0, keepdims=True), extras
    ).tolist()
    return found

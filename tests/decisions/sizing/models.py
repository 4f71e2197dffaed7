"""Every headroom model, prepared from synthetic past demand."""

import numpy as np
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom import HEADROOM_MODELS, HeadroomModel
from cruise.decisions.sizing.headroom_level import LEAST_LEVEL, MOST_LEVEL, ObservedRisk
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable
from tests.decisions.sizing.demands import make_past_demand_by_resource


def every_model(table: StatisticsTable, random: np.random.Generator) -> dict[str, HeadroomModel]:
    """Prepare each model for a table: pods demanded up to twice their peaks, or were not sampled."""
    peaks = {ResourceName.CPU: table.cpu_peak_millicores, ResourceName.MEMORY: table.memory_peak_bytes}

    def demanded(columns):
        found = {one: peak[:, None] * random.uniform(0, 2, (len(peak), columns)) for one, peak in peaks.items()}
        for values in found.values():
            values[random.random(values.shape) < 0.1] = np.nan
        return {one: values.astype(np.float32) for one, values in found.items()}

    past = make_past_demand_by_resource(demanded(12), demanded(int(random.integers(15))))
    risks = {one: ObservedRisk(0.07, random.uniform(LEAST_LEVEL, MOST_LEVEL), 0, 0) for one in ResourceName}
    return {name: model.prepare(past, risks) for name, model in HEADROOM_MODELS.items()}


@st.composite
def models(draw: st.DrawFn, table: StatisticsTable) -> HeadroomModel:
    """Draw a model."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    return every_model(table, random)[draw(st.sampled_from(sorted(HEADROOM_MODELS)))]

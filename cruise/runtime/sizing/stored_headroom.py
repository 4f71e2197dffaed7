"""The headroom model as the next node pass would prepare it, rebuilt from the store, for `explain`."""

import numpy as np

from cruise.decisions.sizing.headroom.choosing import MODELS
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.usage.peaks import peak_hours
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.runtime.ports import Store
from cruise.runtime.sizing.pass_headroom import PassHeadroom
from cruise.runtime.usage.peaks import PeakNumbers
from cruise.runtime.usage.state import UsageState
from cruise.runtime.usage.windows import WINDOW_SECONDS, UsageWindows

_STEP_SECONDS = 60


async def stored_headroom(store: Store, statistics: StatisticsTable, policy: Policy) -> Headroom:
    """Prepare the policy's model for `statistics`, from the samples and scores that are stored; writes nothing."""
    if not MODELS[policy.headroom].reads_usage or not statistics.keys:
        return SHARED_MAX
    at = int(statistics.updated_at.max())
    blocks = [block for block in await store.recent_blocks(at - WINDOW_SECONDS) if len(block.times)]
    times = np.unique(np.concatenate([block.times for block in blocks])) if blocks else np.empty(0, dtype=np.int64)
    usage = UsageState(windows=UsageWindows(int(np.diff(times).min()) if len(times) > 1 else _STEP_SECONDS))
    for block in blocks:
        # What their peaks belong to does not matter here.
        usage.windows.append(block, np.zeros(len(block.keys), dtype=np.int64))
    usage.windows.advance(at)
    usage.peaks = PeakNumbers(peak_hours(at, int(policy.look_ahead.total_seconds())))
    return await PassHeadroom(usage).prepare(store, statistics, policy)

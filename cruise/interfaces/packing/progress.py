"""One line on how far a search has got."""

from cruise.interfaces.amounts import count_text
from cruise.packer.answer import Packing
from cruise.packer.problem import Objective


def progress_text(packing: Packing, objective: Objective, pods: int) -> str:
    """Write the best packing so far and what none surpasses: `131 of 140 pods placed, at most 133; 4 leave`."""
    if objective is Objective.FLEET:
        least = -packing.bound[len(packing.after.tiers)]
        return f"nodes at {packing.after.price:,} of {packing.now.price:,}, at least {least:,}"
    placed = sum(tier.placed for tier in packing.after.tiers)
    stayed = sum(tier.stayed for tier in packing.after.tiers)
    ran = sum(tier.placed for tier in packing.now.tiers)
    step = 2 if objective is Objective.PAPER else 1
    counts = packing.bound[: step * len(packing.after.tiers) : step]
    most = min(pods, sum(counts))
    bound = f", at most {most:,}" if most > placed else ", no more can be"
    return f"{placed:,} of {count_text(pods, 'pod')} placed{bound}; {ran - stayed:,} leave"

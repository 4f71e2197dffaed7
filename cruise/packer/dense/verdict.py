"""What a decision about a target says."""

from dataclasses import dataclass

from cruise.packer.arrays import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Whether the target can be reached (None: not decided in time), by how many uses of each filling."""

    reachable: bool | None
    uses: IntArray

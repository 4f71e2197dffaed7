"""What a database says of its own past, so that a copy of an earlier state is recognised."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatabaseHistory:
    """`epoch` grows with each stored read of usage, intent and kill; a database with a smaller one is an earlier state.

    `lost_until` (Unix seconds, 0 for never) is until when usage and evictions were missing the last time that the
    database was found to be at an earlier state; `regained` tells whether that usage was read again since.
    """

    epoch: int = 0
    lost_until: int = 0
    regained: bool = True

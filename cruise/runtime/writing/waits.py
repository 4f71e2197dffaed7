"""How long writers wait for what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriteWaits:
    """The waits of the writers of one process, in seconds.

    Between `poll` and `poll` the store is read for the pause, and the audit written; `pause_answer` is how long the
    store may take to say whether writing is paused. After a 429 the server's own delay counts, else `first_delay`,
    doubled each time, never over `longest_delay`; after `most_delay` in which nothing went through, the rest is left
    to the next pass. A write under way when its plan is given up has `answer` to be answered, well inside what a Lease
    leaves.
    """

    poll: float = 0.4
    pause_answer: float = 10.0
    first_delay: float = 0.5
    longest_delay: float = 30.0
    most_delay: float = 60.0
    answer: float = 3.0


WRITE_WAITS = WriteWaits()

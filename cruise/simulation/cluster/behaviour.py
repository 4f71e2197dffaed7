"""How a simulated cluster behaves where real ones differ."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Versions and delays; times in seconds.

    Everything is decided on a grid of `step_seconds`; what a kubelet or a container does in between happens at its
    own second. Measurements are kept once a minute, or once a step where steps are longer.
    """

    seed: int = 0
    server_version: tuple[int, int] = (1, 34)
    step_seconds: int = 60
    allocate_seconds: int = 1  # until the kubelet looks at a resize
    actuate_seconds: int = 5  # from allocated to actual
    start_seconds: int = 5  # from bound to running
    restart_seconds: int = 10  # after the first kill; doubled at each further one
    longest_restart_seconds: int = 300
    calm_seconds: int = 600  # a process that lived longer starts the doubling anew
    retention_seconds: int = 86_400  # of measurements
    emit_twice: bool = False  # every kill comes out of the stream twice, as after a broken watch

"""CPU and memory, in whole millicores and bytes."""

from dataclasses import dataclass
from enum import StrEnum

MEBIBYTE = 1 << 20


class ResourceName(StrEnum):
    """The two resources that cruise sizes."""

    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Resources:
    """CPU and memory, absolute or as a difference."""

    cpu_millicores: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        """Add resource by resource."""
        return Resources(self.cpu_millicores + other.cpu_millicores, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: "Resources") -> "Resources":
        """Subtract resource by resource; the result may be negative."""
        return Resources(self.cpu_millicores - other.cpu_millicores, self.memory_bytes - other.memory_bytes)

    def of(self, resource: ResourceName) -> int:
        """Return one resource's value."""
        return self.cpu_millicores if resource is ResourceName.CPU else self.memory_bytes

    def at_least(self, other: "Resources") -> "Resources":
        """Return the larger value of each resource."""
        return Resources(
            max(self.cpu_millicores, other.cpu_millicores),
            max(self.memory_bytes, other.memory_bytes),
        )

    def at_most(self, other: "Resources") -> "Resources":
        """Return the smaller value of each resource."""
        return Resources(
            min(self.cpu_millicores, other.cpu_millicores),
            min(self.memory_bytes, other.memory_bytes),
        )

    def fits_in(self, room: "Resources") -> bool:
        """Tell whether both resources are within `room`."""
        return self.cpu_millicores <= room.cpu_millicores and self.memory_bytes <= room.memory_bytes

    def growth_fits_in(self, room: "Resources") -> bool:
        """Tell whether what is above zero is within `room`: a resource that does not grow needs none."""
        return (self.cpu_millicores <= 0 or self.cpu_millicores <= room.cpu_millicores) and (
            self.memory_bytes <= 0 or self.memory_bytes <= room.memory_bytes
        )


@dataclass(frozen=True, slots=True)
class Amounts:
    """CPU and memory as a container states them: either may be absent (None)."""

    cpu_millicores: int | None = None
    memory_bytes: int | None = None

    def filled_from(self, other: "Amounts") -> "Amounts":
        """Return the same with what is absent taken from `other`."""
        return Amounts(
            other.cpu_millicores if self.cpu_millicores is None else self.cpu_millicores,
            other.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )

    def of(self, resource: ResourceName) -> int | None:
        """Return one resource's value, None where it is absent."""
        return self.cpu_millicores if resource is ResourceName.CPU else self.memory_bytes

    @property
    def resources(self) -> Resources:
        """The same with nothing counted for what is absent."""
        return Resources(self.cpu_millicores or 0, self.memory_bytes or 0)

    def or_else(self, other: "Amounts") -> "Amounts":
        """Return what is stated here, and what the other states where nothing is."""
        if self.cpu_millicores is not None and self.memory_bytes is not None:
            return self
        return Amounts(
            other.cpu_millicores if self.cpu_millicores is None else self.cpu_millicores,
            other.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )

    @property
    def empty(self) -> bool:
        """Tell whether neither resource is stated (a stated zero counts as absent, as in Kubernetes' QoS rules)."""
        return not self.cpu_millicores and not self.memory_bytes


NO_RESOURCES = Resources()
NO_AMOUNTS = Amounts()


def whole_mebibytes(size_bytes: int) -> int:
    """Round up to whole mebibytes."""
    return -(-size_bytes // MEBIBYTE) * MEBIBYTE


def is_extended(resource: str) -> bool:
    """Tell whether a resource is one that devices offer, such as GPUs: not memory of any kind, CPU or local storage."""
    return resource not in ("cpu", "memory", "ephemeral-storage", "pods") and not resource.startswith(
        ("hugepages-", "attachable-volumes-")
    )

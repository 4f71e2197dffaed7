"""What ResourceQuotas still grant."""

from dataclasses import dataclass

from cruise.domain.resources import NO_AMOUNTS, Amounts


@dataclass(frozen=True, slots=True)
class QuotaScope:
    """One condition on the pods that a ResourceQuota counts: a scope by name, or a requirement on a PriorityClass."""

    name: str
    operator: str = "Exists"
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Quota:
    """What a ResourceQuota still grants to new pods, never negative; None for what it does not count.

    It counts the pods for which all of its scopes hold.
    """

    requests_left: Amounts = NO_AMOUNTS
    limits_left: Amounts = NO_AMOUNTS
    scopes: tuple[QuotaScope, ...] = ()

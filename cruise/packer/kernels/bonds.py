"""What a placement breaks of the rules between pods, in energies that guide a search: the judge decides."""

from cruise.packer.arrays import IntArray
from cruise.packer.kernels.compiling import lean

# All of it is one array, as with the tables of `rule_counts`. t[BROKEN] adds up all that is broken. Of class c the
# bonds are listed from t[LISTED] + t[STARTS + c] on, each as 4 * bond + role: 1 for holders, 2 for targets, 3 for both.
# In domain t[t[ROW + k] + node] of bond k (-1: in none) it counts holders that arrived, at t[FIRST + k] and on, and
# behind these t[DOMAINS + k] the targets. MOST is what the kind makes of it, WEIGHT thousandths of an energy for one
# pod too many, NOW how many are.
BROKEN, STARTS, LISTED, KIND, FIRST, DOMAINS, MOST, WEIGHT, NOW, ROW = range(10)
BOND_TABLES = 10
# Around a holder that arrived, at most so many targets; or so many more than in the least domain; or some at all, where
# the first holder may come alone or not; of pods that run, so many stay.
APART, EVEN, COMPANY, FOUNDED, STAYS = range(5)


@lean
def _broken(t: IntArray, k: int) -> int:
    kind, first, domains, most = t[t[KIND] + k], t[t[FIRST] + k], t[t[DOMAINS] + k], t[t[MOST] + k]
    if kind == STAYS:
        return int(max(most - t[first + 1], 0))
    broken, least = 0, 0
    if kind == EVEN:
        least = t[first + domains]
        for d in range(1, domains):
            least = min(least, t[first + domains + d])
    if kind <= EVEN:
        for d in range(domains):
            if t[first + d] > 0:
                broken += max(t[first + domains + d] - least - most, 0)
        return broken
    # Holders among the targets do not give each other company, but beside a first one.
    others, largest = 0, 0
    for d in range(domains):
        came = t[first + d]
        company = t[first + domains + d] - (came if kind == FOUNDED else 0)
        others += company
        largest = max(largest, came)
        if company <= 0:
            broken += came
    return int(broken - largest if kind == FOUNDED and others == 0 else broken)


@lean
def count_bonds(t: IntArray, c: int, n: int, step: int, arrived: bool) -> float:
    """Count a copy of a class that comes to a node (`step` 1) or leaves it (-1); the energy that this adds."""
    energy = 0
    for i in range(t[t[STARTS] + c], t[t[STARTS] + c + 1]):
        k, role = t[t[LISTED] + i] >> 2, t[t[LISTED] + i] & 3
        d = t[t[t[ROW] + k] + n]
        stays = t[t[KIND] + k] == STAYS
        if d < 0 or (arrived and (stays or role == 0)):
            continue
        if role & 1 and arrived:
            t[t[t[FIRST] + k] + d] += step
        if role & 2:
            t[t[t[FIRST] + k] + t[t[DOMAINS] + k] + d] += step
        broken = _broken(t, k)
        change = broken - t[t[NOW] + k]
        if change != 0:
            t[t[NOW] + k] = broken
            t[BROKEN] += change
            energy += change * t[t[WEIGHT] + k]
    return energy / 1000.0

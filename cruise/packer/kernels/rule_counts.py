"""Keeps the counts per domain of the rules between pods, as kernels change placements."""

from cruise.packer.kernels.compilation import compile_without_allocation
from cruise.packer.problem import IntArray

# All of it is one array, since each array more that kernels hand on costs seconds of compiling: table `X` begins at
# t[X]. Lists of a class are X[X_STARTS[c]:X_STARTS[c + 1]]. DOMAINS[topology * NODES + node] is -1 without a label.
# TIED classes have rules, CLOSED ones are left as they are. A counter k counts the pods of the classes that list it in
# COUNTED, at COUNTS[BASE[k] + domain] of topology SCALE[k]. Where a counter of BANNED is above 0 the class does not
# arrive, nor beside a class of SHUNNED on a node. A spread s over topology ACROSS[s] counts, on the nodes of
# MASKS[MASK[s]], the classes that list it in SEEN, from COUNTS[LEVEL[s]] on; LEAST[s] is the fewest in its domains
# (0 where FROM_ZERO), which FEWEST[s] of them have; its holders that arrived are at COUNTS[CAME[s]] on, ARRIVED[s] in
# all. An attraction a wants each counter of WANTS above 0; it is held by the classes that list it in PULLED, of which
# FOLLOWED[a] pods arrived, and served by those that list it in PULLING, of which SERVED[a] pods are in some domain.
# Where FIRST[a], a holder may be the first of them.
NODES, DOMAINS, TIED, CLOSED, SCALE, BASE = range(0, 6)
COUNTS, COUNTED_STARTS, COUNTED, BANNED_STARTS, BANNED, SHUNNED_STARTS = range(6, 12)
SHUNNED, MASKS, MASK, ACROSS, LEVEL, CAME = range(12, 18)
SKEW, ITSELF, FROM_ZERO, LEAST, FEWEST, ARRIVED = range(18, 24)
DOMAIN_STARTS, DOMAIN, HELD_STARTS, HELD, SEEN_STARTS, SEEN = range(24, 30)
PULLED_STARTS, PULLED, PULLING_STARTS, PULLING, WANTS_STARTS, WANTS = range(30, 36)
FOLLOWED, FIRST, SERVED = range(36, 39)
RULE_TABLE_COUNT = 39


@compile_without_allocation
def update_rule_counts(t: IntArray, c: int, n: int, step: int, arrived: bool) -> None:
    """Count a pod of a class that arrives on a node (`step` 1) or leaves it (-1)."""
    for i in range(t[t[COUNTED_STARTS] + c], t[t[COUNTED_STARTS] + c + 1]):
        k = t[t[COUNTED] + i]
        d = t[t[DOMAINS] + t[t[SCALE] + k] * t[NODES] + n]
        if d >= 0:
            t[t[COUNTS] + t[t[BASE] + k] + d] += step
    for i in range(t[t[SEEN_STARTS] + c], t[t[SEEN_STARTS] + c + 1]):
        s = t[t[SEEN] + i]
        d = t[t[DOMAINS] + t[t[ACROSS] + s] * t[NODES] + n]
        if d >= 0 and t[t[MASKS] + t[t[MASK] + s] * t[NODES] + n]:
            _update_spread_count(t, s, d, step)
    for i in range(t[t[PULLING_STARTS] + c], t[t[PULLING_STARTS] + c + 1]):
        if _is_somewhere(t, t[t[PULLING] + i], n):
            t[t[SERVED] + t[t[PULLING] + i]] += step
    if arrived:
        _count_holder(t, c, n, step)


@compile_without_allocation
def _count_holder(t: IntArray, c: int, n: int, step: int) -> None:
    for i in range(t[t[HELD_STARTS] + c], t[t[HELD_STARTS] + c + 1]):
        s = t[t[HELD] + i]
        t[t[ARRIVED] + s] += step
        d = t[t[DOMAINS] + t[t[ACROSS] + s] * t[NODES] + n]
        if d >= 0:
            t[t[COUNTS] + t[t[CAME] + s] + d] += step
    for i in range(t[t[PULLED_STARTS] + c], t[t[PULLED_STARTS] + c + 1]):
        t[t[FOLLOWED] + t[t[PULLED] + i]] += step


@compile_without_allocation
def _update_spread_count(t: IntArray, s: int, d: int, step: int) -> None:
    before = t[t[COUNTS] + t[t[LEVEL] + s] + d]
    t[t[COUNTS] + t[t[LEVEL] + s] + d] = before + step
    if t[t[FROM_ZERO] + s]:
        return
    if before == t[t[LEAST] + s]:
        t[t[FEWEST] + s] -= 1
    if before + step < t[t[LEAST] + s]:
        t[t[LEAST] + s], t[t[FEWEST] + s] = before + step, 1
    elif before + step == t[t[LEAST] + s]:
        t[t[FEWEST] + s] += 1
    if t[t[FEWEST] + s] == 0:
        find_min_count(t, s)


@compile_without_allocation
def find_min_count(t: IntArray, s: int) -> None:
    """Find the smallest count in the domains of a spread."""
    t[t[LEAST] + s], t[t[FEWEST] + s] = 0, 0
    for i in range(t[t[DOMAIN_STARTS] + s], t[t[DOMAIN_STARTS] + s + 1]):
        there = t[t[COUNTS] + t[t[LEVEL] + s] + t[t[DOMAIN] + i]]
        if t[t[FEWEST] + s] == 0 or there < t[t[LEAST] + s]:
            t[t[LEAST] + s], t[t[FEWEST] + s] = there, 1
        elif there == t[t[LEAST] + s]:
            t[t[FEWEST] + s] += 1


@compile_without_allocation
def may_arrive(t: IntArray, c: int, n: int, home: bool) -> bool:
    """Return whether rules other than those by node allow a pod of a class on a node; `home`: it ran there."""
    for i in range(t[t[BANNED_STARTS] + c], t[t[BANNED_STARTS] + c + 1]):
        k = t[t[BANNED] + i]
        d = t[t[DOMAINS] + t[t[SCALE] + k] * t[NODES] + n]
        if d >= 0 and t[t[COUNTS] + t[t[BASE] + k] + d] > 0:
            return False
    for i in range(t[t[SEEN_STARTS] + c], t[t[SEEN_STARTS] + c + 1]):
        s = t[t[SEEN] + i]
        d = t[t[DOMAINS] + t[t[ACROSS] + s] * t[NODES] + n]
        if (
            d >= 0
            and t[t[COUNTS] + t[t[CAME] + s] + d] > 0
            and t[t[COUNTS] + t[t[LEVEL] + s] + d] + 1 - t[t[LEAST] + s] > t[t[SKEW] + s]
        ):
            return False
    for i in range(t[t[PULLING_STARTS] + c], t[t[PULLING_STARTS] + c + 1]):
        a = t[t[PULLING] + i]
        # A first pod that arrived would be rejected in the end because of a target elsewhere.
        if t[t[FIRST] + a] and t[t[FOLLOWED] + a] > 0 and not _is_supported(t, a, n):
            return False
    return home or (_obeys_spreads(t, c, n) and _obeys_attractions(t, c, n))


@compile_without_allocation
def _obeys_spreads(t: IntArray, c: int, n: int) -> bool:
    for i in range(t[t[HELD_STARTS] + c], t[t[HELD_STARTS] + c + 1]):
        s = t[t[HELD] + i]
        d = t[t[DOMAINS] + t[t[ACROSS] + s] * t[NODES] + n]
        if d < 0 or not t[t[MASKS] + t[t[MASK] + s] * t[NODES] + n]:
            return False
        if t[t[COUNTS] + t[t[LEVEL] + s] + d] + t[t[ITSELF] + s] - t[t[LEAST] + s] > t[t[SKEW] + s]:
            return False
    return True


@compile_without_allocation
def _obeys_attractions(t: IntArray, c: int, n: int) -> bool:
    for i in range(t[t[PULLED_STARTS] + c], t[t[PULLED_STARTS] + c + 1]):
        a = t[t[PULLED] + i]
        if t[t[FIRST] + a] and t[t[SERVED] + a] == 0:
            for j in range(t[t[WANTS_STARTS] + a], t[t[WANTS_STARTS] + a + 1]):
                if t[t[DOMAINS] + t[t[SCALE] + t[t[WANTS] + j]] * t[NODES] + n] < 0:
                    return False
        elif not _is_supported(t, a, n):
            return False
    return True


@compile_without_allocation
def _is_supported(t: IntArray, a: int, n: int) -> bool:
    """Return whether the targets of an attraction are in the domains of a node."""
    for j in range(t[t[WANTS_STARTS] + a], t[t[WANTS_STARTS] + a + 1]):
        k = t[t[WANTS] + j]
        d = t[t[DOMAINS] + t[t[SCALE] + k] * t[NODES] + n]
        if d < 0 or t[t[COUNTS] + t[t[BASE] + k] + d] == 0:
            return False
    return True


@compile_without_allocation
def _is_somewhere(t: IntArray, a: int, n: int) -> bool:
    """Return whether a node is in a domain of any topology of an attraction."""
    for j in range(t[t[WANTS_STARTS] + a], t[t[WANTS_STARTS] + a + 1]):
        if t[t[DOMAINS] + t[t[SCALE] + t[t[WANTS] + j]] * t[NODES] + n] >= 0:
            return True
    return False


@compile_without_allocation
def may_depart(t: IntArray, c: int, n: int) -> bool:
    """Return whether no pod that arrived depends on a pod of the class staying on a node."""
    for i in range(t[t[PULLING_STARTS] + c], t[t[PULLING_STARTS] + c + 1]):
        if t[t[FOLLOWED] + t[t[PULLING] + i]] > 0:
            return False
    for i in range(t[t[SEEN_STARTS] + c], t[t[SEEN_STARTS] + c + 1]):
        s = t[t[SEEN] + i]
        d = t[t[DOMAINS] + t[t[ACROSS] + s] * t[NODES] + n]
        if t[t[ARRIVED] + s] == 0 or d < 0 or not t[t[MASKS] + t[t[MASK] + s] * t[NODES] + n] or t[t[FROM_ZERO] + s]:
            continue
        fewer = t[t[COUNTS] + t[t[LEVEL] + s] + d] - 1
        if fewer < t[t[LEAST] + s]:
            for j in range(t[t[DOMAIN_STARTS] + s], t[t[DOMAIN_STARTS] + s + 1]):
                e = t[t[DOMAIN] + j]
                there = t[t[COUNTS] + t[t[LEVEL] + s] + e] - (1 if e == d else 0)
                if t[t[COUNTS] + t[t[CAME] + s] + e] > 0 and there - fewer > t[t[SKEW] + s]:
                    return False
    return True

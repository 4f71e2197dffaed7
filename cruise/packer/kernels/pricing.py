"""The most valuable set of copies for one node: exact knapsacks in several resources, by depth-first search."""

import math

from cruise.packer.kernels.compiling import inlined
from cruise.packer.kernels.shelf import Shelf

_TINY = 1e-9
# A little more than there is, so that what takes no room fits where none is left.
SPACE = 1.0 + 1e-9


@inlined
def lacks_room(s: Shelf, i: int) -> bool:
    """Tell whether one more copy of an item does not fit what is left."""
    if s.headroom.shape[0] > 0:
        for r in range(len(s.left)):
            if s.item_weight[i, r] + max(s.peak[0, r], s.item_head[i, r]) > s.left[r]:
                return True
        return False
    for r in range(len(s.left)):
        if s.item_weight[i, r] > s.left[r]:
            return True
    return False


@inlined
def bound(s: Shelf, count: int, first: int, space: float, enough: float) -> float:
    """What items from `first` on could add in the space that is left, fractions allowed.

    Of no interest beyond `enough`: counting stops there.
    """
    value = 0.0
    if s.headroom.shape[0] > 0:
        space -= s.reserve[0]
    for i in range(first, count):
        if value > enough:
            break
        if lacks_room(s, i):
            continue
        if s.full_load[i] > space:
            return float(value + s.item_value[i] * max(space, 0.0) / s.item_load[i])
        space -= s.full_load[i]
        value += s.full_value[i]
    return value


@inlined
def copies_of(s: Shelf, i: int) -> int:
    """How many copies of an item fit into what is left."""
    most = s.item_bound[i]
    for r in range(len(s.left)):
        w, left = s.item_weight[i, r], s.left[r]
        if s.headroom.shape[0] > 0:
            left -= max(s.peak[0, r], s.item_head[i, r])
        if w > left:
            return 0
        if w > 0 and most * w > left:
            most = left // w
    return int(most)


@inlined
def hopeless(s: Shelf, first: int) -> bool:
    """Tell whether none of the items from `first` on fits what is left."""
    for r in range(len(s.left)):
        if s.least[first, r] > s.left[r]:
            return True
    return False


@inlined
def raise_peak(s: Shelf, g: int, i: int, depth: int) -> None:
    """Let the headroom of the item at a depth in."""
    if s.headroom.shape[0] > 0:
        for r in range(len(s.left)):
            s.peak[1 + depth, r] = s.peak[0, r]
            s.peak[0, r] = max(s.peak[0, r], s.item_head[i, r])
        _set_aside(s, g)


@inlined
def lower_peak(s: Shelf, g: int, depth: int) -> None:
    """Let the headroom of the item at a depth out again."""
    if s.headroom.shape[0] > 0:
        for r in range(len(s.left)):
            s.peak[0, r] = s.peak[1 + depth, r]
        _set_aside(s, g)


@inlined
def _set_aside(s: Shelf, g: int) -> None:
    s.reserve[0] = 0.0
    for r in range(len(s.left)):
        s.reserve[0] += s.mix[g, r] * s.peak[0, r] / max(s.room[g, r], 1)


@inlined
def load(s: Shelf, i: int, copies: int) -> None:
    """Take copies of an item from what is left, or give them back."""
    for r in range(len(s.left)):
        s.left[r] -= copies * s.item_weight[i, r]


@inlined
def begin(s: Shelf, g: int, count: int) -> None:
    """Begin with an empty node of a group."""
    for r in range(len(s.left)):
        s.left[r] = s.room[g, r]
        s.peak[0, r] = s.floor[g, r]
    _set_aside(s, g)
    for i in range(count):
        s.taken[i] = 0


@inlined
def record(s: Shelf, g: int, count: int, where: int) -> None:
    """Write the copies taken, by class, into `found`."""
    s.found_group[where] = g
    for c in range(s.found.shape[1]):
        s.found[where, c] = 0
    for i in range(count):
        s.found[where, s.item_class[i]] += s.taken[i]


@inlined
def _open_bound(s: Shelf, g: int, count: int, depth: int, value: float, space: float) -> float:
    """The greatest bound of what an interrupted search has not looked at."""
    top = 0.0
    for k in range(depth - 1, -1, -1):
        i = s.stack[k]
        # One copy fewer of this item, and anything of the later ones.
        copies = s.taken[i]
        value -= copies * s.item_value[i]
        space += copies * s.item_load[i]
        load(s, i, -copies)
        load(s, i, copies - 1)
        lower_peak(s, g, k)
        part = value + (copies - 1) * s.item_value[i]
        top = max(top, part + bound(s, count, i + 1, space - (copies - 1) * s.item_load[i], math.inf))
        load(s, i, 1 - copies)
    return top


@inlined
def fill(
    s: Shelf, g: int, count: int, known: float, where: int, most_found: int, most_nodes: int
) -> tuple[float, float, int]:
    """The best filling of a node of a group beyond a known value.

    Returns its value, an upper bound (equal to it unless the search met its limit), and how many fillings were
    written into `found` from `where` on, the last ones being the best; the oldest give way beyond `most_found`.
    """
    begin(s, g, count)
    best, value, space = known, 0.0, SPACE
    depth, i, written, spent = 0, 0, 0, 0
    while True:
        pruned = False
        while i < count:
            # Of those behind none is worth more for its load.
            if hopeless(s, i) or s.item_value[i] * max(space, 0.0) <= (best + _TINY - value) * s.item_load[i]:
                break
            copies = copies_of(s, i)
            if copies == 0:
                i += 1
                continue
            spent += 1
            if value + bound(s, count, i, space, best + _TINY - value) <= best + _TINY:
                pruned = True
                break
            s.stack[depth] = i
            raise_peak(s, g, i, depth)
            depth += 1
            s.taken[i] = copies
            load(s, i, copies)
            value += copies * s.item_value[i]
            space -= copies * s.item_load[i]
            i += 1
        if not pruned and value > best + _TINY:
            best = value
            record(s, g, count, where + written % most_found)
            written += 1
        if depth == 0:
            break
        if spent > most_nodes:
            s.nodes[0] += spent
            return best, max(best, _open_bound(s, g, count, depth, value, space)), min(written, most_found)
        i = s.stack[depth - 1]
        s.taken[i] -= 1
        load(s, i, -1)
        value -= s.item_value[i]
        space += s.item_load[i]
        if s.taken[i] == 0:
            depth -= 1
            lower_peak(s, g, depth)
        i += 1
    s.nodes[0] += spent
    return best, best, min(written, most_found)

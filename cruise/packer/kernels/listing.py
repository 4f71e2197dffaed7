"""Every maximal set of copies for one node that is worth enough, listed by the search that prices them."""

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.kernels.compiling import inlined, lean
from cruise.packer.kernels.pricing import (
    SPACE,
    begin,
    bound,
    copies_of,
    hopeless,
    lacks_room,
    load,
    lower_peak,
    raise_peak,
    record,
)
from cruise.packer.kernels.shelf import Shelf, collect, tune


@inlined
def _maximal(s: Shelf, count: int) -> bool:
    """Tell whether nothing more fits, and copies that stay come before others of their class."""
    for i in range(count):
        if s.taken[i] == s.item_bound[i]:
            continue
        if not lacks_room(s, i):
            return False
        if s.item_stays[i] == 1:
            for k in range(count):
                if s.item_class[k] == s.item_class[i] and s.item_stays[k] == 0 and s.taken[k] > 0:
                    return False
    return True


@lean
def enumerate_fillings(
    s: Shelf,
    g: int,
    value: FloatArray,
    stay_bonus: FloatArray,
    counts: IntArray,
    least_value: float,
    where: int,
    most_nodes: int,
) -> int:
    """Write every maximal filling worth at least `least_value` into `found` from `where` on.

    Returns how many there are, -1 where `found` is full or the search takes more nodes than it may.
    """
    count = collect(s, g, value, stay_bonus, counts, -1.0)
    tune(s, g, count)
    begin(s, g, count)
    total, space = 0.0, SPACE
    depth, i, written, spent = 0, 0, 0, 0
    while True:
        hopeful = True
        while hopeful and i < count and not hopeless(s, i):
            copies = copies_of(s, i)
            if copies > 0:
                spent += 1
                hopeful = total + bound(s, count, i, space, least_value - total) >= least_value
            if copies > 0 and hopeful:
                s.stack[depth] = i
                raise_peak(s, g, i, depth)
                depth += 1
                s.taken[i] = copies
                load(s, i, copies)
                total += copies * s.item_value[i]
                space -= copies * s.item_load[i]
            i += 1
        if hopeful and total >= least_value and _maximal(s, count):
            if where + written >= s.found.shape[0]:
                s.nodes[0] += spent
                return -1
            record(s, g, count, where + written)
            written += 1
        if depth == 0:
            s.nodes[0] += spent
            return written
        if spent > most_nodes:
            s.nodes[0] += spent
            return -1
        i = s.stack[depth - 1]
        s.taken[i] -= 1
        load(s, i, -1)
        total -= s.item_value[i]
        space += s.item_load[i]
        if s.taken[i] == 0:
            depth -= 1
            lower_peak(s, g, depth)
        i += 1

"""What no packing surpasses in one entry of the key, by column generation under the rules that rows can say."""

import math

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.between import between_pods, uneven
from cruise.packer.dense.classing import instance_of, pod_node_of, weighed
from cruise.packer.dense.closing import Closer, chosen, closer_of
from cruise.packer.dense.company import company_of
from cruise.packer.dense.dive import dive
from cruise.packer.dense.generation import Generation, generation_of
from cruise.packer.dense.greedy import complete
from cruise.packer.dense.parting import ways_of
from cruise.packer.dense.phase import Phase, beside, patterns_of, phase_of, spread, thinned
from cruise.packer.dense.residual import residual_of
from cruise.packer.faults import find_faults
from cruise.packer.problem import Problem

# Later dives round up what is less near to whole.
_NOISE, _MOST_NOISE = 0.1, 0.5
# Where too many fillings could be in a packing at the bound, the better ones are looked at for one all the same.
_LEAST_SHARE = 0.1
_MOST_FILLINGS, _MOST_NODES = 40_000, 3_000_000


class EntryBound:
    """A bound for packings that are as good as an assignment in the entries before.

    `assignment[class, node]` are copies, and obey every rule. Nodes have no price.
    """

    def __init__(self, problem: Problem, assignment: IntArray, entry: int, seed: int) -> None:
        residual = residual_of(instance_of(problem))
        best = residual.part(assignment)
        self._phase = phase_of(residual, best, entry, between_pods(problem))
        self._generator = np.random.default_rng(seed)
        self._generation = generation_of(self._phase, self._generator)
        self._generation.take(*patterns_of(self._phase, best))
        self._problem, self._entry, self._residual, self._dives = problem, entry, residual, 0
        self._closer = self._closer_of(self._phase, self._generation)
        self._besides = int(residual.vector(best)[entry]) - self._phase.answer

    def bound(self, meter: Meter) -> int:
        """What no packing surpasses, as far as the meter lets find out."""
        self._generation.generate(self._phase.answer, meter)
        return self._weighed()

    def dive(self, assignment: IntArray, meter: Meter) -> IntArray | None:
        """An assignment near the bound, which may break rules; None where the search led nowhere.

        The bound learns from another assignment that is known by now, and may be a lower one afterwards.
        """
        generation, residual, phase = self._generation, self._residual, self._phase
        generation.take(*patterns_of(phase, residual.part(assignment)))
        generation.generate(phase.answer, meter)
        if generation.bound == math.inf:
            return None
        found = dive(generation, phase.answer, min(_NOISE * self._dives, _MOST_NOISE), self._generator, meter)
        self._dives += 1
        if found is None:
            return None
        return residual.whole(complete(residual, spread(phase, *found, residual)))

    def branch(self, meter: Meter) -> tuple[IntArray | None, bool]:
        """An assignment that reaches the bound as far as rows say, if there is one; whether that is refuted.

        It may break rules, but none that parts the question.
        """
        return self._settle(self._phase, self._generation, self._closer, self._generation.ceiling, meter)

    def _settle(
        self, phase: Phase, generation: Generation, closer: Closer, target: int, meter: Meter
    ) -> tuple[IntArray | None, bool]:
        residual = self._residual
        listed, complete_list = self._listed(generation, closer, target, meter)
        while not meter.over():
            verdict = closer.decide(*listed, target, 1.0, meter, phase)
            if not len(verdict.uses):
                return None, verdict.reachable is False and complete_list
            found = residual.whole(spread(phase, *thinned(phase, *chosen(*listed, verdict)), residual))
            more = beside(phase, residual, uneven(self._problem, found))
            if more is not phase:
                phase = more
                continue
            parts = [way.narrow(phase, residual) for way in ways_of(self._problem, found)]
            if not parts or any(part is phase for part in parts):
                return self._completed(found), False
            return self._part(parts, generation, target, meter)
        return None, False

    def _completed(self, found: IntArray) -> IntArray:
        """An assignment with all besides that has room, or itself where only that breaks rules."""
        whole = self._residual.whole(complete(self._residual, self._residual.part(found)))
        broken, sound = (find_faults(self._problem, pod_node_of(self._problem, one)) for one in (whole, found))
        return found if broken and not sound else whole

    def _part(self, parts: list[Phase], before: Generation, target: int, meter: Meter) -> tuple[IntArray | None, bool]:
        """Settle a question by its parts, one of which any answer belongs to."""
        refuted = True
        groups, fillings = np.array(before.master.groups), np.array(before.master.fillings)
        for phase in parts:
            generation = generation_of(phase, self._generator)
            fits = (fillings <= phase.limits[groups]).all(axis=1)
            generation.take(groups[fits], fillings[fits])
            generation.generate(target - 1, meter)
            if generation.ceiling < target:
                continue
            if meter.over() or generation.bound == math.inf:
                return None, False
            found, none = self._settle(phase, generation, self._closer_of(phase, generation), target, meter)
            if found is not None:
                return found, False
            refuted &= none
        return None, refuted

    def _listed(
        self, generation: Generation, closer: Closer, target: int, meter: Meter
    ) -> tuple[tuple[IntArray, IntArray], bool]:
        """Fillings to look at, and whether these are all that an answer at the target could use."""
        listed, share = closer.enumerate(target, meter), 1.0
        while listed is None and share > _LEAST_SHARE and not meter.over():
            share *= 0.5
            listed = closer.enumerate(target, meter, share)
        if listed is not None:
            return listed, share == 1.0
        closer.known = 0
        return (np.array(generation.master.groups), np.array(generation.master.fillings)), False

    def refute(self) -> int:
        """Take note that no packing reaches the bound; what is the bound then."""
        self._generation.ceiling -= 1
        return self._weighed()

    def _closer_of(self, phase: Phase, generation: Generation) -> Closer:
        closer = closer_of(generation, self._generator, _MOST_FILLINGS, _MOST_NODES)
        closer.company = company_of(self._problem, self._residual, phase)
        return closer

    def _weighed(self) -> int:
        return weighed(self._problem, self._entry, self._besides + self._generation.ceiling)

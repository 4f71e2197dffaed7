"""In which order a plan's pods leave and arrive: as few as can be are without a node at once."""

from collections.abc import Iterable

from cruise.decisions.packing.proposing.agenda import Agenda
from cruise.decisions.packing.proposing.knots import Knots, Step
from cruise.decisions.packing.proposing.standing import Standing


class Staging:
    """Works a plan off: every pod that can arrive does, so chains of moves go from their tails; then a knot is cut."""

    def __init__(self, standing: Standing, agenda: Agenda) -> None:
        self._standing = standing
        self._agenda = agenda
        self._knots = Knots(standing, agenda)
        self._steps: list[Step] = [Step()]

    def steps(self) -> list[Step] | None:
        """Return the steps in order; None where none is found."""
        agenda = self._agenda
        self._work_off(agenda.waiting)
        while agenda.waiting:
            knot = self._knots.smallest() or self._knots.everything()
            if knot is None:
                return None
            self._carry_out(knot)
            self._work_off(agenda.let_in_by([*knot.leaves, *knot.arrivals]))
        if agenda.leaving:
            # No pod waited for these, so they go last.
            self._steps.append(Step(list(agenda.leaving)))
        return self.begun()

    def begun(self) -> list[Step]:
        """Return the steps so far: what can be done although no order was found for all."""
        return [step for step in self._steps if step.leaves or step.arrivals]

    def _work_off(self, candidates: Iterable[int]) -> None:
        """Let pods arrive that can by themselves, and then those that this lets in."""
        while candidates:
            arrived = [pod for pod in self._agenda.in_order(candidates) if self._arrives_alone(pod)]
            candidates = self._agenda.let_in_by(arrived)

    def _arrives_alone(self, pod: int) -> bool:
        standing, target, source = self._standing, self._agenda.target[pod], self._standing.node_of[pod]
        if source >= 0:
            standing.leave(pod)
        if not standing.lets_in(pod, target):
            if source >= 0:
                standing.arrive(pod, source)
            return False
        standing.arrive(pod, target)
        if source >= 0:
            self._steps.append(Step([pod]))
        self._steps[-1].arrivals.append(pod)
        self._agenda.settle(pod)
        return True

    def _carry_out(self, knot: Step) -> None:
        for pod in knot.leaves:
            self._standing.leave(pod)
        for pod in knot.arrivals:
            self._standing.arrive(pod, self._agenda.target[pod])
        for pod in dict.fromkeys([*knot.leaves, *knot.arrivals]):
            self._agenda.settle(pod)
        if knot.leaves:
            self._steps.append(knot)
        else:
            self._steps[-1].arrivals += knot.arrivals

"""Tasks done at once by the process that submits them."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

from cruise.backtest.fleet.tasks import Shares, report_to

P = ParamSpec("P")
T = TypeVar("T")


class Here(Executor):
    """An executor without processes, whose tasks tell `shares` how far they are.

    What a task raises ends the submission.
    """

    def __init__(self, shares: Shares | None = None) -> None:
        self._shares = shares

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do a task, and return its answer as a future that is over."""
        done: Future[T] = Future()
        before = report_to(self._shares)
        try:
            done.set_result(fn(*args, **kwargs))
        finally:
            report_to(before)
        return done

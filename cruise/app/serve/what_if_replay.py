"""What-if runs: proposed settings replayed on the cluster's recorded usage, one at a time, in a limited process."""

import asyncio
import json
import os
import pickle
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

import cruise
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.decisions.pod_policy.policy_objects import remove_modes_of_other_policies, replace_written_policy
from cruise.domain.annotations import PREFIX, UnreadableAnnotations
from cruise.domain.backtest import ComparedMetric, MetricComparison
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import parse_overrides
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.users import Caller, WhatIfComparison, WhatIfProposal, WhatIfRun, WhatIfStage
from cruise.domain.written_policies import PolicyScope
from cruise.errors import BadInputError, CruiseError, ThrottledError
from cruise.interfaces.http.view import ApiView
from cruise.settings import Settings
from cruise.settings.loading import change_settings

log = structlog.get_logger()

DAYS = 7
MAX_SECONDS = 15 * 60.0
MEMORY_BYTES = 2 << 30
_LINE_BYTES = 1 << 20
# The module of the command line is a higher layer: it is named, not imported.
_COMMAND = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from cruise.cli.work.what_if_replay import run_what_if_process; run_what_if_process()"
)
_ROOT = str(Path(cruise.__file__).parent.parent)


@dataclass(frozen=True, slots=True)
class WhatIfTask:
    """What the process replays: the same days under two policies, each with its policy objects."""

    prometheus: PrometheusSettings
    end: datetime
    snapshot: ClusterSnapshot
    node: Resources
    current_policy: Policy
    current_objects: tuple[RightsizingPolicy, ...]
    proposed_policy: Policy
    proposed_objects: tuple[RightsizingPolicy, ...]
    pass_seconds: int
    memory_bytes: int
    days: int = DAYS


class WhatIfRunner:
    """Implements the what-if port of `interfaces.http.view` within a context."""

    def __init__(
        self,
        settings: Settings,
        view: ApiView,
        longest_seconds: float = MAX_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._settings = settings
        self._view = view
        self._longest_seconds = longest_seconds
        self._last: WhatIfRun | None = None
        self._memory_bytes = memory_bytes
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    def get_last(self) -> WhatIfRun | None:
        """Return the present run, otherwise the last one."""
        return self._last

    async def begin(self, proposal: WhatIfProposal, caller: Caller) -> WhatIfRun:
        """Start a run.

        Raises BadInputError for an invalid proposal, ThrottledError during another run, UnavailableError.
        """
        if self._running is not None and not self._running.done():
            raise ThrottledError("another replay is running: wait for it, or cancel it")
        order = await self._build_order(proposal)
        self._last = WhatIfRun(proposal, caller.name, self._view.now(), current_step="starting")
        # A separate task: the request that started it does not wait.
        self._running = asyncio.ensure_future(self._run(order))
        return self._last

    async def cancel(self) -> None:
        """Cancel the present run, if there is one."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait({self._running})
            # Here, because a cancelled task may not have started.
            self._set_end(WhatIfStage.CANCELLED)

    async def _build_order(self, proposal: WhatIfProposal) -> WhatIfTask:
        settings, view = self._settings, self._view
        snapshot = await view.snapshot()
        scope = None if proposal.namespace is None else PolicyScope(proposal.namespace, proposal.workload)
        today = proposed = replace(settings.to_policy(), mode=view.policy.mode)
        objects = proposed_objects = remove_modes_of_other_policies(snapshot.rightsizing_policies, scope)
        if scope is not None:
            found = parse_overrides({f"{PREFIX}{key}": text for key, text in proposal.settings.items()})
            if isinstance(found, UnreadableAnnotations):
                raise BadInputError(found.detail)
            proposed_objects = replace_written_policy(objects, scope, found)
        else:
            proposed = replace(change_settings(settings, proposal.settings).to_policy(), mode=view.policy.mode)
        prometheus = replace(settings.to_prometheus_settings(), plausible=today.rules.plausibility_checks)
        return WhatIfTask(
            prometheus=prometheus,
            end=view.now(),
            snapshot=snapshot,
            node=get_most_common_node_size(snapshot),
            current_policy=today,
            current_objects=objects,
            proposed_policy=proposed,
            proposed_objects=proposed_objects,
            pass_seconds=int(settings.pass_interval.total_seconds()),
            memory_bytes=self._memory_bytes,
        )

    async def _run(self, order: WhatIfTask) -> None:
        assert self._last is not None
        try:
            async with asyncio.timeout(self._longest_seconds):
                await self._replay(await asyncio.to_thread(pickle.dumps, order))
        except TimeoutError:
            minutes = self._longest_seconds / 60
            self._set_end(WhatIfStage.FAILED, error=f"it took longer than the {minutes:g} minutes that it may take")
        except (OSError, CruiseError) as error:
            self._set_end(WhatIfStage.FAILED, error=f"the process of the replay cannot be started: {error}")

    async def _replay(self, order: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _COMMAND,
            _ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(ConnectionError):
                process.stdin.write(order)
                await process.stdin.drain()
                process.stdin.close()
            async for line in process.stdout:
                self._read_line(json.loads(line))
            code = await process.wait()
            if self._last is not None and self._last.stage is WhatIfStage.RUNNING:
                how = f"signal {-code}, most likely for lack of memory" if code < 0 else f"exit {code}"
                self._set_end(WhatIfStage.FAILED, error=f"the process of the replay ended before its answer ({how})")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    def _read_line(self, line: Mapping[str, Any]) -> None:
        assert self._last is not None
        if "error" in line:
            self._set_end(WhatIfStage.FAILED, error=line["error"])
        elif "comparison" in line:
            found = line["comparison"]
            self._last = replace(self._last, comparison=_convert_result(found))
            self._set_end(WhatIfStage.DONE)
        else:
            self._last = replace(self._last, current_step=line["what"], progress=line["done"])

    def _set_end(self, stage: WhatIfStage, error: str = "") -> None:
        assert self._last is not None
        self._last = replace(self._last, stage=stage, error=error)
        log.info("what-if run", stage=stage.value, error=error, caller=self._last.caller)


def get_most_common_node_size(snapshot: ClusterSnapshot) -> Resources:
    """Return the allocatable capacity of most nodes, the larger one of equals. Raises BadInputError without nodes."""
    counts = Counter(node.allocatable for node in snapshot.nodes)
    if not counts:
        raise BadInputError("the cluster has no nodes to replay on")
    return max(counts, key=lambda one: (counts[one], one.cpu_millicores, one.memory_bytes))


def _convert_result(found: Mapping[str, Any]) -> WhatIfComparison:
    figures = {ComparedMetric(name): MetricComparison(**one) for name, one in found["figures"].items()}
    return WhatIfComparison(found["days"], found["containers"], figures, tuple(found["notes"]))

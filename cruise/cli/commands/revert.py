"""`cruise revert`: resize pods back to their original requests, without evictions."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import ConfigOption, Format, FormatOption, optional, settings_of
from cruise.cli.terminal import busy, complain, print_result, quiet_logs
from cruise.errors import BadInput

if TYPE_CHECKING:
    from cruise.app.reverting import Reverted
    from cruise.domain.cluster import WorkloadRef
    from cruise.settings import Settings


def revert(
    namespace: Annotated[str | None, optional("--namespace", "NAME", "Only pods of this namespace.", "-n")] = None,
    workload: Annotated[
        str | None,
        optional("--workload", "KIND/NAME", "Only pods of this workload, which is left in mode observe.", "-w"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Pause cruise, and resize running pods back to the requests and limits that they had before it; no pod is evicted.

    Original sizes are in an annotation of pods that were sized when they were
    created, and in the store for pods that were resized since: it has to be
    the store that the running cruise uses. cruise stays paused afterwards.

    With --workload it goes on with the others: mode observe is stored for
    that workload, until the override is removed in the dashboard or the API.

    Examples:
      cruise revert

      cruise revert --namespace shop --yes --format json

      cruise revert --namespace shop --workload Deployment/web

      kubectl -n cruise exec deploy/cruise-serve -- cruise revert --yes
    """
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadInput("revert resizes running pods: give --yes where no terminal can confirm it")
    of = _workload(workload, namespace)
    settings = settings_of(config)
    with quiet_logs():
        if not yes and not _agreed(settings, namespace, of):
            complain("nothing was changed")
            raise typer.Exit(1)
        done = _put_back(settings, namespace, of)
    _print(done, of, format)
    if any(outcome.verdict.value in ("failed", "refused") for outcome in done.outcomes):
        raise typer.Exit(1)


def _workload(text: str | None, namespace: str | None) -> "WorkloadRef | None":
    from cruise.domain.cluster import WorkloadRef

    if text is None:
        return None
    kind, _, name = text.partition("/")
    if not kind or not name:
        raise BadInput(f'--workload: "{text}" is no KIND/NAME such as Deployment/web')
    if namespace is None:
        raise BadInput("--workload needs --namespace: names of workloads are of one namespace")
    return WorkloadRef(kind, name)


def _agreed(settings: "Settings", namespace: str | None, workload: "WorkloadRef | None") -> bool:
    from cruise.app.reverting import sized_pods
    from cruise.cli.inputs.store import known_store

    with busy("reading the cluster"):
        count = asyncio.run(sized_pods(settings.kube(), known_store(settings, elsewhere=""), namespace, workload))
    where = f"in namespace {namespace}" if namespace is not None else "in all namespaces"
    if workload is not None:
        question = f"{workload} gets mode observe, and up to {count:,} of its pods their original sizes back. Go on?"
    else:
        question = f"cruise is paused, and up to {count:,} pods {where} get back their original sizes. Go on?"
    return typer.confirm(question, err=True)


def _put_back(settings: "Settings", namespace: str | None, workload: "WorkloadRef | None") -> "Reverted":
    from cruise.app.reverting import revert as put_back
    from cruise.app.serve.connections import policy_of
    from cruise.cli.inputs.store import known_store

    with busy("putting original sizes back"):
        return asyncio.run(
            put_back(settings.kube(), known_store(settings, elsewhere=""), policy_of(settings), namespace, workload)
        )


def _print(done: "Reverted", workload: "WorkloadRef | None", format: Format) -> None:
    from cruise.interfaces.revert_report import revert_json, revert_table

    pods = {(pod.namespace, pod.name): pod for pod in done.before.pods}
    print_result(
        format is Format.JSON,
        lambda: [revert_json(done.at, done.paused_before, done.outcomes, pods, workload)],
        lambda console: revert_table(done.paused_before, done.outcomes, pods, console, workload),
    )

"""`cruise pause`, `cruise resume` and `cruise revert`: stop writes, continue, and restore original requests."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import (
    ConfigOption,
    FormatOption,
    OutputFormat,
    create_option_without_default,
    load_process_settings,
)
from cruise.cli.terminal import (
    create_table_console,
    print_error,
    print_report,
    print_result,
    show_spinner,
    suppress_logs,
    write_json,
)
from cruise.errors import BadInputError

# `cruise pause` and `cruise resume`.

if TYPE_CHECKING:
    from cruise.settings import Settings

ServerOption = Annotated[str | None, create_option_without_default("--server", "URL", "The address of cruise's API.")]
TokenOption = Annotated[
    Path | None, create_option_without_default("--token-file", "FILE", "Its token; api_token_file if not given.")
]


NamespaceOption = Annotated[
    str | None, create_option_without_default("--namespace", "NAME", "The namespace of --workload.", "-n")
]
WorkloadOption = Annotated[
    str | None, create_option_without_default("--workload", "KIND/NAME", "Only this workload, of --namespace.", "-w")
]


def pause(
    namespace: NamespaceOption = None,
    workload: WorkloadOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Stop every write to the cluster immediately; nothing is undone.

    The pause is stored in the database of the running cruise (database_url,
    or data_dir on its machine), and survives restarts. From other machines,
    use --server and the token of its API.

    With --workload only the pods of that workload are left as they are, until
    `cruise resume` with the same options.

    Examples:
      cruise pause

      cruise pause --namespace shop --workload Deployment/web

      cruise pause --server https://cruise.example.org --token-file token

      kubectl -n cruise exec deploy/cruise-serve -- cruise pause
    """
    _set_paused(True, _parse_target(namespace, workload), server, token_file, format, config)


def resume(
    namespace: NamespaceOption = None,
    workload: WorkloadOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Continue writes to the cluster after `cruise pause`, from the next pass on.

    Decisions made during the pause are not carried out: the next pass decides
    again. With --workload only that workload is resumed, also one that
    `cruise revert` paused.

    Examples:
      cruise resume

      cruise resume --namespace shop --workload Deployment/web

      cruise resume --server https://cruise.example.org --token-file token
    """
    _set_paused(False, _parse_target(namespace, workload), server, token_file, format, config)


_Target = tuple[str, "WorkloadRef"] | None
"""The namespace and reference of a workload; None for all of cruise."""


def _parse_target(namespace: str | None, workload: str | None) -> _Target:
    ref = _parse_workload(workload, namespace)
    if ref is not None and namespace is not None:
        return namespace, ref
    if namespace is not None:
        raise BadInputError(
            "--namespace needs --workload; to skip the pods of a namespace, annotate it with cruise.io/mode: observe"
        )
    return None


@dataclass(frozen=True, slots=True)
class _PauseChange:
    """The state before, and where it was changed, in words."""

    paused: bool
    location: str


def _set_paused(
    paused: bool,
    target: _Target,
    server: str | None,
    token_file: Path | None,
    format: OutputFormat,
    config: Path | None,
) -> None:
    """Pause or resume, and print the result; BadInputError, UnavailableError."""
    settings = load_process_settings(config)
    if server is not None:
        before = _set_in_api(paused, target, server, token_file or settings.api_token_file)
    elif token_file is not None:
        raise BadInputError("--token-file needs --server: the database needs no token")
    else:
        before = asyncio.run(_set_in_database(paused, target, settings))
    if format is OutputFormat.JSON:
        import msgspec

        document = {"paused": paused, "wasPaused": before.paused, "place": before.location}
        if target is not None:
            document |= {"namespace": target[0], "workload": str(target[1])}
        write_json([msgspec.json.encode(document) + b"\n"])
        return
    from rich.text import Text

    print_report([Text(line) for line in _describe_change(paused, target, before)], create_table_console())


def _describe_change(paused: bool, target: _Target, before: _PauseChange) -> list[str]:
    if paused is before.paused:
        return [f"Nothing changed: {'already paused' if paused else 'not paused'}, in {before.location}."]
    if target is not None:
        done = f"{'Paused' if paused else 'Resumed'} {target[1]} of namespace {target[0]}, in {before.location}."
        return [done, f"The next pass {'leaves its pods as they are' if paused else 'may change its pods'}."]
    if paused:
        return [
            f"Paused, in {before.location}.",
            "Every running cruise stops within a second; requests that the API server has already received "
            "are completed. Passes continue and show what they would do.",
            "`cruise resume` continues writes, `cruise revert` restores the original requests.",
        ]
    return [f"Resumed, in {before.location}.", "Writes continue with the next pass."]


def _set_in_api(paused: bool, target: _Target, server: str, token_file: Path | None) -> _PauseChange:
    from cruise.adapters.api_client import ApiClient

    client = ApiClient(server, token_file)
    if target is None:
        before = client.is_paused()
        client.set_paused(paused)
    else:
        before = client.is_workload_paused(*target)
        client.set_workload_paused(*target, paused)
    return _PauseChange(before, client.address)


async def _set_in_database(paused: bool, target: _Target, settings: "Settings") -> _PauseChange:
    from cruise.app.process import get_current_time, get_local_caller
    from cruise.cli.inputs.store import describe_store, open_existing_store
    from cruise.domain.users import UserAction, UserActionKind

    now, caller = get_current_time(), get_local_caller()
    async with open_existing_store(settings) as store:
        if target is None:
            before = await store.is_paused()
            kind = UserActionKind.PAUSE if paused else UserActionKind.RESUME
            await store.record_user_action(UserAction(now, caller, kind))
            await store.set_paused(paused)
        else:
            before = target in await store.read_paused_workloads()
            kind = UserActionKind.PAUSE_WORKLOAD if paused else UserActionKind.RESUME_WORKLOAD
            await store.record_user_action(UserAction(now, caller, kind, *target))
            await store.write_workload_pause(*target, now if paused else None)
    return _PauseChange(before, describe_store(settings))


if TYPE_CHECKING:
    from cruise.app.revert import RevertResult
    from cruise.domain.cluster import WorkloadRef
    from cruise.settings import Settings


def revert(
    namespace: Annotated[
        str | None, create_option_without_default("--namespace", "NAME", "Only pods of this namespace.", "-n")
    ] = None,
    workload: Annotated[
        str | None,
        create_option_without_default("--workload", "KIND/NAME", "Only pods of this workload, which is paused.", "-w"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Pause cruise, and resize running pods back to their original requests and limits; no pod is evicted.

    Original sizes are in an annotation of pods that were sized at creation,
    and in the database for pods that were resized later: it must be the
    database of the running cruise. cruise stays paused afterwards.

    With --workload only that workload is paused, until `cruise resume` with
    the same options.

    Examples:
      cruise revert

      cruise revert --namespace shop --yes --format json

      cruise revert --namespace shop --workload Deployment/web

      kubectl -n cruise exec deploy/cruise-serve -- cruise revert --yes
    """
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadInputError("revert resizes running pods: add --yes without a terminal for confirmation")
    workload_ref = _parse_workload(workload, namespace)
    settings = load_process_settings(config)
    with suppress_logs():
        if not yes and not _confirm(settings, namespace, workload_ref):
            print_error("nothing was changed")
            raise typer.Exit(1)
        result = _revert(settings, namespace, workload_ref)
    _print(result, workload_ref, format)
    if any(outcome.result.value in ("failed", "refused") for outcome in result.outcomes):
        raise typer.Exit(1)


def _parse_workload(text: str | None, namespace: str | None) -> "WorkloadRef | None":
    from cruise.domain.cluster import WorkloadRef

    if text is None:
        return None
    kind, _, name = text.partition("/")
    if not kind or not name:
        raise BadInputError(f'--workload: "{text}" is not KIND/NAME; write e.g. Deployment/web')
    if namespace is None:
        raise BadInputError("--workload needs --namespace")
    return WorkloadRef(kind, name)


def _confirm(settings: "Settings", namespace: str | None, workload: "WorkloadRef | None") -> bool:
    from cruise.app.revert import count_resized_pods
    from cruise.cli.inputs.store import open_existing_store

    with show_spinner("reading the cluster"):
        count = asyncio.run(
            count_resized_pods(
                settings.to_kubernetes_settings(), open_existing_store(settings, alternative=""), namespace, workload
            )
        )
    where = f"in namespace {namespace}" if namespace is not None else "in all namespaces"
    if workload is not None:
        question = f"{workload} is paused, and up to {count:,} of its pods get back their original sizes. Continue?"
    else:
        question = f"cruise is paused, and up to {count:,} pods {where} get back their original sizes. Continue?"
    return typer.confirm(question, err=True)


def _revert(settings: "Settings", namespace: str | None, workload: "WorkloadRef | None") -> "RevertResult":
    from cruise.app.revert import revert_under_pause
    from cruise.app.serve.connections import build_policy_from_settings
    from cruise.cli.inputs.store import open_existing_store

    with show_spinner("restoring original sizes"):
        return asyncio.run(
            revert_under_pause(
                settings.to_kubernetes_settings(),
                open_existing_store(settings, alternative=""),
                build_policy_from_settings(settings),
                namespace,
                workload,
            )
        )


def _print(result: "RevertResult", workload: "WorkloadRef | None", format: OutputFormat) -> None:
    from cruise.interfaces.revert_report import render_revert_json, render_revert_table

    pods = {(pod.namespace, pod.name): pod for pod in result.before.pods}
    print_result(
        format is OutputFormat.JSON,
        lambda: [render_revert_json(result.at, result.was_paused, result.outcomes, pods, workload)],
        lambda console: render_revert_table(result.was_paused, result.outcomes, pods, console, workload),
    )

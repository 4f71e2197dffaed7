"""`cruise pause`, `cruise resume` and `cruise revert`: stop writes, continue, and restore original requests."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import ConfigOption, FormatOption, OutputFormat, create_optional_option, resolve_settings
from cruise.cli.terminal import (
    create_table_console,
    print_error,
    print_report,
    print_result,
    redirect_logs,
    show_spinner,
    write_json,
)
from cruise.errors import BadInputError

# `cruise pause` and `cruise resume`.

if TYPE_CHECKING:
    from cruise.settings import Settings

ServerOption = Annotated[str | None, create_optional_option("--server", "URL", "The address of cruise's API.")]
TokenOption = Annotated[
    Path | None, create_optional_option("--token-file", "FILE", "Its token; api_token_file if not given.")
]


def pause(
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Stop every write to the cluster immediately; nothing is undone.

    The pause is stored in the database of the running cruise (database_url,
    or data_dir on its machine), and survives restarts. From other machines,
    use --server and the token of its API.

    Examples:
      cruise pause

      cruise pause --server https://cruise.example.org --token-file token

      kubectl -n cruise exec deploy/cruise-serve -- cruise pause
    """
    _set_paused(True, server, token_file, format, config)


def resume(
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Continue writes to the cluster after `cruise pause`, from the next pass on.

    Decisions made during the pause are not carried out: the next pass decides
    again.

    Examples:
      cruise resume

      cruise resume --server https://cruise.example.org --token-file token
    """
    _set_paused(False, server, token_file, format, config)


@dataclass(frozen=True, slots=True)
class _PauseChange:
    """The state before, and where it was changed, in words."""

    paused: bool
    location: str


def _set_paused(
    paused: bool, server: str | None, token_file: Path | None, format: OutputFormat, config: Path | None
) -> None:
    """Pause or resume, and print the result; BadInputError, UnavailableError."""
    settings = resolve_settings(config)
    if server is not None:
        before = _set_in_api(paused, server, token_file or settings.api_token_file)
    elif token_file is not None:
        raise BadInputError("--token-file needs --server: the database needs no token")
    else:
        before = asyncio.run(_set_in_database(paused, settings))
    if format is OutputFormat.JSON:
        import msgspec

        document = {"paused": paused, "wasPaused": before.paused, "place": before.location}
        write_json([msgspec.json.encode(document) + b"\n"])
        return
    from rich.text import Text

    print_report([Text(line) for line in _describe_change(paused, before)], create_table_console())


def _describe_change(paused: bool, before: _PauseChange) -> list[str]:
    if paused is before.paused:
        return [f"Nothing changed: {'already paused' if paused else 'not paused'}, in {before.location}."]
    if paused:
        return [
            f"Paused, in {before.location}.",
            "Every running cruise stops within a second; requests that the API server has already received "
            "are completed. Passes continue and show what they would do.",
            "`cruise resume` continues writes, `cruise revert` restores the original requests.",
        ]
    return [f"Resumed, in {before.location}.", "Writes continue with the next pass."]


def _set_in_api(paused: bool, server: str, token_file: Path | None) -> _PauseChange:
    from cruise.adapters.api_client import ApiClient

    client = ApiClient(server, token_file)
    before = client.is_paused()
    client.set_paused(paused)
    return _PauseChange(before, client.address)


async def _set_in_database(paused: bool, settings: "Settings") -> _PauseChange:
    from cruise.app.process import get_current_time, get_local_caller
    from cruise.cli.inputs.store import describe_store, open_existing_store
    from cruise.domain.users import UserAction, UserActionKind

    async with open_existing_store(settings) as store:
        before = await store.is_paused()
        await store.record_user_action(
            UserAction(
                get_current_time(), get_local_caller(), UserActionKind.PAUSE if paused else UserActionKind.RESUME
            )
        )
        await store.set_paused(paused)
    return _PauseChange(before, describe_store(settings))


if TYPE_CHECKING:
    from cruise.app.revert import RevertResult
    from cruise.domain.cluster import WorkloadRef
    from cruise.settings import Settings


def revert(
    namespace: Annotated[
        str | None, create_optional_option("--namespace", "NAME", "Only pods of this namespace.", "-n")
    ] = None,
    workload: Annotated[
        str | None,
        create_optional_option(
            "--workload", "KIND/NAME", "Only pods of this workload, which then has mode observe.", "-w"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    format: FormatOption = OutputFormat.TABLE,
    config: ConfigOption = None,
) -> None:
    """Pause cruise, and resize running pods back to their original requests and limits; no pod is evicted.

    Original sizes are in an annotation of pods that were sized at creation,
    and in the database for pods that were resized later: it must be the
    database of the running cruise. cruise stays paused afterwards.

    With --workload only that workload is paused, until it is resumed in the
    dashboard or the API.

    Examples:
      cruise revert

      cruise revert --namespace shop --yes --format json

      cruise revert --namespace shop --workload Deployment/web

      kubectl -n cruise exec deploy/cruise-serve -- cruise revert --yes
    """
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadInputError("revert resizes running pods: add --yes without a terminal for confirmation")
    workload_ref = _parse_workload(workload, namespace)
    settings = resolve_settings(config)
    with redirect_logs():
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
        question = (
            f"{workload} gets mode observe, and up to {count:,} of its pods get back their original sizes. Continue?"
        )
    else:
        question = f"cruise is paused, and up to {count:,} pods {where} get back their original sizes. Continue?"
    return typer.confirm(question, err=True)


def _revert(settings: "Settings", namespace: str | None, workload: "WorkloadRef | None") -> "RevertResult":
    from cruise.app.revert import revert_under_pause
    from cruise.app.serve.connections import get_policy
    from cruise.cli.inputs.store import open_existing_store

    with show_spinner("restoring original sizes"):
        return asyncio.run(
            revert_under_pause(
                settings.to_kubernetes_settings(),
                open_existing_store(settings, alternative=""),
                get_policy(settings),
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

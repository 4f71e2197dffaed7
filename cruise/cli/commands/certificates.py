"""`cruise certificates`: the webhook's certificate, made and published by a process that listens nowhere."""

from typing import Annotated

import typer

from cruise.cli.options import ConfigOption, settings_of


def certificates(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    config: ConfigOption = None,
) -> None:
    """Make, renew and publish the certificate of `cruise webhook`, without listening anywhere.

    It is kept in the Secret cruise-webhook-tls, outside of a cluster in
    tls_dir, and its authority is put into the MutatingWebhookConfiguration.
    The webhook reads it as files of its tls_dir, and needs no right to
    write. Logs go to standard error.

    Examples:
      cruise certificates

      CRUISE_TLS_DIR=/etc/cruise/tls cruise certificates --config cruise.toml
    """
    import uvloop

    from cruise.app.log_lines import set_up_logs
    from cruise.app.signals import for_good
    from cruise.app.webhook.certificates import keep_certificates

    settings = settings_of(config)
    set_up_logs(settings.log_format, "debug" if verbose else settings.log_level)
    uvloop.run(for_good(keep_certificates(settings)))

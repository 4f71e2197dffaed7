"""`cruise webhook`: the admission webhook, of which several may run."""

from typing import Annotated

import typer

from cruise.cli.options import ConfigOption, settings_of


def webhook(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    config: ConfigOption = None,
) -> None:
    """Answer the API server's reviews of new pods: requests from what their workload used, over HTTPS.

    A pod is always admitted; in doubt it is left as it was sent. In mode
    observe, the default, nothing is patched. With tls_dir its tls.crt and
    tls.key are served, and read again when they change; without it a
    certificate is made, published and renewed. Logs go to standard error.

    Examples:
      CRUISE_MODE=initial cruise webhook

      CRUISE_DATABASE_URL=postgresql://cruise@db/cruise cruise webhook

      CRUISE_TLS_DIR=/etc/cruise/tls cruise webhook --config cruise.toml
    """
    import uvloop

    from cruise.app.log_lines import set_up_logs
    from cruise.app.signals import for_good
    from cruise.app.webhook.serving import serve_webhook

    settings = settings_of(config)
    set_up_logs(settings.log_format, "debug" if verbose else settings.log_level)
    uvloop.run(for_good(serve_webhook(settings)))

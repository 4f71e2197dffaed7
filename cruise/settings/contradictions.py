"""Settings that contradict each other, each refused with what to change."""

from cruise.errors import BadInput
from cruise.settings.choices import ApiAuthentication, NotifyFormat
from cruise.settings.table import Settings


def without_contradictions(settings: Settings) -> Settings:
    """Return the settings. Raises BadInput where one makes another one useless, or unsafe."""
    if settings.overload_below > settings.overload_above:
        raise BadInput(
            f"overload_below ({settings.overload_below:g}) is above overload_above ({settings.overload_above:g}); "
            "a node could never settle: lower it, e.g. to 0.9"
        )
    if settings.pass_interval > settings.max_age:
        raise BadInput(
            "pass_interval is longer than max_age: statistics would be too old at every pass, and nothing "
            "would be sized; raise max_age"
        )
    if settings.webhook_client_names and settings.webhook_client_ca_file is None:
        raise BadInput(
            "webhook_client_names without webhook_client_ca_file: nobody's name is verified; set both, or none"
        )
    if settings.prometheus_token_file is not None and settings.prometheus_user is not None:
        raise BadInput("prometheus_token_file and prometheus_user are both set; keep one way of signing in")
    if settings.prometheus_password is not None and settings.prometheus_password_file is not None:
        raise BadInput("prometheus_password and prometheus_password_file are both set; keep one")
    if settings.api_authentication is ApiAuthentication.KUBERNETES and settings.api_token_file is not None:
        raise BadInput("api_authentication is kubernetes and api_token_file is set; keep one way of authentication")
    _check_oidc(settings)
    if settings.notify_url is not None and settings.notify_url_file is not None:
        raise BadInput("notify_url and notify_url_file are both set; keep one")
    notifies = settings.notify_url is not None or settings.notify_url_file is not None
    if notifies and settings.notify_format is NotifyFormat.GENERIC and settings.notify_secret_file is None:
        raise BadInput("notify_format generic needs notify_secret_file: without it nobody can tell who sent it")
    if (settings.price_core_hour is None) != (settings.price_gibibyte_hour is None):
        raise BadInput("price_core_hour and price_gibibyte_hour go together: a node is paid for both; set both or none")
    return settings


def _check_oidc(settings: Settings) -> None:
    if settings.oidc_issuer_url is None:
        return
    if settings.api_authentication is not ApiAuthentication.KUBERNETES:
        raise BadInput("oidc_issuer_url needs api_authentication = kubernetes: roles say who may do what")
    for name in ("oidc_client_id", "oidc_redirect_url"):
        if getattr(settings, name) is None:
            raise BadInput(f"oidc_issuer_url needs {name} as well")
    if not (settings.oidc_redirect_url or "").endswith("/signed-in"):
        raise BadInput(
            f"oidc_redirect_url: {settings.oidc_redirect_url} does not end with /signed-in; "
            "write e.g. https://cruise.example.com/signed-in"
        )
    if "openid" not in settings.oidc_scopes.split():
        raise BadInput("oidc_scopes lacks openid, without which there is no ID token")

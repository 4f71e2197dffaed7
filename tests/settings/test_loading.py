from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.policy import Mode, Policy
from cruise.errors import BadInputError
from cruise.settings import Settings, load_settings
from cruise.settings.loading import find_nearest_key
from cruise.settings.settings import SETTING_TYPES
from cruise.settings.value_types import parse_duration


def error_line(environment=None, config=None) -> str:
    with pytest.raises(BadInputError) as refused:
        load_settings(environment or {}, config)
    return str(refused.value)


def written(directory: Path, text: str) -> Path:
    path = directory / "cruise.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_anything_set_the_policy_is_the_default_one():
    assert load_settings({"HOME": "/nowhere"}).to_policy() == Policy()


def test_environment_wins_over_file_and_file_over_default(tmp_path):
    path = written(tmp_path, 'max_age = "20m"\nlook_ahead = "0s"\nmax_evictions_per_hour = 3\n')
    settings = load_settings({"CRUISE_MAX_AGE": "1h30m"}, path)
    assert settings.max_age == timedelta(minutes=90)
    assert settings.look_ahead == timedelta(0)
    assert settings.to_policy().max_evictions_per_hour == 3
    assert settings.to_policy().max_age == timedelta(minutes=90)


def test_every_setting_of_the_policy_reaches_it(tmp_path):
    path = written(
        tmp_path,
        'mode = "full"\nexcluded_namespaces = ["kube-system", "ops"]\noom_reaction = "record"\n'
        "allow_extended_resources = true\noverload_taint_threshold = 2\noverload_untaint_threshold = "
        "1.5\nmemory_risk = 0.02\n",
    )
    policy = load_settings({}, path).to_policy()
    assert policy.mode is Mode.FULL
    assert policy.excluded_namespaces == {"kube-system", "cruise", "ops"}
    assert policy.allow_extended_resources
    assert (policy.overload_taint_threshold, policy.overload_untaint_threshold) == (2.0, 1.5)
    assert policy.memory_risk == 0.02


def test_an_unknown_key_names_the_nearest_one_and_its_place(tmp_path):
    assert error_line({"CRUISE_MAXAGE": "5m"}) == "CRUISE_MAXAGE: no such setting; did you mean CRUISE_MAX_AGE?"
    path = written(tmp_path, 'mod = "full"')
    assert error_line(config=path) == f"{path}: mod: no such setting; did you mean mode?"


def test_a_bad_value_names_key_place_and_a_well_formed_example(tmp_path):
    assert error_line({"CRUISE_MAX_AGE": "5 minutes"}) == (
        'CRUISE_MAX_AGE: "5 minutes" is not a duration of at most 1d; write e.g. 15m or 1h30m'
    )
    path = written(tmp_path, "max_evictions_per_node = -1")
    assert error_line(config=path) == (
        f"{path}: max_evictions_per_node: -1 is not a whole number of at least 0; write e.g. 1"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "off"),
        ("mode", "Everything"),
        ("headroom", "sum"),
        ("log_format", "xml"),
        ("log_level", "loud"),
        ("shutdown_grace_period", "soon"),
        ("price_core_hour", "-1"),
        ("currency", "dollars"),
        ("currency", "<b>"),
        ("currency", "E R"),
        ("currency", "4"),
        ("memory_risk", "0"),
        ("memory_risk", "1"),
        ("memory_risk", "nan"),
        ("memory_risk", "low"),
        ("price_core_hour", "cheap"),
        ("price_gibibyte_hour", "inf"),
        ("oom_reaction", "panic"),
        ("pass_interval", "0s"),
        ("max_age", "99999999999d"),
        ("look_ahead", "-5m"),
        ("max_evictions_per_hour", "many"),
        ("max_evictions_per_hour", "1.5"),
        ("prometheus_concurrency", "0"),
        ("prometheus_step", "1s"),
        ("prometheus_url", "prometheus:9090"),
        ("prometheus_headers", "no equals sign"),
        ("prometheus_insecure_tls", "perhaps"),
        ("http_address", "8080"),
        ("http_address", "localhost:99999"),
        ("overload_taint_threshold", "nan"),
        ("overload_taint_threshold", "0"),
        ("overload_taint_threshold", "80"),
        ("memory_risk", "7"),
        ("memory_risk", "0.95"),
        ("cpu_risk", "7%"),
        ("cpu_tolerance", "15"),
        ("memory_tolerance", "0"),
        ("memory_limit_ceiling", "0.5"),
        ("max_age", "15d"),
        ("pass_interval", "5d"),
        ("kube_timeout", "30h"),
        ("lease_duration", "15m"),
        ("webhook_time_budget", "1m"),
        ("shrink_cooldown", "400d"),
        ("prometheus_matchers", '{cluster="prod"}'),
        ("prometheus_matchers", "cluster=prod"),
        ("prometheus_matchers", "prod"),
        ("prometheus_cadvisor_matchers", 'job="kubelet'),
        ("prometheus_namespace_label", "name space"),
        ("prometheus_cpu_metric", "rate(usage[5m])"),
        ("prometheus_node_label", "node-name"),
        ("http_allowed_hosts", "https://cruise.example.com"),
        ("http_allowed_hosts", "*.example.com"),
        ("node_prices", "m6i.large/spott=0.035"),
        ("node_prices", "m6i.large=-1"),
    ],
)
def test_values_that_cannot_be_meant_are_rejected(key, value):
    assert error_line({f"CRUISE_{key.upper()}": value}).startswith(f"CRUISE_{key.upper()}: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prometheus_matchers", 'cluster="prod"'),
        ("prometheus_matchers", "cluster=~'prod|test' , region!=\"eu\""),
        ("prometheus_cpu_metric", "pod:container_cpu:rate"),
        ("http_allowed_hosts", "cruise.example.com:8443,[2001:db8::1],10.0.0.1"),
        ("look_ahead", "0s"),
        ("cpu_risk", "0.07"),
        ("memory_limit_ceiling", "1"),
        ("node_prices", "m6i.large=0.096,m6i.large/spot=0.035"),
    ],
)
def test_values_that_can_be_meant_are_taken(key, value):
    load_settings({f"CRUISE_{key.upper()}": value})


@pytest.mark.parametrize(
    "text", ["mode = 3", "max_age = 15", "prometheus_insecure_tls = 1", "excluded_namespaces = [1]", "data_dir = ''"]
)
def test_values_of_another_type_are_rejected_in_a_file(tmp_path, text):
    assert text.partition(" ")[0] in error_line(config=written(tmp_path, text))


def test_a_secret_is_neither_quoted_nor_printed(tmp_path):
    path = written(tmp_path, "prometheus_password = 12345\n")
    assert "12345" not in error_line(config=path)
    settings = load_settings({"CRUISE_PROMETHEUS_PASSWORD": "hush", "CRUISE_DATABASE_URL": "postgresql://u:pw@h/d"})
    assert "hush" not in repr(settings)
    assert "pw" not in repr(settings)


def test_a_file_that_is_absent_or_broken_is_rejected_with_its_place(tmp_path):
    assert "cannot be read: No such file" in error_line(config=tmp_path / "absent.toml")
    assert "not TOML" in error_line(config=written(tmp_path, "max_age = 15m"))
    (tmp_path / "latin.toml").write_bytes(b'mode = "\xe9"')
    assert "not UTF-8" in error_line(config=tmp_path / "latin.toml")


def test_addresses_of_services_that_kubernetes_injects_are_no_settings():
    injected = {
        "CRUISE_SERVICE_HOST": "10.0.0.1",
        "CRUISE_SERVICE_PORT": "8080",
        "CRUISE_SERVICE_PORT_HTTP": "8080",
        "CRUISE_PORT": "tcp://10.0.0.1:8080",
        "CRUISE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "CRUISE_WEBHOOK_PORT_443_TCP_ADDR": "10.0.0.2",
    }
    assert load_settings(injected) == Settings()
    assert "CRUISE_HTTP_PORT" in error_line({"CRUISE_HTTP_PORT": "8080"})


def test_what_a_manifest_leaves_empty_is_not_set():
    assert load_settings({"CRUISE_PROMETHEUS_URL": "", "CRUISE_MAX_AGE": " "}) == Settings()


def test_settings_that_contradict_each_other_are_rejected():
    assert "overload_untaint_threshold" in error_line({"CRUISE_OVERLOAD_UNTAINT_THRESHOLD": "2"})
    assert "raise max_age" in error_line({"CRUISE_PASS_INTERVAL": "20m"})
    assert "keep one" in error_line({"CRUISE_PROMETHEUS_TOKEN_FILE": "/t", "CRUISE_PROMETHEUS_USER": "me"})
    identity = {"CRUISE_PROMETHEUS_IDENTITY": "google"}
    assert "prometheus_identity and prometheus_user" in error_line({**identity, "CRUISE_PROMETHEUS_USER": "me"})
    assert "prometheus_identity = aws" in error_line({**identity, "CRUISE_PROMETHEUS_AWS_REGION": "eu-west-1"})
    assert "a cloud provider" in error_line({"CRUISE_PROMETHEUS_IDENTITY": "amazon"})


def test_prometheus_settings_carry_what_was_set(tmp_path):
    (tmp_path / "password").write_text("s3cret\n", encoding="utf-8")
    settings = load_settings(
        {
            "CRUISE_PROMETHEUS_URL": "https://mimir.example/prometheus",
            "CRUISE_PROMETHEUS_USER": "cruise",
            "CRUISE_PROMETHEUS_PASSWORD_FILE": str(tmp_path / "password"),
            "CRUISE_PROMETHEUS_HEADERS": "X-Scope-OrgID=team-a, X-Other=b",
            "CRUISE_PROMETHEUS_MATCHERS": 'cluster="prod"',
            "CRUISE_PROMETHEUS_NAMESPACE_LABEL": "kubernetes_namespace",
            "CRUISE_PROMETHEUS_ID_LABEL": "-",
            "CRUISE_PROMETHEUS_STEP": "30s",
            "CRUISE_PROMETHEUS_TIMEOUT": "1m",
            "CRUISE_RULES": "seeds",
        }
    ).to_prometheus_settings()
    assert settings.url == "https://mimir.example/prometheus"
    assert (settings.user, settings.password) == ("cruise", "s3cret")
    assert settings.headers == {"X-Scope-OrgID": "team-a", "X-Other": "b"}
    assert settings.matchers == 'cluster="prod"'
    assert (settings.labels.namespace, settings.labels.id, settings.labels.pod) == ("kubernetes_namespace", "", "pod")
    assert (settings.step_seconds, settings.timeout_seconds) == (30, 60.0)
    assert not settings.plausible


def test_prometheus_without_an_address_is_rejected_and_a_given_one_wins():
    with pytest.raises(BadInputError, match="set prometheus_url"):
        Settings().to_prometheus_settings()
    assert load_settings({"CRUISE_PROMETHEUS_URL": "http://a"}).to_prometheus_settings("http://b").url == "http://b"


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_durations_add_up(days, hours, minutes, seconds):
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert parse_duration(text) == timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


@given(st.text(max_size=25))
def test_any_unknown_key_has_a_nearest_one(text):
    assert find_nearest_key(text) in SETTING_TYPES


@given(st.sampled_from(sorted(SETTING_TYPES)), st.text(max_size=40).filter(lambda text: "\0" not in text))
def test_any_text_is_read_or_refused_in_one_line(key, text):
    try:
        load_settings({f"CRUISE_{key.upper()}": text})
    except BadInputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("currency", ["€", "EUR", "kr", "Fr.", "R$"])
def test_a_currency_is_that_of_stated_prices(tmp_path, currency):
    prices = f'currency = "{currency}"\nprice_core_hour = 0.02\nprice_gibibyte_hour = 0.01\n'
    stated = load_settings({}, written(tmp_path, prices)).to_price_settings().resources
    assert stated is not None and stated.currency == currency
    # Without prices, the list prices would count, which are in dollars.
    without = written(tmp_path, f'currency = "{currency}"\nnode_prices = "m6i.large=0.1"\n')
    assert "currency needs price_core_hour and price_gibibyte_hour" in error_line(config=without)


def test_prices_are_set_together_and_may_be_zero(tmp_path):
    settings = load_settings({}, written(tmp_path, "price_core_hour = 0.02\nprice_gibibyte_hour = 0\n"))
    assert (settings.price_core_hour, settings.price_gibibyte_hour) == (0.02, 0.0)
    assert load_settings({}).price_core_hour is None
    assert error_line({"CRUISE_PRICE_GIBIBYTE_HOUR": "0.005"}).startswith(
        "price_core_hour and price_gibibyte_hour belong together"
    )

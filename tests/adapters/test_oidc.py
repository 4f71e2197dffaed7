"""The claims of an identity provider, and each reason to reject them."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey

from cruise.adapters.oidc import OidcProvider
from cruise.app.process import get_current_time
from cruise.domain.users import Caller, SignInDeniedError
from cruise.errors import BadInputError, UnavailableError
from cruise.settings import load_settings
from tests.adapters.identity_provider import LocalIdentityProvider, run_identity_provider


@pytest.fixture
async def provider(tmp_path) -> AsyncIterator[LocalIdentityProvider]:
    async with run_identity_provider(tmp_path) as one:
        yield one


async def signed_in(provider: LocalIdentityProvider, **more: Any) -> Caller:
    ours = OidcProvider(provider.settings(**more), get_current_time)
    departure = await ours.start_sign_in()
    parts = urlsplit(departure.redirect_url)
    asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert departure.redirect_url.startswith(f"{provider.address}/authorize?")
    assert (asked["response_type"], asked["code_challenge_method"], asked["scope"]) == ("code", "S256", "openid")
    assert departure.code_verifier not in departure.redirect_url
    back = parse_qs(urlsplit(provider.authorize(asked)).query)
    assert back["state"] == [departure.state]
    return await ours.complete_sign_in(departure, back["code"][0])


@pytest.mark.parametrize(
    ("settings", "claims", "name", "groups"),
    [
        ({}, {}, "{issuer}#ann", ("team",)),
        ({"username_prefix": "-"}, {}, "ann", ("team",)),
        ({"username_prefix": "oidc:", "groups_prefix": "oidc:"}, {}, "oidc:ann", ("oidc:team",)),
        ({"username_claim": "email"}, {"email": "ann@example.com"}, "ann@example.com", ("team",)),
        ({"groups_claim": "roles"}, {"roles": "one"}, "{issuer}#ann", ("one",)),
        ({}, {"groups": ["system:masters", "", 3, "ops"]}, "{issuer}#ann", ("ops",)),
        ({}, {"aud": ["cruise", "other"], "azp": "cruise"}, "{issuer}#ann", ("team",)),
        ({}, {"groups": None}, "{issuer}#ann", ()),
    ],
)
async def test_user_and_groups_are_named_as_the_api_server_would(provider, settings, claims, name, groups):
    provider.claims |= claims
    found = await signed_in(provider, **settings)
    assert found == Caller(name.format(issuer=provider.address), "", (*groups, "system:authenticated"))


async def test_sends_the_secret_in_a_header_and_not_in_the_url(provider, tmp_path):
    (tmp_path / "secret").write_text("of-the-client\n")
    await signed_in(provider, client_secret_file=tmp_path / "secret")
    assert any(one.startswith("Basic ") for one in provider.said)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nonce": "of another"}, "claim nonce does not have the expected value"),
        ({"aud": "another"}, "claim aud does not have the expected value"),
        ({"aud": ["cruise", "other"]}, "claim azp does not have the expected value"),
        ({"azp": "other"}, "claim azp does not have the expected value"),
        ({"iss": "https://elsewhere"}, "claim iss does not have the expected value"),
        ({"exp": 1}, "has expired"),
        ({"exp": None}, "claim exp does not have the expected value"),
        ({"sub": ""}, "no user name in its claim sub"),
        ({"sub": None}, "no user name in its claim sub"),
    ],
)
async def test_each_claim_that_is_wrong_is_named(provider, wrong, said):
    provider.claims |= wrong
    with pytest.raises(SignInDeniedError, match=said):
        await signed_in(provider)


async def test_rejects_reserved_names_and_unverified_addresses(provider):
    provider.claims["sub"] = "system:admin"
    with pytest.raises(SignInDeniedError, match="reserved for Kubernetes"):
        await signed_in(provider, username_prefix="-")
    provider.claims |= {"email": "ann@example.com", "email_verified": False}
    with pytest.raises(SignInDeniedError, match="not verified"):
        await signed_in(provider, username_claim="email")


async def test_only_the_providers_own_keys_sign(provider):
    provider.signing = RSAKey.generate_key(2048, {"kid": "one"})
    with pytest.raises(SignInDeniedError, match="not signed by a key of the provider"):
        await signed_in(provider)


@pytest.mark.parametrize("token", ["none", "nonsense", "eyJhbGciOiJub25lIn0.e30."])
async def test_rejects_a_token_without_a_valid_signature(provider, token):
    provider.id_token = token
    with pytest.raises(SignInDeniedError, match=r"no ID token|cannot be verified|not signed"):
        await signed_in(provider)


async def test_accepts_a_code_once_and_only_for_its_sign_in_request(provider):
    ours = OidcProvider(provider.settings(), get_current_time)
    first, second = await ours.start_sign_in(), await ours.start_sign_in()
    asked = {name: values[0] for name, values in parse_qs(urlsplit(first.redirect_url).query).items()}
    code = parse_qs(urlsplit(provider.authorize(asked)).query)["code"][0]
    with pytest.raises(SignInDeniedError, match="invalid_grant"):
        await ours.complete_sign_in(second, code)
    with pytest.raises(SignInDeniedError, match="invalid_grant"):
        await ours.complete_sign_in(first, code)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"issuer": "https://elsewhere"}, "another issuer"),
        ({"token_endpoint": "http://127.0.0.1/token"}, "no token_endpoint with https"),
        ({"jwks_uri": None}, "no jwks_uri with https"),
    ],
)
async def test_rejects_a_document_of_another_issuer_or_without_tls(provider, document, said):
    provider.document = document
    with pytest.raises(UnavailableError, match=said):
        await signed_in(provider)


@pytest.mark.parametrize("text", ["<html>", "[" * 100_000, '{"a":' + "1" * 5000 + "}"])
async def test_rejects_what_is_no_document(provider, text):
    provider.text = text
    with pytest.raises(UnavailableError, match="without a discovery document"):
        await signed_in(provider)


async def test_reports_an_untrusted_or_missing_provider_in_one_line(provider):
    with pytest.raises(UnavailableError, match="not trusted: see oidc_ca_file"):
        await signed_in(provider, ca_file=None)
    with pytest.raises(UnavailableError, match="does not answer: ConnectionError"):
        await signed_in(provider, issuer_url="https://127.0.0.1:9")


GOOD = {
    "CRUISE_API_AUTHENTICATION": "kubernetes",
    "CRUISE_OIDC_ISSUER_URL": "https://idp.example.com",
    "CRUISE_OIDC_CLIENT_ID": "cruise",
    "CRUISE_OIDC_REDIRECT_URL": "https://cruise.example.com/signed-in",
}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"CRUISE_OIDC_ISSUER_URL": "http://idp.example.com"}, "address with https"),
        ({"CRUISE_OIDC_REDIRECT_URL": "https://cruise.example.com/"}, "does not end with /signed-in"),
        ({"CRUISE_OIDC_CLIENT_ID": ""}, "needs oidc_client_id"),
        ({"CRUISE_API_AUTHENTICATION": "token"}, "needs api_authentication = kubernetes"),
        ({"CRUISE_OIDC_SCOPES": "email"}, "lacks openid"),
    ],
)
def test_settings_that_cannot_work_are_one_line(wrong, said):
    assert load_settings(GOOD).to_oidc_settings() is not None
    with pytest.raises(BadInputError, match=said):
        load_settings(GOOD | wrong)

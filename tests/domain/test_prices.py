"""Amounts of money in a currency."""

import pytest

from cruise.domain.prices import DOLLAR, ResourcePrices, format_money, format_prices


@pytest.mark.parametrize(
    ("currency", "texts"),
    [
        (DOLLAR, ["$1,204", "$3.20", "-$12"]),
        ("€", ["€1,204", "€3.20", "-€12"]),
        ("R$", ["R$1,204", "R$3.20", "-R$12"]),
        ("EUR", ["EUR 1,204", "EUR 3.20", "-EUR 12"]),
        ("Fr.", ["Fr. 1,204", "Fr. 3.20", "-Fr. 12"]),
    ],
)
def test_a_sign_is_next_to_the_number_and_letters_are_apart(currency, texts):
    assert [format_money(amount, currency) for amount in (1204.4, 3.2, -12)] == texts


def test_prices_have_their_currency():
    assert format_prices(ResourcePrices(0.0145, 0.00724)) == "$0.0145 a core-hour, $0.00724 a GiB-hour"
    assert format_prices(ResourcePrices(0.3, 0.04, "kr")) == "kr 0.3 a core-hour, kr 0.04 a GiB-hour"

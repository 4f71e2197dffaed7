import math
from datetime import timedelta

import pytest

from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.interfaces.text import (
    GIBIBYTE,
    format_age,
    format_cores,
    format_count,
    format_cpu,
    format_exact,
    format_gibibytes,
    format_memory,
    format_percent,
    format_rate,
    format_share,
)
from tests.builders import NOW


@pytest.mark.parametrize(
    ("millicores", "text"), [(0, "–"), (5, "5m"), (4408, "4,408m"), (13_800, "13,800m"), (-13_800, "-13,800m")]
)
def test_cpu_has_one_form_for_small_and_large_values(millicores, text):
    assert format_cpu(millicores) == text


@pytest.mark.parametrize(
    ("memory_bytes", "text"),
    [
        (0, "–"),
        (512, "512B"),
        (257 * MEBIBYTE, "257Mi"),
        (GIBIBYTE * 3 // 2, "1.5Gi"),
        (1204 * GIBIBYTE, "1,204Gi"),
        (-2 * GIBIBYTE, "-2.0Gi"),
    ],
)
def test_memory_is_in_kubernetes_units(memory_bytes, text):
    assert format_memory(memory_bytes) == text


def test_sums_are_in_cores_and_gibibytes():
    assert [format_cores(value) for value in (130, 12_340, 123_400)] == ["0.13", "12.3", "123"]
    assert format_gibibytes(GIBIBYTE // 4) == "0.25"


def test_exact_amounts_keep_a_tenth():
    assert format_exact(ResourceName.CPU, 68.57) == "68.6m"
    assert format_exact(ResourceName.CPU, 120) == "120m"
    assert format_exact(ResourceName.MEMORY, 257.25 * MEBIBYTE) == "257.2Mi"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(1, 0, "–"), (0, 5, "0%"), (1, 1000, "<1%"), (999, 1000, ">99%"), (1, 1, "100%"), (-2, 100, "-2%")],
)
def test_a_share_is_neither_nothing_nor_all_unless_it_is(part, whole, text):
    assert format_share(part, whole) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "just now"), (0, "just now"), (40, "40s ago"), (90, "90s ago"), (3600, "1h ago"), (864000, "10d ago")],
)
def test_ages_are_in_the_largest_unit_that_says_enough(seconds, text):
    assert format_age(NOW, NOW - timedelta(seconds=seconds)) == text


def test_counts_have_their_noun():
    assert [format_count(number, "pod") for number in (0, 1, 1204)] == ["0 pods", "1 pod", "1,204 pods"]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0"),
        (0.000001, "<.001"),
        (0.00004, "0.004"),
        (0.0012, "0.12"),
        (0.0321, "3.21"),
        (0.543, "54.3"),
        (0.99999, "100.0"),
        (1, "100"),
        (-0.123, "-12.3"),
        (math.nan, "–"),
    ],
)
def test_a_share_in_percent_takes_five_characters(share, text):
    assert format_percent(share) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0"), (0.001, "<.01"), (0.31, "0.31"), (12.46, "12.5"), (1204.3, "1,204"), (math.inf, "–")],
)
def test_rates_have_three_digits(rate, text):
    assert format_rate(rate) == text

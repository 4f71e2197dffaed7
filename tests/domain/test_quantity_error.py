"""Quantities: the Kubernetes grammar, and round trips."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.resources import (
    LARGEST_QUANTITY,
    QuantityError,
    format_cpu_millicores,
    format_memory_bytes,
    parse_cpu_millicores,
    parse_memory_bytes,
)

SCALES = {
    **{"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)},
    **{"k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12)},
    **{"P": Fraction(10**15), "E": Fraction(10**18), "Ki": Fraction(1 << 10), "Mi": Fraction(1 << 20)},
    **{"Gi": Fraction(1 << 30), "Ti": Fraction(1 << 40), "Pi": Fraction(1 << 50), "Ei": Fraction(1 << 60)},
    **{"e3": Fraction(1000), "E3": Fraction(1000), "e-3": Fraction(1, 1000), "E+2": Fraction(100)},
}


@pytest.mark.parametrize(
    ("text", "millicores"),
    [("500m", 500), ("2", 2000), ("0.1", 100), ("1.5", 1500), ("100u", 1), ("1n", 1), ("1.0001", 1001), ("0", 0)],
)
def test_cpu_is_rounded_up_to_millicores(text, millicores):
    assert parse_cpu_millicores(text) == millicores


@pytest.mark.parametrize(
    ("text", "memory_bytes"),
    [
        ("1.5Gi", 3 << 29),
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("129M", 129_000_000),
        ("123Mi", 123 << 20),
        ("128974848000m", 128974848),
        ("1500m", 2),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("+1k", 1000),
        (".5Ki", 512),
        ("5.", 5),
    ],
)
def test_memory_is_rounded_up_to_bytes(text, memory_bytes):
    assert parse_memory_bytes(text) == memory_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        "1.5Gx",
        "1K",
        "1i",
        "1mi",
        "m",
        ".",
        "-",
        "--1",
        "1e",
        "1e+",
        "1ee3",
        "0x1",
        "1_000",
        "٣",
        "nan",
    ],
)
def test_what_is_no_quantity_is_rejected_and_quoted(text):
    with pytest.raises(QuantityError, match=r"is not a quantity; write e\.g\. 500m, 2 or 1\.5Gi") as refused:
        parse_memory_bytes(text)
    assert text in str(refused.value)
    with pytest.raises(QuantityError):
        parse_cpu_millicores(text)


@pytest.mark.parametrize("text", ["9Ei", "1e19", "1e999999999", "99999999999999999999"])
def test_more_than_64_bits_is_capped_as_kubernetes_does(text):
    assert parse_memory_bytes(text) == LARGEST_QUANTITY


def test_a_negative_amount_keeps_its_sign_however_small():
    assert parse_cpu_millicores("-0.1m") == -1
    assert parse_memory_bytes("-2Ki") == -2048


def test_an_absurdly_long_text_is_rejected_without_being_computed():
    with pytest.raises(QuantityError) as refused:
        parse_memory_bytes("9" * 1_000_000)
    assert len(str(refused.value)) < 120


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 6), st.sampled_from(sorted(SCALES)))
def test_parsing_is_exact_rational_arithmetic_rounded_up(whole, fraction, digits, suffix):
    text = f"{whole}.{fraction:0{digits}d}" if digits else str(whole)
    written = Fraction(text) * SCALES[suffix]
    assert parse_memory_bytes(text + suffix) == min(LARGEST_QUANTITY, -(-written.numerator // written.denominator))
    milli = written * 1000
    assert parse_cpu_millicores(text + suffix) == min(LARGEST_QUANTITY, -(-milli.numerator // milli.denominator))


@given(st.integers(0, LARGEST_QUANTITY // 1000))
def test_cpu_is_read_as_it_was_written(millicores):
    assert parse_cpu_millicores(format_cpu_millicores(millicores)) == millicores


@given(st.integers(0, 2**20 - 1), st.integers(0, 43))
def test_memory_is_read_as_it_was_written(number, power):
    memory_bytes = number << power
    assert parse_memory_bytes(format_memory_bytes(memory_bytes)) == memory_bytes


@pytest.mark.parametrize(("millicores", "text"), [(130, "130m"), (2000, "2"), (0, "0"), (1500, "1500m")])
def test_cpu_is_written_in_whole_cores_where_it_can_be(millicores, text):
    assert format_cpu_millicores(millicores) == text


@pytest.mark.parametrize(
    ("memory_bytes", "text"),
    [(269484032, "257Mi"), (838860800, "800Mi"), (16 << 30, "16Gi"), (1000, "1000"), (1024, "1Ki"), (0, "0")],
)
def test_memory_is_written_in_the_largest_exact_binary_suffix(memory_bytes, text):
    assert format_memory_bytes(memory_bytes) == text

"""The CPU of a start, as annotations state it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.annotations import UnreadableAnnotations
from cruise.domain.overrides import parse_overrides
from cruise.domain.startup_cpu import StartupCpu, format_startup_cpu, parse_startup_cpu

STATED = st.floats(1, 10).map(lambda factor: StartupCpu(factor=factor)) | st.integers(10, 100_000).map(
    lambda millicores: StartupCpu(cpu_millicores=millicores)
)
STATED |= st.booleans().map(lambda is_learned: StartupCpu(is_learned=is_learned))


@given(STATED)
def test_what_is_written_is_read_again(stated):
    assert parse_startup_cpu(format_startup_cpu(stated)) == stated


@given(STATED, st.integers(1, 100_000))
def test_a_start_gets_no_less_than_the_size(stated, millicores):
    assert stated.apply_to(millicores) >= millicores


@pytest.mark.parametrize(("text", "millicores"), [("2x", 600), ("1.5x", 450), ("1x", 300), ("2", 2000), ("100m", 300)])
def test_factors_and_amounts(text, millicores):
    assert parse_startup_cpu(text).apply_to(300) == millicores


@pytest.mark.parametrize("text", ["x", "0.5x", "11x", "nanx", "two", "-1", "5m", "2 x y", ""])
def test_anything_else_names_the_fix(text):
    read = parse_overrides({"cruise.io/startup-cpu.app": text})
    assert isinstance(read, UnreadableAnnotations)
    assert read.detail.startswith("cruise.io/startup-cpu.app: ")

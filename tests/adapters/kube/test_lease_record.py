from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.kube.leases import DATABASE_EPOCH, LeaseRecord, build_empty_lease, format_micro_time, read_lease
from cruise.errors import UnavailableError

NOW = datetime(2026, 11, 21, 8, 0, 0, 123, tzinfo=UTC)
ACQUIRED = "2026-11-21T08:00:00.000000Z"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
SPEC = st.dictionaries(
    st.sampled_from(
        ["holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions", "other"]
    ),
    ANYTHING,
)
DOCUMENT = st.dictionaries(st.sampled_from(["metadata", "spec", "kind"]), ANYTHING | SPEC)


def record(**spec: object) -> LeaseRecord:
    return LeaseRecord({"metadata": {"resourceVersion": "7"}, "spec": spec})


@given(DOCUMENT, st.floats(1, 60))
def test_any_lease_can_be_read_and_acquired(document: dict[str, object], seconds: float):
    found = read_lease(msgspec.json.encode(document))
    assert seconds <= found.compute_expiry_seconds(seconds) <= 4 * seconds
    taken = found.with_holder("me", ACQUIRED, seconds, NOW)
    assert (taken.holder, taken.acquired, taken.released) == ("me", ACQUIRED, False)
    assert 0 <= taken.spec["leaseTransitions"] < 2**31
    assert taken.spec["leaseDurationSeconds"] >= 1
    gone = taken.without_holder(NOW)
    assert gone.released
    assert gone.holder == gone.acquired == ""


@given(DOCUMENT, st.integers(1, 10**15))
def test_the_epoch_of_any_lease_never_decreases(document: dict[str, object], epoch: int):
    noted = LeaseRecord(document).with_epoch(epoch)
    assert noted.epoch == epoch
    assert noted.with_epoch(epoch - 1) is noted


@pytest.mark.parametrize("stated", ["", "-1", "1.5", "seven", "9" * 19, "٣", 7, None])
def test_an_epoch_that_cannot_be_read_is_none(stated: object):
    assert LeaseRecord({"metadata": {"annotations": {DATABASE_EPOCH: stated}}}).epoch == 0


@given(DOCUMENT)
def test_keeps_data_of_other_writers(document: dict[str, object]):
    taken = LeaseRecord(document).with_holder("me", ACQUIRED, 15, NOW)
    assert {key: value for key, value in taken.document.items() if key != "spec"} == {
        key: value for key, value in document.items() if key != "spec"
    }
    before = document.get("spec")
    if isinstance(before, dict) and "other" in before:
        assert taken.spec["other"] == before["other"]


def test_only_a_change_of_holder_counts():
    first = build_empty_lease("cruise", "serve").with_holder("me", ACQUIRED, 15, NOW)
    assert first.spec["leaseTransitions"] == 0
    again = record(**first.spec).with_holder("me", ACQUIRED, 15, NOW)
    assert again.spec["leaseTransitions"] == 0
    other = record(**first.spec).with_holder("other", ACQUIRED, 15, NOW)
    assert other.spec["leaseTransitions"] == 1
    namesake = record(**first.spec).with_holder("me", "2026-11-21T09:00:00.000000Z", 15, NOW)
    assert namesake.spec["leaseTransitions"] == 1


@pytest.mark.parametrize(
    ("spec", "released"),
    [
        ({"holderIdentity": "", "leaseDurationSeconds": 1}, True),
        ({"leaseDurationSeconds": 1}, True),
        ({"holderIdentity": "", "leaseDurationSeconds": 15}, False),
        ({"holderIdentity": ""}, False),
        ({}, False),
        ({"holderIdentity": "me", "leaseDurationSeconds": 1}, False),
    ],
)
def test_a_lease_is_free_only_if_its_holder_released_it(spec: dict[str, object], released: bool):
    assert record(**spec).released is released


@pytest.mark.parametrize(("stated", "life"), [(None, 15), (1, 15), (15, 15), (40, 40), (2**31 - 1, 60), ("x", 15)])
def test_a_record_is_respected_for_as_long_as_it_says_within_reason(stated: object, life: float):
    assert record(leaseDurationSeconds=stated).compute_expiry_seconds(15) == life


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'"x"'])
def test_rejects_a_lease_that_is_not_an_object(answer: bytes):
    with pytest.raises(UnavailableError):
        read_lease(answer)


def test_times_have_microseconds():
    assert format_micro_time(NOW) == "2026-11-21T08:00:00.000123Z"

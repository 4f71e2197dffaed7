import json

import pytest

from cruise.domain.autoscalers import ResourceQuota
from cruise.errors import BadInputError
from cruise.kube_json.objects.quantities import decode_quotas
from tests.builders import make_amounts


def listed(*items) -> bytes:
    return json.dumps({"kind": "ResourceQuotaList", "items": list(items)}).encode()


def quota(hard, used=None, namespace="shop", spec=None):
    status = {"hard": hard, "used": used or {}}
    return {"metadata": {"name": "q", "namespace": namespace}, "spec": {"hard": spec or hard}, "status": status}


def test_what_is_left_is_hard_less_used_and_never_negative():
    hard = {"requests.cpu": "4", "limits.memory": "10Gi", "limits.cpu": "1", "pods": "10"}
    used = {"requests.cpu": "1500m", "limits.memory": "4Gi", "limits.cpu": "3", "pods": "9"}
    assert decode_quotas(listed(quota(hard, used))) == {
        "shop": (ResourceQuota(make_amounts(2500, None), make_amounts(0, 6 * 1024)),)
    }


def test_requests_have_two_names_and_the_stricter_counts():
    hard = {"cpu": "4", "requests.cpu": "3", "memory": "1Gi"}
    assert decode_quotas(listed(quota(hard, {"cpu": "3500m"}))) == {"shop": (ResourceQuota(make_amounts(500, 1024)),)}


def test_what_counts_neither_cpu_nor_memory_is_ignored():
    assert decode_quotas(listed(quota({"pods": "5", "requests.nvidia.com/gpu": "1"}))) == {}
    assert decode_quotas(b'{"items":null}') == {}
    assert decode_quotas(listed({"metadata": {"namespace": "shop"}})) == {}


def test_an_uncounted_quota_is_completely_unused():
    one = {"metadata": {"namespace": "shop"}, "spec": {"hard": {"cpu": "2"}}}
    assert decode_quotas(listed(one)) == {"shop": (ResourceQuota(make_amounts(2000, None)),)}


def test_several_stand_side_by_side():
    found = decode_quotas(listed(quota({"cpu": "1"}), quota({"memory": "1Gi"}), quota({"cpu": "2"}, namespace="bank")))
    assert {name: len(quotas) for name, quotas in found.items()} == {"shop": 2, "bank": 1}


def test_what_is_not_understood_may_be_used_up():
    assert decode_quotas(listed(quota({"cpu": "many"}))) == {"shop": (ResourceQuota(make_amounts(0, None)),)}


@pytest.mark.parametrize("text", [b"", b"[]", b'{"items":[{}]}', b'{"items":[{"metadata":7}]}', b"\xff"])
def test_what_is_no_list_is_rejected_in_one_line(text):
    with pytest.raises(BadInputError, match=r"^ResourceQuotaList: [^\n]+$"):
        decode_quotas(text)

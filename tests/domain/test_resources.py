"""Resources by their names."""

import pytest

from cruise.domain.resources import is_extended


@pytest.mark.parametrize(
    ("resource", "extended"),
    [
        ("cpu", False),
        ("memory", False),
        ("pods", False),
        ("ephemeral-storage", False),
        ("hugepages-2Mi", False),
        ("attachable-volumes-csi-x", False),
        ("nvidia.com/gpu", True),
        ("squat.ai/fuse", True),
    ],
)
def test_what_devices_offer_is_extended(resource, extended):
    assert is_extended(resource) is extended

"""Taking pods off their nodes for good."""

from cruise.packer.arrays import IntArray
from cruise.packer.kernels.cluster_state import ClusterState, may_leave, unlink
from cruise.packer.kernels.compiling import kernel


@kernel
def send_off(s: ClusterState, pods: IntArray) -> bool:
    """Take pods off their nodes, never to return; where one may not leave, the state is left half changed."""
    for i in range(pods.shape[0]):
        if not may_leave(s, pods[i]):
            return False
        unlink(s, pods[i])
        # Without a home its eviction stays counted.
        s.home[pods[i]] = -1
    return True

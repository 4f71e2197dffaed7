from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import ContainerRole
from cruise.domain.pod_resources import count_pod_requests, predict_actuated_pod, replace_spec_resources
from tests.builders import make_amounts, make_container, make_pod, make_resources


def target(name: str, cpu: int, limit_mib: int | None = None) -> ContainerTarget:
    return ContainerTarget(name, ContainerRole.MAIN, make_amounts(cpu, 64), make_amounts(None, limit_mib))


def test_targets_replace_requests_and_limits_by_name():
    pod = make_pod(containers=[make_container("a", cpu_limit=200), make_container("b"), make_container("c")])
    changed = replace_spec_resources(pod, [target("c", 30), target("a", 10, 128)])
    assert [(c.name, c.requests, c.limits) for c in changed.containers] == [
        ("a", make_amounts(10, 64), make_amounts(None, 128)),
        ("b", pod.containers[1].requests, pod.containers[1].limits),
        ("c", make_amounts(30, 64), make_amounts()),
    ]


def test_everything_else_is_unchanged():
    pod = make_pod(containers=[make_container("a", memory_resize_restarts=True, restart_count=3)])
    [changed] = replace_spec_resources(pod, [target("a", 10)]).containers
    assert (changed.allocated, changed.actual) == (pod.containers[0].allocated, pod.containers[0].actual)
    assert (changed.memory_resize_restarts, changed.restart_count) == (True, 3)
    assert replace_spec_resources(pod, []) == pod
    assert replace_spec_resources(pod, [target("unknown", 10)]) == pod


def test_a_sized_pod_counts_what_it_then_asks_for():
    shrunk = predict_actuated_pod(make_pod(overhead=make_resources(5, 0)), (target("app", 50),))
    assert count_pod_requests(shrunk) == make_resources(55, 64)
    pending = predict_actuated_pod(
        make_pod(node=None, containers=[make_container(settled=False)]), (target("app", 50),)
    )
    assert count_pod_requests(pending) == make_resources(50, 64)

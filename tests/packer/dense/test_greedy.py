import pytest

from cruise.packer.dense.checker import find_violations
from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.greedy import complete, start
from cruise.packer.dense.residual import residual_of
from cruise.packer.entries import key_of
from cruise.packer.plan import plan_of
from tests.packer.problems import draw_problem


@pytest.mark.parametrize("seed", range(300))
def test_the_greedy_plan_keeps_every_rule_and_is_no_worse_than_now(seed):
    instance = instance_of(draw_problem(seed))
    residual = residual_of(instance)
    plan = plan_of(instance, residual.whole(start(residual)))
    assert find_violations(instance, plan) == ()
    assert key_of(instance, plan.assignment) >= key_of(instance, instance.running)


@pytest.mark.parametrize("seed", range(100))
def test_a_completed_plan_takes_nothing_more_in(seed):
    residual = residual_of(instance_of(draw_problem(seed)))
    once = start(residual)
    assert (complete(residual, once) == once).all()

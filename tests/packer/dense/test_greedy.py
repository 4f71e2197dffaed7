from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.entries import key_of
from cruise.packer.dense.greedy import complete, start
from cruise.packer.dense.residual import residual_of
from tests.packer.dense.checker import find_violations
from tests.packer.dense.plans import plan_of
from tests.packer.problems import draw_problem


def test_the_greedy_plan_keeps_every_rule_and_is_no_worse_than_now():
    for seed in range(300):
        instance = instance_of(draw_problem(seed))
        residual = residual_of(instance)
        plan = plan_of(instance, residual.whole(start(residual)))
        assert find_violations(instance, plan) == (), seed
        assert key_of(instance, plan.assignment) >= key_of(instance, instance.running), seed


def test_a_completed_plan_takes_nothing_more_in():
    for seed in range(100):
        residual = residual_of(instance_of(draw_problem(seed)))
        once = start(residual)
        assert (complete(residual, once) == once).all(), seed

"""Rows of statistics with rejected samples, and earlier rows."""

from cruise.decisions.usage.usage_columns import add_rejections, carry_over_earlier_statistics
from cruise.domain.usage import ContainerKey, PeakKey, SampleRejectionReason
from tests.builders import NOW_SECONDS, make_statistic, make_table

PODS = [make_statistic(f"web-{number}") for number in (1, 2, 3, 4)]
WORKLOAD = make_statistic("")
KEYS = [row.key for row in PODS]
ALL = (100, 1 << 2)


def container(number):
    return ContainerKey("shop", f"web-{number}", "app")


def test_without_rejections_the_table_is_unchanged():
    table = make_table(*PODS)
    assert add_rejections(table, make_table(), {}, KEYS) is table


def test_a_row_has_the_rejected_share_and_reasons_and_its_workload_the_mean():
    table = add_rejections(make_table(*PODS, WORKLOAD), make_table(), {container(2): ALL}, KEYS)
    row = table.get_row(table.row_of_container[container(2)])
    assert (row.rejected_percent, row.rejections) == (100, (SampleRejectionReason.SERIES_DISAGREE,))
    assert table.get_row(table.row_of_container[container(1)]) == PODS[0]
    whole = table.get_row(table.row_of_workload[PeakKey("shop", "Deployment/web", "app", "")])
    assert (whole.rejected_percent, whole.rejections) == (25, (SampleRejectionReason.SERIES_DISAGREE,))


def test_a_container_without_a_row_keeps_its_earlier_one_or_gets_an_empty_one():
    refused = {container(1): ALL, container(2): ALL}
    table = add_rejections(make_table(*PODS[2:]), make_table(PODS[0]), refused, KEYS)
    kept, made = (table.get_row(table.row_of_container[container(number)]) for number in (1, 2))
    assert (kept.cpu_base_millicores, kept.rejected_percent) == (PODS[0].cpu_base_millicores, 100)
    assert (made.cpu_base_millicores, made.updated_at, made.rejected_percent) == (0, 0, 100)


def test_rejections_of_a_former_pod_are_ignored():
    table = add_rejections(make_table(*PODS), make_table(), {container(9): ALL}, KEYS)
    assert not table.rejected_percent.any()


def test_earlier_rows_of_workloads_stay_for_a_limited_time():
    ages = (0, 100, 101)
    rows = [make_statistic("", workload=f"Workflow/run-{age}", updated_at=NOW_SECONDS - age) for age in ages]
    table = carry_over_earlier_statistics(make_table(), make_table(*rows), (), NOW_SECONDS - 100)
    assert [key.workload for key in table.row_of_workload] == ["Workflow/run-0", "Workflow/run-100"]

import csv
import io
import json
import math

import yaml

from cruise.domain.backtest import AutoscalingScore
from cruise.interfaces.backtest.report import (
    BacktestReport,
    HourlyResourcePrices,
    ReplayParameters,
    build_backtest_document,
    compute_monthly_cost,
    render_backtest_csv,
)
from cruise.interfaces.text import render_json, render_yaml
from tests.backtest_results import make_policies, make_result, make_score

TERMS = ReplayParameters(300, "first-sample", 0, 1e-3)


def document(*results, terms=TERMS):
    return json.loads(render_json(build_backtest_document(BacktestReport(results, terms))))


# ---- JSON, whose keys are a contract ----


def test_one_recording_is_its_own_document():
    found = document(make_result())
    assert found["trace"] == "bitbrains-a"
    assert list(found["policies"]) == list(make_policies())
    assert found["node"] == {"cpuMillicores": 16_000, "memoryBytes": 64 << 30}
    assert (found["containers"], found["days"], found["stepSeconds"]) == (100, 30.0, 300)
    assert found["cappedContainers"] == 0


def test_a_policy_has_the_keys_that_scripts_read():
    policy = document(make_result())["policies"]["cruisekube"]
    assert policy["cpu"]["relativeSlack"] == 0.47
    assert policy["cpu"]["starvedShare"] == 0.012
    assert policy["memory"]["relativeSlack"] == 0.52
    assert policy["memory"]["oomPer1000ContainerDays"] == 9.4
    assert policy["resizesPerContainerDay"] == 31.0
    assert policy["evictionsPer1000PodDays"] == 85.0
    assert policy["nodesMean"] == 12.4
    assert policy["nodesPeak"] == 16


def test_the_document_has_the_other_known_figures():
    policy = document(make_result())["policies"]["cruisekube"]
    assert policy["cpu"]["shortShare"] == 0.031
    assert policy["memory"]["shortShare"] == 0.008
    assert policy["resizeReversalShare"] == 0.44
    assert policy["dominatedBy"] == "cruise"
    assert policy["estimatedCost"] is None
    assert policy["worst"][0] == {
        "namespace": "shop",
        "workload": "Deployment/web",
        "pod": "web-7d9-0",
        "cpuSlackMillicores": 812.4,
        "memorySlackBytes": 3.2e9,
        "starvedMinutes": 60.0,
        "oomKills": 2,
        "evictions": 1,
        "resizes": 96,
    }


def test_several_recordings_are_a_list():
    found = document(make_result("a"), make_result("b"))
    assert list(found) == ["traces"]
    assert [one["trace"] for one in found["traces"]] == ["a", "b"]


def test_the_parameters_are_described():
    terms = ReplayParameters(60, "start", 7, 0.01, "tune", HourlyResourcePrices(0.03, 0.004))
    assert document(make_result(), terms=terms)["terms"] == {
        "passSeconds": 60,
        "podCreation": "start",
        "seed": 7,
        "risk": 0.01,
        "half": "tune",
        "prices": {"coreHour": 0.03, "gibibyteHour": 0.004},
        "rules": "default",
        "objectivePrices": {
            "coreHour": 0.0145,
            "gibibyteHour": 0.00724,
            "starvedMinute": 0.01,
            "oomKill": 1.0,
            "eviction": 0.05,
            "resize": 0.0002,
        },
        "hpa": None,
        "currency": "$",
    }
    assert document(make_result())["terms"]["prices"] is None


def test_without_memory_its_keys_are_there_and_null():
    policy = document(make_result(policies=make_policies(memory=False)))["policies"]["cruise"]
    assert policy["memory"] == {
        "relativeSlack": None,
        "shortShare": None,
        "oomPer1000ContainerDays": None,
        "meanSlackBytes": None,
    }
    assert policy["costByCause"]["memorySlack"] == policy["costByCause"]["oomKills"] == 0


def test_how_long_it_took_makes_no_difference():
    quick, slow = (make_result(policies={"cruise": make_score(seconds=seconds)}) for seconds in (1.0, 99.0))
    assert render_json(build_backtest_document(BacktestReport([quick], TERMS))) == render_json(
        build_backtest_document(BacktestReport([slow], TERMS))
    )


def test_what_is_no_number_is_null_and_noise_is_rounded():
    policies = {"cruise": make_score(cpu=(math.nan, 0.123456789, math.inf))}
    cpu = document(make_result(policies=policies))["policies"]["cruise"]["cpu"]
    assert cpu == {
        "relativeSlack": None,
        "starvedShare": 0.123457,
        "shortShare": None,
        "meanSlackMillicores": 0.0,
    }


def test_no_policies_and_no_recordings_are_documents_too():
    assert document(make_result(policies={}))["policies"] == {}
    assert document() == {"traces": []}
    assert render_backtest_csv(BacktestReport([], TERMS)) == b"trace,policy\n"


def test_the_way_to_the_bound_is_a_share_for_each_resource():
    policies = make_policies()
    assert document(make_result())["policies"]["cruise"]["slackReduction"] == {"cpu": None, "memory": None}
    policies["clairvoyant"] = make_score("clairvoyant", cpu=(0.12, 0.0, 0.0), memory=(0.05, 0.0, 0.0))
    found = document(make_result(policies=policies))["policies"]
    assert found["cruise"]["slackReduction"] == {"cpu": 0.4, "memory": 0.36}
    assert found["vpa"]["slackReduction"] == {"cpu": 0, "memory": 0}


# ---- money ----


def test_each_policy_has_its_cost_by_cause_and_all_their_order():
    found = document(make_result())
    policy = found["policies"]["vpa"]
    assert policy["costByCause"] == {
        "cpuSlack": 180.96,
        "memorySlack": 95.568,
        "starvation": 5.76,
        "oomKills": 3.1,
        "evictions": 11.9,
        "resizes": 0.12,
    }
    assert policy["costPer1000ContainerDays"] == 297.408
    assert found["objective"]["order"][0] == "cruise"
    assert found["objective"]["order"][-2:] == ["as-requested", "cruisekube"]
    assert "oracle" not in found["objective"]["order"]
    for change in found["objective"]["orderChanges"]:
        assert change["price"].startswith("price_")
        assert change["factor"] in (3.0, 0.333333)
        assert change["swaps"]


def test_cost_is_brought_to_a_month_of_730_hours():
    score = make_score(cost=30.0)
    assert compute_monthly_cost(score, make_result(days=1.0)) == 30.0 * 730 / 24
    assert compute_monthly_cost(make_score(), make_result()) is None
    assert compute_monthly_cost(score, make_result(days=0.0)) is None


# ---- YAML and CSV ----


def test_what_hpas_did_is_there_with_hpas_only():
    done = AutoscalingScore(
        workload_minutes=600.0,
        replica_minutes=900.0,
        scale_events=3,
        differing_minutes=60.0,
        core_minutes_at_minimum=150.0,
        unchanged_core_minutes_at_minimum=600.0,
    )
    policies = document(make_result(policies={"cruise": make_score(autoscaling=done)}))["policies"]
    assert policies["cruise"]["autoscaling"] == {
        "workloadMinutes": 600.0,
        "replicaMinutes": 900.0,
        "unchangedReplicaMinutes": 0.0,
        "scaleEvents": 3.0,
        "unchangedScaleEvents": 0.0,
        "differingMinutes": 60.0,
        "unexplainedMinutes": 0.0,
        "coreMinutesAtMinimum": 150.0,
        "unchangedCoreMinutesAtMinimum": 600.0,
        "reclaimedShareAtMinimum": 0.75,
    }
    assert "autoscaling" not in document(make_result())["policies"]["cruise"]


def test_yaml_is_the_same_document():
    report = BacktestReport([make_result()], TERMS)
    assert yaml.safe_load(render_yaml(build_backtest_document(report))) == json.loads(
        render_json(build_backtest_document(report))
    )


def test_csv_has_a_line_for_each_policy_of_each_recording():
    report = BacktestReport([make_result("a"), make_result("b", make_policies(memory=False))], TERMS)
    lines = list(csv.DictReader(io.StringIO(render_backtest_csv(report).decode())))
    assert [(line["trace"], line["policy"]) for line in lines] == [
        (trace, name) for trace in ("a", "b") for name in make_policies()
    ]
    assert lines[2]["memory.oomPer1000ContainerDays"] == "9.4"
    assert lines[2]["dominatedBy"] == "cruise"
    assert lines[11]["memory.oomPer1000ContainerDays"] == ""
    assert "worst" not in lines[0]

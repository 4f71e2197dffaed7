from datetime import timedelta

import numpy as np

from cruise.decisions.oom import build_oom_record
from cruise.decisions.pod_history import build_pod_history
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizePod, TaintNode
from cruise.domain.cluster import OomKill
from cruise.domain.resources import Resources
from cruise.domain.usage import HourlyPeaks, PeakKey
from tests.builders import NOW, make_ref

WEB = make_ref("Deployment/web")
NO_PEAKS = HourlyPeaks((), np.empty(0, np.int64), np.empty(0), np.empty(0))


def outcome(pod, minutes_ago=5):
    action = ResizePod("shop", pod, "uid", "n1", WEB, (), Resources(), ReasonCode.RIGHTSIZED)
    return Outcome(NOW - timedelta(minutes=minutes_ago), action, ActionResult.DONE, ReasonCode.RIGHTSIZED)


def kill(pod, workload=WEB, namespace="shop"):
    return build_oom_record(OomKill(namespace, pod, f"uid-{pod}", "app", workload, "", "n1", NOW, 100, 50), None)


def test_outcomes_are_sorted_newest_first():
    taint = Outcome(NOW, TaintNode("n1", ReasonCode.OVERLOADED), ActionResult.DONE, ReasonCode.OVERLOADED)
    outcomes = [outcome("web-1", 9), taint, outcome("web-2"), outcome("web-1", 3)]
    past = build_pod_history("shop", "web-1", "Deployment/web", "", outcomes, [], NO_PEAKS)
    assert [(NOW - one.at).seconds // 60 for one in past.outcomes] == [3, 9]


def test_kills_of_the_workload_count_and_those_of_others_do_not():
    kills = [kill("web-1"), kill("web-2"), kill("db-0", make_ref("StatefulSet/db")), kill("web-1", namespace="bank")]
    past = build_pod_history("shop", "web-1", "Deployment/web", "", [], kills, NO_PEAKS)
    assert sorted(one.pod for one in past.oom_kills) == ["web-1", "web-2"]
    assert [one.pod for one in build_pod_history("shop", "web-1", "", "", [], kills, NO_PEAKS).oom_kills] == ["web-1"]


def test_peaks_are_the_largest_of_each_clock_hour_and_of_the_identity_alone():
    keys = [PeakKey("shop", "StatefulSet/db", "db", identity) for identity in ("0", "0", "0", "1")]
    peaks = HourlyPeaks(
        keys, np.array([24 + 3, 48 + 3, 48 + 4, 48 + 3]), np.array([100.0, 300, np.nan, 999]), np.array([1.0, 2, 3, 4])
    )
    [profile] = build_pod_history("shop", "db-0", "StatefulSet/db", "0", [], [], peaks).profiles
    assert profile.cpu_millicores == (None, None, None, 300.0, *[None] * 20)
    assert profile.memory_bytes[3:5] == (2.0, 3.0)

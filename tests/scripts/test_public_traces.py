"""Public recordings as trace directories that a backtest reads."""

import io
import tarfile

import numpy as np
import pytest

from cruise.backtest.recordings.traces import load_trace
from scripts.public_traces import main


def test_a_day_of_planetlab_is_a_series_a_machine(tmp_path):
    day = tmp_path / "20110303"
    day.mkdir()
    (day / "host_a_example_org_site_one").write_text("10\n20\n30\n")
    (day / "host_b_example_org_site_one").write_text("0\n100\n")
    main(["planetlab", str(day), str(tmp_path / "out")])
    found = load_trace(tmp_path / "out")
    assert (found.step_seconds, found.has_memory) == (300, False)
    assert [str(one.workload) for one in found.containers] == ["Deployment/site-one"] * 2
    assert found.cpu_millicores[:, 0].tolist() == [100, 200, 300]
    assert found.cpu_millicores[:2, 1].tolist() == [0, 1000]
    assert np.isnan(found.cpu_millicores[2, 1])


def write_tar(path, rows):
    table = "value,timestamp_anon,container_ip\n" + "".join(f"{value},{at},{pod}\n" for pod, at, value in rows)
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("table.csv")
        member.size = len(table)
        archive.addfile(member, io.BytesIO(table.encode()))


def test_gentd26_has_the_pods_with_both_resources_for_half_of_the_time(tmp_path):
    times = [1_662_858_720 + 57 * at for at in range(4)]
    memory = [("long", at, 0.5) for at in times] + [("short", times[0], 0.5)] + [("blind", at, 0.5) for at in times]
    write_tar(tmp_path / "pod_memory_util_anon.tar.gz", [*memory[:-1], ("blind", times[3], -1e-5)])
    busy = [("long", at, 40.0) for at in times if at != times[1]] + [("blind", times[0], 1.0)]
    write_tar(tmp_path / "pod_gpu_duty_cycle_anon.tar.gz", busy)
    main(["gentd26", str(tmp_path), str(tmp_path / "out")])
    found = load_trace(tmp_path / "out")
    assert [one.pod for one in found.containers] == ["long"]
    assert found.step_seconds == 60
    assert found.memory_bytes[:, 0].tolist() == [2 << 30] * 4
    assert np.isnan(found.cpu_millicores[1, 0])
    assert found.cpu_millicores[[0, 2, 3], 0].tolist() == [400] * 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "usage:"),
        (["google", "a", "b"], "usage:"),
        (["planetlab", "/nowhere", "out"], "/nowhere: no such directory"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, expected):
    with pytest.raises(SystemExit, match=expected):
        main(arguments)

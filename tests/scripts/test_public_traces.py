"""Public recordings, converted to trace directories for backtests."""

import io
import json
import tarfile

import numpy as np
import pytest

from cruise.adapters.files import load_snapshot
from cruise.backtest.recordings.recording import load_trace
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


def test_nab_instances_keep_their_hour_and_day_of_the_week(tmp_path):
    """A Wednesday in one month and a Thursday in another: a day apart in the recording."""
    one = ["2014-02-19 14:27:00,10.0", "2014-02-19 14:32:00,20.0", "2014-02-19 14:42:00,30.0"]
    other = ["2014-04-10 00:02:00,50.0"]
    for name, rows in (("ec2_cpu_utilization_a", one), ("rds_cpu_utilization_b", other), ("ec2_disk_write_c", other)):
        (tmp_path / f"{name}.csv").write_text("\n".join(["timestamp,value", *rows]) + "\n")
    main(["nab", str(tmp_path), str(tmp_path / "out")])
    found = load_trace(tmp_path / "out")
    assert [one.pod for one in found.containers] == ["ec2_cpu_utilization_a", "rds_cpu_utilization_b"]
    seen = [np.flatnonzero(~np.isnan(column)).tolist() for column in found.cpu_millicores.T]
    assert seen == [[173, 174, 176], [288]]
    assert found.cpu_millicores[173, 0] == 100


def test_bytedance_is_a_snapshot_that_pack_reads(tmp_path):
    services = [
        {"Service": "Service0", "RequestCPU": 0.1, "RequestMem": 0.2, "ContainerList": ["Container0", "Container1"]},
        {"Service": "Service1", "RequestCPU": 0.2, "RequestMem": 0.1, "ContainerList": ["Container2"]},
    ]
    machines = [
        {"MachineIP": f"0.0.0.{number}", "TotalCPU": 0.5, "TotalMem": 0.5, "InitialDeployingContainers": containers}
        for number, containers in enumerate((["Container0", "Container2"], ["Container1"]))
    ]
    (tmp_path / "M3.json").write_text(json.dumps({"ServiceList": services, "MachineList": machines}))
    main(["bytedance", str(tmp_path), str(tmp_path / "out")])
    found = load_snapshot(str(tmp_path / "out" / "cluster.json"))
    assert [node.allocatable.cpu_millicores for node in found.nodes] == [4_000_000] * 2
    where = {pod.name: (pod.node, pod.containers[0].requests.cpu_millicores) for pod in found.pods}
    assert where == {
        "container0": ("machine-0-0-0-0", 800_000),
        "container1": ("machine-0-0-0-1", 800_000),
        "container2": ("machine-0-0-0-0", 1_600_000),
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "usage:"),
        (["google", "a", "b"], "usage:"),
        (["planetlab", "/nowhere", "out"], "/nowhere: no such directory"),
        (["bytedance", "/", "out"], "/: no M3.json"),
        (["nab", "/", "out"], "/: no .*_cpu_utilization"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, expected):
    with pytest.raises(SystemExit, match=expected):
        main(arguments)

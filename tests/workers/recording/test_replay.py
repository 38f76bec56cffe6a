"""A machine that is written into a folder and answers from there as it did, and one whose folder was made by hand."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.core.hardware.fabrics import DeclaredFabric
from llmgw.core.units import GIB, Bytes
from tests.fakes.machine import FakeMachine
from tests.recorded.machines import MACHINES
from workers.discovery.collect import Collector
from workers.ports import DeviceNode, Disk, Machine, ToolResult
from workers.recording import writing
from workers.recording.recorder import RecordingMachine
from workers.recording.replay import NOT_RECORDED, NotReplayable, ReplayedMachine, open_folder
from workers.settings import NodeSettings, read_settings
from workers.tools import ask

RECORDED = Path(__file__).parents[2] / "recorded"
SETTINGS = NodeSettings(id="n1")
UUID = "GPU-9c0e1f2a-1111-2222-3333-abcdefabcdef"
LOG = "[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n[2.0] usb 1-1: Product: Alice's Phone\n"
HCA = Path("/sys/class/infiniband/mlx5_0")
A_MACHINE = FakeMachine(
    cpus=64,
    environ={"HTTP_PROXY": "http://alice:secret@10.1.2.3:8080", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "PATH": "/bin"},
    programs={"sminfo": "/usr/sbin/sminfo", "dmesg": "/bin/dmesg", "nvidia-smi": "/usr/bin/nvidia-smi"},
    modules=frozenset({"xllamacpp"}),
    tools={
        "/usr/sbin/sminfo -C mlx5_0": ToolResult(255, "sminfo: iberror: failed: query\n", "ibwarn: [1] timeout\n"),
        "/usr/sbin/sminfo -C mlx5_1": ToolResult(None, "", "", "no answer within 5 s"),
        "/bin/dmesg": ToolResult(0, LOG),
        f"{sys.executable} -m workers.discovery.nvidia.nvml /lib/libnvidia-ml.so": ToolResult(0, f'["{UUID}"]'),
    },
    files={
        "/etc/hostname": "dgx-07\n",
        str(HCA / "node_guid"): "b83f:d203:0029:1dcc\n",
        str(HCA / "ports/1/gids/7"): OSError(errno.EINVAL, "Invalid argument"),
        "/proc/1234/environ": "PASSWORD=secret",
    },
    links={str(HCA / "device"): "../../../0000:3b:00.0"},
    nodes={"/dev/nvidia0": DeviceNode(195, 0, readable=True, writable=False)},
    interfaces={"eth0": ("10.1.2.5/24",)},
)


def asked(machine):
    """Ask what a look asks, and return the answers."""
    return {
        "programs": [machine.which(name) for name in ("sminfo", "dmesg", "ibstat")],
        "sminfo": [ask(machine, SETTINGS, "sminfo", "-C", hca) for hca in ("mlx5_0", "mlx5_1")],
        "dmesg": ask(machine, SETTINGS, "dmesg").out,
        "nvml": machine.output((sys.executable, "-m", "workers.discovery.nvidia.nvml", "/lib/libnvidia-ml.so"), 5),
        "hostname": machine.read_text(Path("/etc/hostname")),
        "guid": machine.read_text(HCA / "node_guid"),
        "gid": machine.read(HCA / "ports/1/gids/7"),
        "missing": machine.read(HCA / "ports/2/state"),
        "environ": machine.read(Path("/proc/1234/environ")),
        "link": machine.link(HCA / "device"),
        "node": machine.device_node(Path("/dev/nvidia0")),
        "names": [machine.names_in(HCA), machine.names_in(Path("/dev")), machine.names_in(Path("/none"))],
        "addresses": machine.addresses(),
        "disk": machine.disk(Path("/var/lib/llmgw-node")),
        "cpus": machine.cpu_count(),
        "modules": [machine.has_module(name) for name in ("xllamacpp", "vllm")],
        "environment": machine.environment(),
    }


@pytest.fixture
def recorded(tmp_path):
    """The folder of a recording, the answers that were given meanwhile, and how much was replaced."""
    machine = RecordingMachine(A_MACHINE)
    answers = asked(machine)
    replaced = writing.write(machine.notes, A_MACHINE, tmp_path / "recording")
    return tmp_path / "recording", answers, replaced


def test_all_machines_keep_the_protocol(recorded):
    machines: tuple[Machine, ...] = (RecordingMachine(A_MACHINE), open_folder(recorded[0]))
    assert all(machine.cpu_count() == 64 for machine in machines)


def test_a_recorded_machine_answers_as_it_did(recorded):
    folder, before, _ = recorded
    after = asked(open_folder(folder))
    same = ("programs", "sminfo", "gid", "missing", "link", "node", "names", "disk", "cpus", "modules")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert after["gid"].problem == "Invalid argument"


def test_whose_it_was_cannot_be_told(recorded):
    folder, before, replaced = recorded
    after = asked(open_folder(folder))
    assert len(after["nvml"].out) == len(before["nvml"].out)
    assert set(replaced) == {"GUIDs", "IP addresses", "UUIDs", "host names"}
    everything = "".join(file.read_text() for file in folder.rglob("*") if file.is_file())
    real = ("dgx-07", UUID[4:], "0029:1dcc", "10.1.2.", "alice", "Alice", "secret", "s3cr3t")
    assert [word for word in real if word in everything] == []


def test_of_the_environment_and_the_kernel_s_log_only_what_a_look_needs_is_kept(recorded):
    after = asked(open_folder(recorded[0]))
    assert list(after["environment"]) == ["HTTP_PROXY"]
    assert after["environment"]["HTTP_PROXY"].endswith(":8080")
    assert after["dmesg"] == LOG.splitlines(keepends=True)[0]
    assert after["environ"].problem == writing.LEFT_OUT


def test_what_was_never_asked_is_not_there(recorded):
    machine = open_folder(recorded[0])
    assert ask(machine, SETTINGS, "ibstat").problem == "not found"
    assert ask(machine, SETTINGS, "sminfo", "-C", "mlx5_9").problem == "not found"
    assert machine.read(Path("/etc/os-release")).is_missing
    assert machine.read(Path("/etc/../../../../etc/os-release")).is_missing


def test_what_is_asked_while_the_notes_are_written_is_not_among_them():
    machine = RecordingMachine(A_MACHINE)
    asked(machine)
    notes = machine.notes
    late = Path("/etc/hostname"), HCA / "node_guid"
    before = dict(notes.files)
    for path in late:
        del notes.files[str(path)]
        machine.read(path)
    assert {str(path) for path in late}.isdisjoint(notes.files)
    assert machine.notes.files == before


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    for folder in (tmp_path, tmp_path / "mine", tmp_path / "no" / "where"):
        with pytest.raises(writing.Refused):
            writing.check_is_free(folder)
    writing.check_is_free(tmp_path / "new")


# --- made by hand -------------------------------------------------------------------------------------------------


def by_hand(folder, **files):
    for path, text in {"machine.json": '{"version": 1}', **files}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return open_folder(folder)


def test_a_folder_made_by_hand_needs_a_version_and_files(tmp_path):
    files = {
        "tools/sminfo_-C_mlx5_0_-P_1": "sminfo: sm lid 37\n",
        "tools/ib_write_bw_-d_mlx5_0": "BW average\n",
        "tools/nvml": "{}",
        "tools/gpus": "0, GPU-1\n",
        "tools/calls.json": '{"gpus": {"line": "nvidia-smi --query-gpu=index,uuid --format=csv,noheader"}}',
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    }
    machine = by_hand(tmp_path, **files)
    assert ask(machine, SETTINGS, "sminfo", "-C", "mlx5_0", "-P", "1") == ToolResult(0, "sminfo: sm lid 37\n")
    assert ask(machine, SETTINGS, "ib_write_bw", "-d", "mlx5_0").out == "BW average\n"
    assert ask(machine, SETTINGS, "nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader").ok
    assert machine.output((sys.executable, "-m", "workers.discovery.nvidia.nvml"), 5).out == "{}"
    assert machine.names_in(Path("/sys/class/infiniband")) == ("mlx5_0",)
    assert machine.which("ibstat") is None
    assert machine.disk(Path("/var/lib")) is None


def test_many_small_files_may_lie_in_one(tmp_path):
    lines = (
        "/sys/class/net/eth0/mtu\t9000\n/etc/hosts\t127.0.0.1 localhost\n/etc/hosts\t::1 ip6-localhost\n/sys/empty\t\n"
    )
    machine = by_hand(tmp_path, **{"files.tsv": lines})
    assert machine.read_text(Path("/sys/class/net/eth0/mtu")) == "9000\n"
    assert machine.read_text(Path("/etc/hosts")) == "127.0.0.1 localhost\n::1 ip6-localhost\n"
    assert machine.read_text(Path("/sys/empty")) == "\n"
    assert machine.names_in(Path("/sys")) == ("class", "empty")
    assert machine.read(Path("/sys/class/net/eth1/mtu")).is_missing


def test_small_files_that_cannot_be_read_are_told(tmp_path):
    assert by_hand(tmp_path / "a", **{"files.tsv": "/sys/x\ty\n"}).read_text(Path("/sys/x")) == "y\n"
    (tmp_path / "a" / "files.tsv").write_bytes(b"/sys/x\t\xff\xfe\n")
    assert open_folder(tmp_path / "a").read_text(Path("/sys/x")) == "\ufffd\ufffd\n"
    (tmp_path / "a" / "files.tsv").unlink()
    (tmp_path / "a" / "files.tsv").mkdir()
    with pytest.raises(NotReplayable, match=r"files\.tsv cannot be read: Is a directory"):
        open_folder(tmp_path / "a")


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_the_made_up_machines_answer_as_a_look_asks(name):
    machine = RecordingMachine(open_folder(RECORDED / name))
    found = Collector(machine, SETTINGS, {}).collect()
    assert not [problem for problem in found.problems if problem.code.endswith(".garbage")]
    tools = {file.name.partition("_")[0] for file in (RECORDED / name / "tools").glob("*")} - {"nvidia-smi"}
    missed = {line for line, answer in machine.notes.calls.items() if answer == NOT_RECORDED}
    assert not [line for line in missed if line.partition(" ")[0] in tools], "recorded under another command line"


def test_one_disk_that_is_known_stands_for_any_path(tmp_path):
    one = '{"version": 1, "disks": {"/": {"total_bytes": 2, "free_bytes": 1}}}'
    assert by_hand(tmp_path, **{"machine.json": one}).disk(Path("/var/lib/x")) == Disk(Bytes(2), Bytes(1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"version": 2}', "is a recording of version 2, this llmgw reads 1"),
        ("{}", "is not what a recording holds"),
        ("no JSON", "is not what a recording holds"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_folder_that_is_no_recording_is_refused(tmp_path, text, says):
    if text is not None:
        (tmp_path / "machine.json").write_text(text)
    with pytest.raises(NotReplayable, match=says):
        open_folder(tmp_path)


def test_a_link_out_of_the_folder_leads_nowhere(tmp_path):
    (tmp_path / "etc").symlink_to("/etc")
    machine = by_hand(tmp_path)
    assert machine.read(Path("/etc/os-release")).is_missing
    assert machine.names_in(Path("/etc")) == ()


def test_the_settings_that_a_look_needs_are_written_and_read_again(tmp_path):
    fabric = DeclaredFabric(name="compute", ports=("mlx5_0", "mlx5_1:2"), rate_gbps=400.0, rail_only=True)
    before = NodeSettings(id="secret-name", redis_url="redis://:password@h", expected_gpus=8, fabrics=(fabric,))
    file = tmp_path / "node.toml"
    file.write_text(writing.settings_text(before))
    after = read_settings(file, {}, ())
    assert isinstance(after, NodeSettings)
    assert (after.fabrics, after.expected_gpus, after.id) == ((fabric,), 8, "")
    assert "password" not in file.read_text()


# --- nothing of the real machine ----------------------------------------------------------------------------------

WATCHED = """
import sys
from pathlib import Path
from workers.recording.replay import open_folder
from workers.discovery.collect import Collector
from workers.settings import NodeSettings

touched = []
folder = sys.argv[1]
def watch(event, arguments):
    if event in {"open", "os.listdir", "os.scandir", "os.readlink"} and str(arguments[0]).startswith(
        ("/sys", "/proc", "/dev", "/etc")
    ) or event in {"subprocess.Popen", "socket.connect", "os.posix_spawn"}:
        touched.append((event, str(arguments[0])))
sys.addaudithook(watch)
inventory = Collector(open_folder(Path(folder)), NodeSettings(), {}).collect()
print(touched, inventory.cpu_count)
"""


def test_a_replay_touches_nothing_of_the_machine_it_runs_on(recorded):
    told = subprocess.run(
        [sys.executable, "-c", WATCHED, str(recorded[0])],
        env={"PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "[] 64\n"


def test_a_replayed_machine_hands_out_ids_and_stands_still_in_time(recorded):
    machine: ReplayedMachine = open_folder(recorded[0])
    assert machine.new_id() != machine.new_id()
    assert machine.now() == machine.monotonic() == A_MACHINE.at
    machine.checkpoint("anything")


def test_a_big_disk_is_as_big_afterwards(recorded):
    assert open_folder(recorded[0]).disk(Path("/var/lib/llmgw-node")) == Disk(Bytes(100 * GIB), Bytes(50 * GIB))

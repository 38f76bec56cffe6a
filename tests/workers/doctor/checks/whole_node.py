"""One whole node that is well: cards, an InfiniBand and a RoCE fabric, systemd, and everything that checks read."""

from llmgw.core.hardware.fabrics import AttachedPort, Attachment, DeclaredFabric
from llmgw.core.hardware.gpus import Pair, Topology
from llmgw.core.hardware.network import Gid, SubnetManager
from llmgw.core.units import GIB, Bytes
from tests.workers.doctor.checks.patients import OPEN, a_driver, a_gpu, a_port, a_roce_port
from workers.ports import Disk
from workers.settings import NodeSettings

CARD, ADAPTER, SWITCH = "0000:1a:00.0", "0000:1b:00.0", "0000:17:00.0"
PCI = "/sys/bus/pci/devices"
NET = "/sys/class/net"
CPU = "/sys/devices/system/cpu/cpu0"
BONDED = "MII Status: up\n" + "".join(f"\nSlave Interface: {name}\nMII Status: up\n" for name in ("eth4", "eth5"))
LIMITS = "".join(
    f"{name:<26}{'unlimited':<21}{'unlimited':<21}units\n"
    for name in ("Limit", "Max processes", "Max open files", "Max locked memory", "Max stack size")
)
FILES = {
    f"{PCI}/{ADAPTER}/vendor": "0x15b3\n",
    f"{PCI}/{ADAPTER}/class": "0x020700\n",
    "/sys/class/infiniband/mlx5_0/node_desc": "gpu07 mlx5_0\n",
    "/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n",
    "/sys/class/infiniband_verbs/uverbs1/ibdev": "mlx5_1\n",
    "/sys/class/infiniband_mad/umad0/ibdev": "mlx5_0\n",
    "/sys/class/infiniband_mad/umad0/port": "1\n",
    "/sys/module/nvidia_peermem/version": "570.124.06\n",
    "/sys/class/iommu/dmar0/uevent": "\n",
    "/sys/kernel/iommu_groups/42/type": "identity\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    f"{CPU}/cpufreq/scaling_governor": "performance\n",
    "/sys/devices/system/edac/mc/mc0/ce_count": "0\n",
    "/sys/devices/system/edac/mc/mc0/ue_count": "0\n",
    "/sys/fs/cgroup/memory.max": "max\n",
    "/sys/fs/cgroup/pids.max": "max\n",
    "/sys/block/nvme0n1/size": "7501476528\n",
    "/sys/dev/block/259:2/../queue/rotational": "0\n",
    f"{NET}/bond1/operstate": "up\n",
    f"{NET}/bond1/mtu": "9000\n",
    f"{NET}/bond1/ecn/roce_np/enable/3": "1\n",
    f"{NET}/bond1/ecn/roce_rp/enable/3": "1\n",
    f"{NET}/eth0/operstate": "up\n",
    "/proc/812/limits": LIMITS,
    "/proc/812/cgroup": "0::/system.slice/llmgw-node.service\n",
    "/proc/813/cmdline": "/usr/sbin/sshd\0-D\0",
    "/proc/813/stat": "813 (sshd) S 1 813 813 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n",
    "/proc/cmdline": "root=UUID=1 ro intel_iommu=on iommu=pt\n",
    "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu avx2 avx512f\n",
    "/proc/meminfo": "MemTotal: 64000 kB\nHugePages_Total: 0\nHugepagesize: 2048 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    "/proc/vmstat": "oom_kill 0\npswpin 0\npswpout 0\n",
    "/proc/uptime": "864000.5 6000000.0\n",
    "/proc/net/bonding/bond1": BONDED,
    "/proc/net/tcp": "  sl  local_address\n   0: 00000000:0016 00000000:0000 0A 00000000:00000000\n",
    "/proc/self/mountinfo": "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n",
    "/proc/self/status": "Uid:\t998\t998\t998\t998\nCapEff:\t0000000000000000\n",
    "/proc/sys/kernel/dmesg_restrict": "0\n",
    "/proc/sys/kernel/hostname": "gpu07\n",
    "/proc/sys/kernel/numa_balancing": "0\n",
    "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    "/proc/sys/kernel/tainted": "12289\n",
    "/proc/sys/net/ipv4/conf/all/rp_filter": "2\n",
    "/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "/proc/sys/net/ipv4/ip_local_reserved_ports": "\n",
    "/proc/sys/net/netfilter/nf_conntrack_count": "90\n",
    "/proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
    "/boot/vmlinuz-6.8.0-45-generic": "",
    "/etc/nccl.conf": "NCCL_DEBUG=WARN\n",
}
LINKS = {
    f"{PCI}/{CARD}": f"../../../devices/pci0000:16/0000:16:01.0/{SWITCH}/{CARD}",
    f"{PCI}/{ADAPTER}": f"../../../devices/pci0000:16/0000:16:01.0/{SWITCH}/{ADAPTER}",
    f"{PCI}/{CARD}/iommu_group": "../../../kernel/iommu_groups/42",
}
NODES = {f"/dev/{name}": OPEN for name in ("infiniband/uverbs0", "infiniband/uverbs1", "infiniband/umad0", "gdrdrv")}
DEVINFO = "hca_id:\t{}\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t4096 (5)\n"
MLNX = "Priority trust state: dscp\nPFC configuration:\n\tpriority    0   1   2   3\n\tenabled     0   0   0   1\n"
TOOLS = {
    "ibv_devinfo": DEVINFO.format("mlx5_0") + DEVINFO.format("mlx5_1"),
    "ibstat": "".join(f"CA '{hca}'\n\tPort 1:\n\t\tState: Active\n" for hca in ("mlx5_0", "mlx5_1")),
    "dcb": "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n",
    "mlnx_qos": MLNX,
    "ethtool": "NIC statistics:\n     rx_prio3_pause: 5\n",
    "nft": "table inet filter {\n}\n",
    "ip": "0:\tfrom all lookup local\n",
    "lspci": f"{SWITCH} PCI bridge: Broadcom PEX890xx (rev b0)\n\t\tACSCtl:\tSrcValid- TransBlk-\n",
    "dmesg": "[    0.000000] Linux version 6.8.0-45-generic\n",
    "systemctl": "LoadState=loaded\nMainPID=812\n",
    "getent": "10.0.0.7        gpu07\n",
    "df": "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/nvme0n1p2 1000 5 995 1% /\n",
    "stat": "  File: /\n",
    "smartctl": '{"smart_status": {"passed": true}, "nvme_smart_health_information_log": {"percentage_used": 3}}',
    "chronyc": "System time     : 0.000020 seconds slow of NTP time\nLeap status     : Normal\n",
    "ldd": "ldd (Ubuntu GLIBC 2.39-0ubuntu8) 2.39\n",
    "llama-server": "version: 6500 (abc123)\nAvailable devices:\n  CUDA0: NVIDIA H100 (81089 MiB, 80000 MiB free)\n",
    "curl": "200",
}
COUNTERS = dict.fromkeys(
    (
        *("link_downed", "symbol_error", "port_rcv_remote_physical_errors", "port_rcv_errors", "port_xmit_discards"),
        *("port_xmit_wait", "port_rcv_constraint_errors", "out_of_sequence"),
    ),
    7,
)
GUID = "0x0002c90200259201"
MASTER = SubnetManager(guid=GUID, lid=1, priority=14, state="master", activity=100)
STANDBY = SubnetManager(guid="0x0002c9030010b250", lid=2, priority=1, state="standby")
INFINIBAND = a_port(
    "mlx5_0",
    pci_address=ADAPTER,
    partitions=("0xffff",),
    gids=(Gid(index=0, gid="fe80:0000:0000:0000:0002:c902:0025:9202", kind="ib"),),
    node_guid="0002:c902:0025:9202",
    port_guid="0x0002c90200259202",
    counters=COUNTERS,
    subnet_manager=MASTER,
    other_subnet_managers=(STANDBY,),
)
ROCE = a_roce_port("mlx5_1", "bond1", counters=COUNTERS, board="MT_0000000359", hca_type="MT4125", rate_gbps=200.0)


def attached(port, identity):
    attachment = AttachedPort(name=port.name, usable=True, identity=identity)
    return Attachment(name=port.hca, ports=(attachment,), identities=(identity,), interface="eth0", address="10.0.0.7")


def whole_node():
    """Return all facts of it, for `a_patient`."""
    return {
        "files": dict(FILES),
        "links": dict(LINKS),
        "nodes": dict(NODES),
        "tools": dict(TOOLS),
        "interfaces": {"eth0": ("10.0.0.7/24",), "bond1": ("10.1.0.5/24",), "lo": ("127.0.0.1/8",)},
        "environ": {"HOME": "/var/lib/llmgw-node"},
        "disk_space": Disk(Bytes(2000 * GIB), Bytes(1000 * GIB)),
        "settings": NodeSettings(
            id="gpu07",
            address="10.0.0.7",
            fabrics=tuple(DeclaredFabric(name=hca, ports=(hca,)) for hca in ("mlx5_0", "mlx5_1")),
        ),
        "gpus": (a_gpu(0, pci_address=CARD), a_gpu(1)),
        "driver": a_driver(),
        "topology": Topology(pairs=tuple(Pair(a="GPU0", b=hca, by="PIX") for hca in ("mlx5_0", "mlx5_1"))),
        "ports": (INFINIBAND, ROCE),
        "fabrics": (attached(INFINIBAND, f"sm:{GUID}"), attached(ROCE, "roce:0:10.1.0.0/24")),
        "engines": {"llamacpp": "llama-server at /usr/bin/llama-server"},
        "kernel": "6.8.0-45-generic",
        "memory_available": Bytes(60 * GIB),
        "cpu_count": 1,
    }

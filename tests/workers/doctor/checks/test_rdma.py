"""Checks of GPUDirect RDMA."""

import pytest

from tests.workers.doctor.checks.patients import OPEN, a_driver, a_gpu, a_patient, a_port, a_roce_port, only, verdicts
from workers.doctor.checks.rdma import CHECKS

BOTH = {"gpus": (a_gpu(),), "ports": (a_port(),), "driver": a_driver(), "kernel": "6.8.0-45-generic"}
VERBS = {"/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n"}
LIVE = {"/sys/module/loop/refcnt": "0\n"}
LOADED = {"/sys/module/nvidia_peermem/version": "570.124.06\n"}
OLD = {"/sys/kernel/mm/memory_peers/nv_mem/version": "1.3\n"}
REFUSED = "[   21.5] nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)\n"
CONFUSED = "[ 9021.5] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping\n"


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("rdma.modules", {}, "not-applicable"),
        ("rdma.modules", {"ports": (a_port(),)}, "unknown"),
        ("rdma.modules", {"ports": (a_port(),), "files": LIVE}, "fail"),
        ("rdma.modules", {"ports": (a_port(),), "files": VERBS}, "unknown"),
        ("rdma.modules", {"ports": (a_port(),), "files": VERBS | LIVE}, "warn"),
        ("rdma.modules", {"ports": (a_roce_port(),), "files": VERBS}, "pass"),
        ("rdma.modules", {"ports": (a_port(),), "files": VERBS | {"/sys/module/ib_umad/refcnt": "0"}}, "pass"),
        ("rdma.peermem", {}, "not-applicable"),
        ("rdma.peermem", {"gpus": (a_gpu(),)}, "not-applicable"),
        ("rdma.peermem", BOTH | {"files": LOADED}, "pass"),
        ("rdma.peermem", BOTH | {"files": OLD, "driver": a_driver(is_open=False)}, "pass"),
        ("rdma.peermem", BOTH, "pass"),
        ("rdma.peermem", BOTH | {"driver": a_driver(is_open=False)}, "fail"),
        ("rdma.peermem", BOTH | {"kernel": "5.4.0-150-generic"}, "fail"),
        ("rdma.peermem", BOTH | {"kernel": "", "files": {"/proc/sys/kernel/osrelease": "5.15.0\n"}}, "pass"),
        ("rdma.peermem", BOTH | {"driver": a_driver(is_open=None)}, "unknown"),
        ("rdma.peermem", BOTH | {"kernel": ""}, "unknown"),
        ("rdma.peermem", BOTH | {"gpus": (a_gpu(name="NVIDIA GeForce RTX 4090"),)}, "not-applicable"),
        ("rdma.peermem-load", {"tools": {"dmesg": REFUSED}}, "not-applicable"),
        ("rdma.peermem-load", BOTH, "unknown"),
        ("rdma.peermem-load", BOTH | {"tools": {"dmesg": "[1.0] Linux version 6.8\n"}}, "pass"),
        ("rdma.peermem-load", BOTH | {"tools": {"dmesg": REFUSED}}, "fail"),
        ("rdma.peermem-load", BOTH | {"tools": {"dmesg": CONFUSED}}, "warn"),
        ("rdma.gdrcopy", {}, "not-applicable"),
        ("rdma.gdrcopy", BOTH, "warn"),
        ("rdma.gdrcopy", BOTH | {"nodes": {"/dev/gdrdrv": OPEN}}, "pass"),
    ],
)
def test_gpudirect_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


def test_what_the_kernel_said_is_kept():
    found = only(CHECKS, "rdma.peermem-load", a_patient(**BOTH, tools={"dmesg": REFUSED}))
    assert found.evidence["literal"] == REFUSED.strip()


def test_loading_the_module_may_be_done_while_engines_serve():
    (peermem,) = (check for check in CHECKS if check.id == "rdma.peermem")
    assert peermem.fix.safe
    assert (peermem.fix.command, peermem.fix.undo) == ("modprobe nvidia-peermem", "modprobe -r nvidia-peermem")

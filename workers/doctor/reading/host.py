"""What kind of machine this is: bare or virtual, and how new its kernel."""

import re
from pathlib import Path
from typing import Final

from workers.ports import Machine

_CPUINFO: Final = Path("/proc/cpuinfo")
_VENDOR: Final = Path("/sys/class/dmi/id/sys_vendor")
_PRODUCT: Final = Path("/sys/class/dmi/id/product_name")
_VIRTUAL: Final = re.compile(
    r"QEMU|KVM|VMware|VirtualBox|Xen|Google Compute|Virtual Machine|OpenStack|HVM", re.IGNORECASE
)


def is_virtual(machine: Machine) -> bool:
    """Tell whether this is a guest: by the CPU's flag on x86, else by what the firmware calls the machine."""
    if re.search(r"^flags\s*:.*\bhypervisor\b", machine.read_text(_CPUINFO) or "", re.MULTILINE):
        return True
    return any(_VIRTUAL.search(machine.read_text(file) or "") for file in (_VENDOR, _PRODUCT))


def parse_kernel(release: str) -> tuple[int, int] | None:
    """Read the version that counts for features from `6.8.0-45-generic`."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", release, re.ASCII)
    return (int(found[1]), int(found[2])) if found else None

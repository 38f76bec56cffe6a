"""PCI addresses: drivers, tools and the kernel spell one and the same address in many ways; here they become one."""

import re
from typing import Final

_ADDRESS: Final = re.compile(
    r"(?:PCI:|GPU\s*)?(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?",
    re.IGNORECASE,
)


def canonical(text: str) -> str | None:
    """Return an address as the kernel spells it, `0000:3b:00.0`; None for what is none.

    Takes `00000000:3B:00.0` (NVML, nvidia-smi), `0000:3b:00.0` (sysfs), `PCI:0000:3b:00` (Xid lines), `3b:00.0` (lspci)
    and `000:BA:80.0` (some builds of nvidia-smi). Domains above 16 bits keep their digits. A device number above 31,
    which the bus has not, is kept as it is told: it still is the key that the same tool will name again.
    """
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device = (int(found[part] or "0", 16) for part in ("domain", "bus", "device"))
    return f"{domain:04x}:{bus:02x}:{device:02x}.{found['function'] or 0}"

"""Starts CUDA, in a process of its own: nvidia-smi looks fine while CUDA is dead.

python -m workers.doctor.cuda prints one line of JSON. `cuInit` takes no memory of any card: that begins with a context.
"""

import ctypes
import json
import os
import sys
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"


def main() -> int:
    """Print how far CUDA came."""
    # Cards that are hidden from this process's parent are cards of the machine all the same.
    os.unsetenv("CUDA_VISIBLE_DEVICES")
    sys.stdout.write(json.dumps(_started()) + "\n")
    return 0


def _started() -> dict[str, Any]:
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return {"library": str(error)}
    number = ctypes.c_int(0)
    code = cuda.cuInit(0)
    if code:
        return {"code": code, "name": _name(cuda, code)}
    cuda.cuDriverGetVersion(ctypes.byref(number))
    version = number.value
    code = cuda.cuDeviceGetCount(ctypes.byref(number))
    return {"code": code, "name": _name(cuda, code), "count": number.value, "version": version}


def _name(cuda: ctypes.CDLL, code: int) -> str:
    if not code:
        return ""
    name = ctypes.c_char_p()
    failed = cuda.cuGetErrorName(code, ctypes.byref(name))
    return "" if failed or name.value is None else name.value.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())

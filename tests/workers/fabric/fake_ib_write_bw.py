"""A made-up ib_write_bw: real processes, which meet by TCP as perftest's do and then print what a file beside it says.

The file `plan` beside it: `hang` after the two have met, `left` behind a child of its own, or nothing. The file `old`
beside it makes it one of the editions before perftest 24.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("-d", "-i", "-p", "-D", "-x", "-q"):
        parser.add_argument(flag, default="")
    is_old = (HERE / "old").exists()
    parser.add_argument("--source_ip" if is_old else "--bind_source_ip", dest="bind", default="")
    parser.add_argument("--report_gbits", action="store_true")
    parser.add_argument("--ipv6", dest="ipv6" if is_old else "ipv6_gid", action="store_true", help="Use IPv6 GID")
    if not is_old:
        parser.add_argument("--ipv6-addr", dest="ipv6", action="store_true")
    parser.add_argument("-F", action="store_true")
    parser.add_argument("server", nargs="?")
    told = parser.parse_args()
    role = "client" if told.server else "server"
    (HERE / f"{role}.argv").write_text(" ".join(sys.argv[1:]))
    plan = (HERE / "plan").read_text() if (HERE / "plan").exists() else ""
    if plan == "left":
        subprocess.Popen(["/bin/sleep", "600"])
    family = socket.AF_INET6 if told.ipv6 else socket.AF_INET
    meet = connected if told.server else waited_for
    with meet(told, family, role):
        if plan == "hang":
            time.sleep(600)
    sys.stderr.write(
        "Conflicting CPU frequency values detected: 800.000000 != 3500.000000. CPU Frequency is not max.\n"
    )
    print("                    RDMA_Write BW Test\n Device         : mlx5_0")
    print((HERE / "table").read_text())


def waited_for(told, family, role):
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((told.bind, int(told.p)))
        listening.listen(1)
    except OSError:
        failed(f"Couldn't listen to port {told.p}\nUnable to open file descriptor for socket connection\n")
    (HERE / f"{role}.pid").write_text(str(os.getpid()))
    return listening.accept()[0]


def connected(told, family, role):
    (HERE / f"{role}.pid").write_text(str(os.getpid()))
    client = socket.socket(family)
    try:
        client.connect((told.server, int(told.p)))
    except OSError:
        failed(
            f"Couldn't connect to {told.server}:{told.p}\n"
            "Unable to open file descriptor for socket connection Unable to init the socket connection\n"
        )
    return client


def failed(words):
    sys.stderr.write(words)
    sys.exit(1)


if __name__ == "__main__":
    main()

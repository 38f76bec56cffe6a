"""A wire between a program and its server on which connections can die without anybody being told."""

import select
import socket
import threading
from contextlib import suppress


class Silence:
    """Hands bytes on both ways, until silence falls on the connections that there are then."""

    def __init__(self, server_port):
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._fallen = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def fall(self):
        """From now on nothing goes through the present connections, though they stay open."""
        self._fallen.set()
        self._fallen = threading.Event()

    def close(self):
        self._closed.set()
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._hand_on, args=(near, self._fallen), daemon=True).start()

    def _hand_on(self, near, fallen):
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._server_port)) as far:
            while True:
                ready, _, _ = select.select([near, far], [], [], 0.1)
                if fallen.is_set():
                    self._closed.wait()
                    return
                for one, other in ((near, far), (far, near)):
                    if one in ready:
                        data = one.recv(65536)
                        if not data:
                            return
                        other.sendall(data)

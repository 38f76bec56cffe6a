"""A control plane that only writes down what it is told: sends orders and ticks, reads reports."""

import queue
import threading
import time
from itertools import count

from kombu.common import Broadcast
from kombu.exceptions import OperationalError
from redis import RedisError

from llmgw.core import wire
from workers.app import make_app
from workers.settings import NodeSettings


class Control:
    """Reads the queue `control` from a thread of its own, through every outage of the broker."""

    def __init__(self, url, node="n1"):
        self.node = node
        self.epoch = 1
        self.reports = []
        self.traces = []
        self._app = make_app(NodeSettings(id="control-stand-in", redis_url=url))
        self._numbers = count(1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self):
        self._stopped.set()
        self._thread.join(10)

    def _read(self):
        while not self._stopped.is_set():
            try:
                with self._app.connection_for_read() as connection, connection.SimpleQueue(wire.CONTROL_QUEUE) as box:
                    self._read_on(box)
            except (OSError, OperationalError, RedisError):
                self._stopped.wait(0.02)

    def _read_on(self, box):
        while not self._stopped.is_set():
            try:
                message = box.get(timeout=0.2)
            except queue.Empty:
                continue
            message.ack()
            assert message.headers["task"] == wire.REPORT_TASK
            report = wire.report_from_wire(message.payload[1]["raw"])
            assert not isinstance(report, wire.Unreadable), report
            self.reports.append(report)
            self.traces.append(message.headers.get("traceparent", ""))

    # --- down

    def send(self, kind, **facts):
        """Order something; return the order's id."""
        number = next(self._numbers)
        head = {"order_id": f"o{number}", "node": self.node, "epoch": self.epoch, "issued_at": time.time()}
        order = kind(**{**head, **facts})
        self.send_raw(wire.to_wire(order))
        return order.order_id

    def send_raw(self, raw):
        self._publish(wire.ORDER_TASK, {"raw": raw}, queue=wire.node_queue(self.node), expires=600)

    def tick(self, number, at=None):
        ticks = Broadcast(wire.TICK_EXCHANGE, queue="ticks", routing_key=wire.TICK_ROUTING_KEY)
        self._publish(
            wire.TICK_TASK,
            {"tick": number, "at": at or time.time()},
            queue=ticks,
            declare=[ticks.exchange],
        )

    def _publish(self, task, kwargs, **options):
        with self._app.connection_for_write() as connection, connection.channel() as channel:
            self._app.send_task(task, kwargs=kwargs, producer=self._app.amqp.Producer(channel), retry=False, **options)

    # --- up

    def of(self, kind):
        return [report for report in self.reports if isinstance(report, kind)]

    def answers(self):
        """Every answer so far, by order."""
        return {answer.order_id: answer for report in self.reports for answer in getattr(report, "answers", ())}

    def statuses(self, launch):
        """What was said of a launch, in order."""
        told = [status for report in self.reports for status in getattr(report, "shards", ())]
        return [status for status in told if status.launch_id == launch]

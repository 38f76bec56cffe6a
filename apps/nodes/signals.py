"""What the nodes tell those above them."""

from typing import Final

from django.dispatch import Signal

nodes_changed: Final = Signal()
"""What placement may know of nodes is new. Sent inside the transaction, with `names: tuple[str, ...]` and `now`."""

node_lost: Final = Signal()
"""A node was given up, its epoch has risen. Sent inside the transaction, with `node: NodeRow` and `now`."""

node_returned: Final = Signal()
"""A node is heard again. Sent inside the transaction, with `node: NodeRow` as it now is, `was: NodeState` and `now`.

One that was unreachable is ready again, and wants its unanswered orders now. One that was lost, and one that nobody
knew, is joining: it wants a hello, and is ready once it has registered under its epoch.
"""

ticked: Final = Signal()
"""A sweep is done and the next tick on its way. Sent outside of transactions, with `tick: int`, `now` and
`beats: Mapping[str, wire.Beat]`, the answers to the tick before by node name."""

"""Adds to an examination what NCCL would be told on each fabric."""

import msgspec

from llmgw.core.hardware.examination import Examination
from llmgw.core.nccl import NoEnvironment, environment
from llmgw.core.wire import Inventory


def with_environments(told: Examination, inventory: Inventory) -> Examination:
    """Return it with the environment of a shard that holds all cards of the node, or why there is none."""
    found = {fabric.name: environment(fabric, inventory.gpus) for fabric in inventory.fabrics}
    return msgspec.structs.replace(
        told,
        environments={name: dict(each) for name, each in found.items() if not isinstance(each, NoEnvironment)},
        refused={name: each.text() for name, each in found.items() if isinstance(each, NoEnvironment)},
    )

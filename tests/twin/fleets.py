"""Fleets and catalogs drawn from dice: small enough to be read when one of them breaks something."""

import random
from dataclasses import dataclass

import msgspec

from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.units import GIB, Bytes, ModelName, NodeName
from llmgw.core.wanted import Model, Profile, Source
from llmgw.core.world import Device, DeviceKind, Node, NodeState

MIG = "h100-80g-mig-3g.40gb"
CLASSES = {"h100-80g": 80, "l40s-45g": 45, "a100-40g": 40}


@dataclass(frozen=True)
class Scene:
    """Where a history begins: the nodes, of which some join later, and all models that may be declared."""

    nodes: tuple[Node, ...]
    models: tuple[Model, ...]
    absent: tuple[str, ...] = ()
    """Names of nodes that have not joined yet, and of models that are not declared yet."""


def a_scene(dice: random.Random) -> Scene:
    nodes = tuple(_node(dice, f"n{n}") for n in range(1, dice.randint(1, 5) + 1))
    models = tuple(_model(dice, name) for name in "abcd"[: dice.randint(1, 4)])
    names = [*(node.name for node in nodes), *(model.name for model in models)]
    return Scene(nodes, models, tuple(name for name in names if dice.random() < 0.15))


def _node(dice: random.Random, name: str) -> Node:
    cpu = Device("cpu", DeviceKind.CPU, "cpu", Bytes(64 * GIB), dice.choice([1, 1, 2, 4]))
    return Node(
        NodeName(name),
        NodeState.READY,
        "127.0.0.1",
        1,
        devices=(cpu, *_devices(dice)),
        engines=frozenset(dice.choice([["llamacpp"]] * 5 + [["vllm"], ["llamacpp", "vllm"]])),
        disk_free=dice.choice([None, Bytes(30 * GIB), Bytes(1000 * GIB), Bytes(1000 * GIB)]),
        cordoned=dice.random() < 0.08,
        labels={"zone": dice.choice("ab")},
        fabrics=_fabrics(dice),
    )


def _fabrics(dice: random.Random) -> tuple[Attachment, ...]:
    """Most are on the same network; some on another of the same name, some on none, some cannot use it."""
    if dice.random() < 0.3:
        return ()
    identity = dice.choice(["sm:0x1"] * 4 + ["sm:0x2"])
    unusable = dice.random() < 0.1
    return (
        Attachment(
            name="compute",
            identities=(identity,),
            rail_only=dice.random() < 0.1,
            unusable="no port has light" if unusable else None,
            unusable_code="fabric.no-port" if unusable else "",
        ),
    )


def _devices(dice: random.Random) -> list[Device]:
    """A node has cards of one class, some of them split, or two classes, or none."""
    many = dice.choice([0, 1, 2, 2, 4, 4, 8])
    classes = dice.sample(sorted(CLASSES), dice.choice([1, 1, 1, 2]))
    in_group = dice.choice([0, 0, 2, 8])
    domain = "rack-1.1" if dice.random() < 0.1 else ""
    devices = []
    for index in range(many):
        device_class = dice.choice(classes)
        if device_class == "h100-80g" and dice.random() < 0.2:
            devices += [_mig(dice, index, part) for part in (1, 2)]
        else:
            joined = f"GPU-{index - index % in_group}" if in_group else ""
            devices.append(msgspec.structs.replace(_gpu(dice, index, device_class), nvlink=joined, domain=domain))
    return devices


def _gpu(dice: random.Random, index: int, device_class: str) -> Device:
    memory = Bytes(CLASSES[device_class] * GIB)
    return with_illness(Device(f"GPU-{index}", DeviceKind.GPU, device_class, memory, index=index), _ill(dice))


def _mig(dice: random.Random, card: int, part: int) -> Device:
    number = 1000 + 100 * card + part
    device = Device(f"MIG-{card}-{part}", DeviceKind.MIG, MIG, Bytes(40 * GIB), index=number, card=str(card))
    return with_illness(device, _ill(dice))


def with_illness(device: Device, why: str | None) -> Device:
    """Make a device ill, or well; of some illnesses the device itself is not the cause."""
    code = "" if why is None else "device.stale" if "driver" in why else "device.unhealthy.lost"
    return msgspec.structs.replace(device, unhealthy=why, unhealthy_code=code)


def _ill(dice: random.Random) -> str | None:
    return dice.choice(["it fell off the bus", "its driver is silent"]) if dice.random() < 0.06 else None


def _profiles() -> list[Profile]:
    return [
        Profile("cpu", "llamacpp"),
        Profile("one", "llamacpp", ("h100-80g",)),
        Profile("any", "llamacpp", ("l40s-45g", "h100-80g", "a100-40g")),
        Profile("two", "llamacpp", ("h100-80g", "a100-40g"), 2, 2),
        Profile("four", "llamacpp", ("h100-80g",), 4, 4),
        Profile("eight", "vllm", ("h100-80g",), 8, 8),
        Profile("mig", "llamacpp", (MIG,)),
        Profile("large", "llamacpp", ("a100-40g", "l40s-45g"), memory=Bytes(44 * GIB)),
        Profile("wide", "llamacpp", ("h100-80g",), 4, 2, 2, 2),
        Profile("pair", "llamacpp", ("a100-40g", "h100-80g", "l40s-45g"), 2, 1, 2, 2),
        Profile("far", "llamacpp", ("l40s-45g", "a100-40g"), 3, 1, 3, 3, fabric="compute"),
    ]


def _model(dice: random.Random, name: str) -> Model:
    copied = dice.random() < 0.3
    size = Bytes(dice.choice([2, 28, 60]) * GIB) if copied or dice.random() < 0.3 else None
    return Model(
        ModelName(name),
        Source("hf://a/b/c.gguf" if copied else "file:///weights.gguf", size),
        tuple(dice.sample(_profiles(), dice.choice([1, 1, 2, 2, 3]))),
        replicas=dice.choice([0, 1, 1, 2, 2, 3, 4, 6]),
        priority=dice.choice([0, 0, 0, 1, -1]),
        labels={"zone": "a"} if dice.random() < 0.15 else {},
    )

"""Prints a made-up fabric as ibnetdiscover does, whole and by ports."""

from dataclasses import dataclass, field


@dataclass
class Box:
    """A switch (S) or an adapter (H)."""

    letter: str
    number: int
    description: str
    lid: int
    device: str = "0xd2f0"

    @property
    def guid(self):
        return 0x0002C90300000000 + self.number * 16


@dataclass
class Cable:
    here: Box
    here_port: int
    there: Box
    there_port: int
    rate: tuple[str, str] = ("4x", "HDR")

    def ends(self):
        return (self.here, self.here_port, self.there, self.there_port), (
            self.there,
            self.there_port,
            self.here,
            self.here_port,
        )


@dataclass
class Fabric:
    boxes: list[Box] = field(default_factory=list)
    cables: list[Cable] = field(default_factory=list)

    def add(self, letter, description, **more):
        number = len(self.boxes) + 1
        box = Box(letter, number, description, **{"lid": number, **more})
        self.boxes.append(box)
        return box

    def join(self, here, here_port, there, there_port=1, rate=("4x", "HDR")):
        self.cables.append(Cable(here, here_port, there, there_port, rate))

    def whole(self):
        head = "#\n# Topology file: generated on Tue Dec  1 10:00:00 2026\n#\n# Initiated from node 02 port 03\n"
        return head + "".join(self._box(box) for box in self.boxes)

    def _box(self, box):
        kind = "Switch" if box.letter == "S" else "Ca"
        ids = f"\nvendid=0x2c9\ndevid={box.device}\nsysimgguid=0x{box.guid:x}\n"
        own = f"switchguid=0x{box.guid:x}({box.guid:x})\n" if box.letter == "S" else f"caguid=0x{box.guid:x}\n"
        tail = f" enhanced port 0 lid {box.lid} lmc 0" if box.letter == "S" else ""
        lines = [f'{ids}{own}{kind}\t36 "{box.letter}-{box.guid:016x}"\t\t# "{box.description}"{tail}\n']
        for cable in self.cables:
            for here, here_port, there, there_port in cable.ends():
                if here is box:
                    lines.append(_line(here, here_port, there, there_port, "".join(cable.rate)))
        return "".join(lines)

    def by_ports(self):
        told = [
            f"{_kind(here)} {here.lid:5} {here_port:2} 0x{here.guid:016x} {' '.join(cable.rate)} - {_kind(there)} "
            f"{there.lid:5} {there_port:2} 0x{there.guid:016x} ( '{here.description}' - '{there.description}' )\n"
            for cable in self.cables
            for here, here_port, there, there_port in cable.ends()
        ]
        return "".join(told)


def _kind(box):
    return "SW" if box.letter == "S" else "CA"


def _line(here, here_port, there, there_port, rate):
    own = f"({here.guid:x}) " if here.letter == "H" else ""
    its = f"({there.guid:x}) " if there.letter == "H" else ""
    lids = f"lid {here.lid} lmc 0 " if here.letter == "H" else ""
    return (
        f'[{here_port}]{own}\t"{there.letter}-{there.guid:016x}"[{there_port}]{its}\t\t# '
        f'{lids}"{there.description}" lid {there.lid} {rate}\n'
    )


def railed(hosts=4, rails=4):
    """A fabric on which port N of each host is on leaf N, and each leaf on one spine."""
    fabric = Fabric()
    spine = fabric.add("S", "MF0;spine01:MQM8700/U1")
    leaves = [fabric.add("S", f"MF0;leaf{rail + 1:02}:MQM8700/U1") for rail in range(rails)]
    for rail, leaf in enumerate(leaves):
        fabric.join(spine, rail + 1, leaf, 40)
    for host in range(hosts):
        for rail, leaf in enumerate(leaves):
            adapter = fabric.add("H", f"gpu{host + 1:02} mlx5_{rail}", device="0x101b")
            fabric.join(leaf, host + 1, adapter)
    return fabric

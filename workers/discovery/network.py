"""What a look at the adapters comes to: ports, the fabrics that they make up, and what is wrong with them."""

from typing import NamedTuple

from llmgw.core.hardware.fabrics import Attachment, Proposal
from llmgw.core.hardware.findings import Finding, Problem
from llmgw.core.hardware.gpus import Gpu
from llmgw.core.hardware.network import Port
from workers.discovery.infiniband import fabrics, identity, ports, subnet
from workers.ports import Machine
from workers.settings import NodeSettings


class Network(NamedTuple):
    """The adapters of a machine; one without any is a single-node island, which is no error."""

    ports: tuple[Port, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()


def look(machine: Machine, settings: NodeSettings, gpus: tuple[Gpu, ...]) -> Network:
    """Look at the adapters, ask for their subnet managers, and check what is declared of them."""
    found, unread = ports.find(machine, gpus)
    told = subnet.managers(machine, settings, found)
    made = fabrics.attach(settings.fabrics, told.ports, identity.interfaces(machine, told.ports))
    findings = (*made.findings, *told.findings)
    return Network(told.ports, made.attachments, made.proposals, findings, (*unread, *told.problems))

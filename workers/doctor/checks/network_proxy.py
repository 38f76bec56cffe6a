"""Checks of proxy variables: fetches may go through a proxy, what nodes say to each other must not."""

from collections.abc import Iterator
from typing import Final

from llmgw.core.hardware.findings import Severity
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, passed, warned
from workers.doctor.reading.proxies import is_spared, proxies, spared
from workers.doctor.reading.sockets import is_loopback
from workers.doctor.reading.words import listed

_LOOPBACK: Final = ("localhost", "127.0.0.1")


def _proxy(patient: Patient) -> Iterator[Outcome]:
    environment = patient.machine.environment()
    found = proxies(environment)
    wrong = [proxy.variable for proxy in found if proxy.place is None]
    own = () if is_loopback(patient.settings.address) else (patient.settings.address,)
    missing = [host for host in (*_LOOPBACK, *own) if not is_spared(host, spared(environment))]
    places = listed([f"{proxy.variable} {proxy.place}" for proxy in found if proxy.place])
    if not found:
        yield passed("no proxy is set")
    elif wrong:
        yield warned(f"{listed(wrong)} is no address of a proxy")
    elif missing:
        text = f"llmgw would fetch weights through {places}; no_proxy does not spare {listed(missing)}"
        yield warned(text, missing=missing)
    else:
        yield passed(f"llmgw would fetch weights through {places}, and reach this node itself without")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="network.proxy",
        group=Group.NETWORK,
        title="A proxy is used for the world alone",
        reads="http_proxy, https_proxy, all_proxy, no_proxy in the environment of this process",
        rule="Warns where a proxy is set and no_proxy leaves out loopback or the node's address, or where it is no "
        "address.",
        costs="Weights are fetched through it, as they should be. llmgw hands it on to no engine and asks engines "
        "without it, but other programs of this node would send what they say to each other to the proxy.",
        fix=Fix("Add localhost, 127.0.0.1 and the node's address to no_proxy, in the unit's environment."),
        judge=_proxy,
        worst=Severity.WARN,
    ),
)

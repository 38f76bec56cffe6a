"""A card that is sick, and then is well; a doctor that is sent for: over a real broker."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.scenarios.cluster import Cluster, eventually
from tests.workers.discovery.nvidia import smi

AModel = Callable[..., dict[str, Any]]
SICK = """<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
<ecc_errors><volatile><sram_correctable>0</sram_correctable><sram_uncorrectable>0</sram_uncorrectable>
<dram_correctable>0</dram_correctable><dram_uncorrectable>3</dram_uncorrectable></volatile></ecc_errors>"""


class Card:
    """A machine with one card, whose driver says what a test has it say."""

    def __init__(self, folder: Path) -> None:
        self._answer = folder / "answer.xml"
        self.program = folder / "nvidia-smi"
        self.program.write_text(f'#!/bin/sh\n[ "$1 $2" = "-q -x" ] && exec cat {self._answer}\nexit 6\n', "utf-8")
        self.program.chmod(0o755)
        self.says("")

    def says(self, more: str) -> None:
        """Have nvidia-smi say this of the card from now on."""
        new = self._answer.with_suffix(".new")
        new.write_text(smi.a_log(smi.a_card(0, more=more)), "utf-8")
        new.replace(self._answer)


def _card_model(a_model: AModel, name: str) -> dict[str, Any]:
    profile = {"name": "card", "engine": "llamacpp", "device_classes": ["h100-80g"], "memory": "1GiB"}
    return a_model(name) | {"profiles": [profile]}


def _refusals(cluster: Cluster, model: str) -> str:
    return json.dumps([row["refusals"] for row in cluster.ask("replicas", model)])


def test_a_sick_card_gets_no_work_until_it_is_well(own_cluster: Cluster, a_model: AModel, tmp_path: Path) -> None:
    card = Card(tmp_path)
    card.says(SICK)
    own_cluster.start_all(nvidia_smi=str(card.program), nvml="off", inventory_s=1)
    own_cluster.declare(_card_model(a_model, "patient"))
    eventually(lambda: "device.unhealthy.ecc" in _refusals(own_cluster, "patient"), "the refusal names what is wrong")
    card.says("")
    own_cluster.wait_for("patient", "ready")
    (shard,) = own_cluster.ask("shards", "patient")
    assert shard["attempt"] == 1, "it was not started while the card was sick"


def test_a_doctor_that_is_sent_for_tells_what_he_found(own_cluster: Cluster, tmp_path: Path) -> None:
    card = Card(tmp_path)
    card.says(SICK)
    own_cluster.start_all(nvidia_smi=str(card.program), nvml="off", doctor_s=0)
    assert "has not run" in own_cluster.manage("doctor", "n1")
    own_cluster.manage("doctor", "n1", "--run", "--reason", "it is loud")
    eventually(lambda: own_cluster.ask("examination", "n1"), "the report has come")
    told = json.loads(own_cluster.manage("doctor", "n1", "--json", expect=1).partition("\n}\n")[0] + "}")
    failed = {each["check"]: each["text"] for each in told["outcomes"] if each["verdict"] == "fail"}
    assert "3 uncorrected memory errors" in failed["gpu.ecc"]

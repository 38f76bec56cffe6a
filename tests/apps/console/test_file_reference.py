"""The schema of fleet files says what the reader takes."""

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from apps.console.file_reference import fleet_schema
from llmgw.core.validation.fleet import DEVICE_KEYS, FABRIC_KEYS, NODE_KEYS, fleet_from_document
from llmgw.core.world import Node

SCHEMA = fleet_schema()


def test_it_names_every_key():
    told = {name: tuple(each["properties"]) for name, each in SCHEMA["$defs"].items()}
    assert told == {"node": NODE_KEYS, "devices": DEVICE_KEYS, "fabric": FABRIC_KEYS}


FULL = {
    "name": "dgx",
    "count": 2,
    "devices": ["8 x h100-80g", {"class": "cpu", "memory": "2TiB", "count": 2}, {"class": "h100-80g", "nvlink": True}],
    "engines": ["vllm"],
    "labels": {"rack": "a"},
    "fabrics": ["storage", {"name": "compute", "identity": "sm:0x1", "rail_only": False}],
    "cordoned": False,
    "disk_free": 5,
}


@pytest.mark.parametrize(
    ("node", "is_right"),
    [
        (FULL, True),
        ({"name": "a"}, True),
        ({}, False),
        ({"name": "a", "count": 0}, False),
        ({"name": "a", "gpus": 8}, False),
        ({"name": "a", "devices": [{"count": 8}]}, False),
        ({"name": "a", "disk_free": "much"}, False),
        ({"name": "a", "cordoned": "yes"}, False),
    ],
)
def test_it_and_the_reader_agree(node, is_right):
    document = {"nodes": [node]}
    read = all(isinstance(each, Node) for each in fleet_from_document(document))
    assert (Draft202012Validator(SCHEMA).is_valid(document), read) == (is_right, is_right)

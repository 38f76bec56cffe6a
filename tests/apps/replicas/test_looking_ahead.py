"""`manage.py plan` and `manage.py fit`: with files alone, and with what is there."""

import json

import pytest
import yaml
from django.core.management import CommandError, call_command

FLEET = {
    "nodes": [
        {
            "name": "dgx",
            "count": 2,
            "devices": ["8 x h100-80g"],
            "fabrics": [{"name": "compute", "identity": "sm:0x1"}],
        },
        {"name": "l40s", "devices": ["2 x l40s-45g"]},
    ]
}
CATALOG = {
    "models": [
        {
            "name": "wide",
            "source": "hf://a/b/c.safetensors",
            "profiles": [
                {
                    "name": "two-nodes", "engine": "vllm", "device_classes": ["h100-80g"], "devices": 16,
                    "tensor_parallel": 16, "nodes": 2, "memory": "70GiB",
                }
            ],
        },
        {
            "name": "small",
            "replicas": 3,
            "source": "hf://a/b/d.gguf",
            "profiles": [{"name": "one", "engine": "llamacpp", "device_classes": ["l40s-45g"], "memory": "40GiB"}],
        },
    ]
}  # fmt: skip


@pytest.fixture
def files(tmp_path):
    def write(fleet=FLEET, catalog=CATALOG):
        told = []
        for name, document in (("fleet", fleet), ("catalog", catalog)):
            path = tmp_path / f"{name}.yaml"
            path.write_text(yaml.safe_dump(document), "utf-8")
            told += [f"--{name}", str(path)]
        return told

    return write


def run(capsys, *arguments, code=0):
    if code:
        with pytest.raises(SystemExit) as ended:
            call_command(*arguments)
        assert ended.value.code == code
    else:
        call_command(*arguments)
    return capsys.readouterr().out


def test_a_plan_needs_no_database(files, capsys):
    """Nothing here is marked to use one: a query would fail the test."""
    said = run(capsys, "plan", *files(), code=1)
    assert "start wide/1 by profile two-nodes on dgx-1" in said
    assert "over compute" in said
    assert "small/3 has no place:" in said
    assert "would work: with one more node like l40s, empty, profile one fits" in said
    assert "h100-80g  16" in said


def test_a_plan_as_json(files, capsys):
    told = json.loads(run(capsys, "plan", *files(), "--json", code=1))
    assert [action["replica"] for action in told["actions"] if action["code"] == "start"] == [
        "wide/1",
        "small/1",
        "small/2",
    ]
    assert {each["device_class"]: each["free_after"] for each in told["capacity"]} == {"h100-80g": 0, "l40s-45g": 0}
    assert [each["code"] for each in told["would_work"]["small"]] == ["node"]


def test_a_fleet_with_room_for_all(files, capsys):
    fleet = {"nodes": [*FLEET["nodes"], {"name": "more", "devices": ["1 x l40s-45g"]}]}
    assert "has no place" not in run(capsys, "plan", *files(fleet))


def test_what_fits_where(files, capsys):
    said = run(capsys, "fit", "small", *files())
    assert "fits now  2    2         40.0 GiB" in said
    told = json.loads(run(capsys, "fit", "wide", *files({"nodes": [FLEET["nodes"][1]]}), "--json", code=1))
    assert [(each["verdict"], each["why"]) for each in told["items"]] == [("never", "fabric.none")]


@pytest.mark.parametrize(
    ("fleet", "catalog", "code", "text"),
    [
        ({"nodes": [{"name": "a", "gpu": 3}]}, CATALOG, 3, "nodes[0].gpu"),
        (FLEET, {"models": [{"name": "a"}]}, 3, "models[0].source"),
        (FLEET, {"models": [{"name": "a", "source": "hf://a/b/c.gguf", "replicas": -1}]}, 3, "models[0].replicas"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(files, fleet, catalog, code, text):
    with pytest.raises(CommandError, match=text.replace("[", r"\[")) as refused:
        call_command("plan", *files(fleet, catalog))
    assert refused.value.returncode == code


def test_a_fleet_without_a_catalog_is_no_question(tmp_path):
    with pytest.raises(CommandError, match="needs --catalog") as refused:
        call_command("plan", "--fleet", str(tmp_path / "x.yaml"))
    assert refused.value.returncode == 2


def test_a_model_that_is_not_there(files):
    with pytest.raises(CommandError, match="there are: small, wide") as refused:
        call_command("fit", "large", *files())
    assert refused.value.returncode == 3


@pytest.mark.django_db(transaction=True)
def test_a_catalog_against_the_fleet_that_is_there(files, capsys):
    said = run(capsys, "plan", *files()[2:], code=1)
    assert "fleet.empty" in said
    assert run(capsys, "plan").startswith("0 nodes, 0 replicas wanted")

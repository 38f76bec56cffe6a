"""`manage.py inspect`: what weights on this machine tell."""

import json

import pytest
import yaml
from django.core.management import CommandError, call_command

from llmgw.core.validation import facts_from_document
from tests.core.estimates import known
from tests.core.estimates.files import gguf
from tests.core.estimates.test_gguf import LLAMA, TENSORS


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(known.LLAMA_31_8B))
    for part in (1, 2):
        (tmp_path / f"model-0000{part}-of-00002.safetensors").write_bytes(bytes(1000))
    (tmp_path / "original").mkdir()
    (tmp_path / "original" / "consolidated.00.pth").write_bytes(bytes(2000))
    return tmp_path


def inspected(path, capsys):
    call_command("inspect", str(path), "--json")
    return json.loads(capsys.readouterr().out)["facts"]


def test_a_folder_of_a_model(folder, capsys):
    told = inspected(folder, capsys)
    assert (told["weights"], told["layers"], told["key_value_heads"]) == (2000, 32, 8)
    assert facts_from_document(told) is not None


def test_the_index_decides(folder, capsys):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert inspected(folder, capsys)["weights"] == 1000


def test_it_is_printed_as_it_stands_in_a_catalog(folder, capsys):
    call_command("inspect", str(folder))
    said = capsys.readouterr().out
    assert yaml.safe_load(said)["facts"]["layers"] == 32
    assert "131072 bytes of cache for each token" in said


def test_a_gguf_file(tmp_path, capsys):
    (tmp_path / "a.gguf").write_bytes(gguf(LLAMA, TENSORS) + bytes(500))
    told = inspected(tmp_path / "a.gguf", capsys)
    assert (told["weights"], told["kind"]) == ((tmp_path / "a.gguf").stat().st_size, "llama")
    assert inspected(tmp_path, capsys) == told


def test_a_gguf_model_in_parts(tmp_path, capsys):
    for part in (1, 2):
        facts = {**LLAMA, "split.no": part - 1, "split.count": 2}
        (tmp_path / f"a-0000{part}-of-00002.gguf").write_bytes(gguf(facts, TENSORS))
    (tmp_path / "b-00001-of-00002.gguf").write_bytes(b"another model")
    whole = sum(file.stat().st_size for file in tmp_path.glob("a-*"))
    assert inspected(tmp_path / "a-00001-of-00002.gguf", capsys)["weights"] == whole


@pytest.mark.parametrize(
    ("name", "content", "code", "text"),
    [
        ("nothing", None, 2, "cannot be read"),
        ("a.gguf", b"GGUF", 3, "ends within"),
        ("a.bin", b"x", 3, "no folder of a model"),
    ],
)
def test_what_does_not_tell_is_said(tmp_path, name, content, code, text):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError, match=text) as refused:
        call_command("inspect", str(path if content is not None else path / "x.gguf"))
    assert refused.value.returncode == code


def test_a_folder_without_weights(folder):
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CommandError, match="1 of its 2 parts are there"):
        call_command("inspect", str(folder))

"""Files as the formats have them: the head of a safetensors file, the head of a GGUF file."""

import json
import struct


def safetensors(tensors):
    """The head of a file; `tensors` are name → (type, bytes)."""
    at, told = 0, dict[str, object](__metadata__={"format": "pt"})
    for name, (kind, size) in tensors.items():
        told[name] = {"dtype": kind, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(told).encode()
    return len(header).to_bytes(8, "little") + header


def text(words):
    raw = words.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(told):
    """One value of the metadata, with its type before it."""
    if isinstance(told, bool):
        return struct.pack("<I?", 7, told)
    if isinstance(told, int):
        return struct.pack("<II", 4, told)
    if isinstance(told, float):
        return struct.pack("<If", 6, told)
    if isinstance(told, str):
        return struct.pack("<I", 8) + text(told)
    inner = [value(each) for each in told]
    kind = inner[0][:4] if inner else struct.pack("<I", 4)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(inner)) + b"".join(each[4:] for each in inner)


def gguf(facts, tensors=(), version=3):
    """The head of a file; `tensors` are (name, dimensions, type)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(facts))
    for name, told in facts.items():
        head += text(name) + value(told)
    for name, dimensions, kind in tensors:
        head += text(name) + struct.pack("<I", len(dimensions))
        head += b"".join(struct.pack("<Q", each) for each in dimensions) + struct.pack("<IQ", kind, 0)
    return head

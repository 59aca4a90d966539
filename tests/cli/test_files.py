"""inspect, and files that are damaged or hostile: each ends in a message and exit code 7, never in a crash."""

import random
import struct

import pytest

from conftest import FILE, GOLDEN, run


def test_inspect(tiny):
    result = run("inspect", tiny)
    assert result.code == 0
    assert "runs here" in result.out and "general.architecture" in result.out
    assert "token_embd.weight" in result.out


def test_inspect_json(tiny):
    found = run("inspect", "--json", tiny).json
    assert found["format"] == "gguf" and found["version"] in (2, 3) and found["unsupported"] is None
    assert found["file_bytes"] == tiny.stat().st_size
    metadata = {entry["key"]: entry for entry in found["metadata"]}
    assert metadata["general.architecture"]["value"] == "llama"
    tokens = metadata["tokenizer.ggml.tokens"]
    assert tokens["array"] and tokens["count"] >= len(tokens["first"]) > 0
    tensors = {tensor["name"]: tensor for tensor in found["tensors"]}
    embedding = tensors["token_embd.weight"]
    assert embedding["shape"][0] >= tokens["count"]
    assert max(t["offset"] + t["bytes"] for t in tensors.values()) <= found["file_bytes"]


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_linear", "tiny_mistral", "tiny_qwen2", "tiny_qwen3"])
def test_inspect_all_architectures(name):
    assert run("inspect", "--json", GOLDEN / f"{name}.gguf").json["unsupported"] is None


COMMANDS = [["inspect"], ["inspect", "--json"], ["generate", "-p", "x", "-n", "1", "-m"], ["tokenize", "-p", "x", "-m"],
            ["bench", "model", "-p", "1", "-n", "1", "-r", "1", "-m"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("what, content", [
    ("empty", b""),
    ("text", b"This is not a model.\n" * 10),
    ("magic", b"GGUF"),
    ("counts", b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63)),
    ("version", b"GGUF" + struct.pack("<IQQ", 99, 0, 0)),
    ("long key", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62) + b"key"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_hostile_files(command, what, content, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    result = run(*command, path)
    assert result.code == FILE
    assert result.out == "" and result.err.startswith("llmspeed: ")
    assert "model.gguf" in result.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_such_file(command, tmp_path):
    result = run(*command, tmp_path / "absent.gguf")
    assert result.code == FILE
    assert "absent.gguf" in result.err and "No such file" in result.err
    result = run(*command, tmp_path)
    assert result.code == FILE and result.err.startswith("llmspeed: ")


def test_truncated_and_flipped_files(tiny, tmp_path):
    content = tiny.read_bytes()
    path = tmp_path / "model.gguf"
    source = random.Random(1)
    for _ in range(12):
        path.write_bytes(content[:source.randrange(len(content))])
        assert run("generate", "-m", path, "-p", "a", "-n", "2", "--device", "cpu").code == FILE
    for _ in range(12):  # a flipped bit may be harmless; it must not crash
        flipped = bytearray(content)
        flipped[source.randrange(4096)] ^= 1 << source.randrange(8)
        path.write_bytes(flipped)
        run("generate", "-m", path, "-p", "a", "-n", "2", "--device", "cpu")


def test_names_are_shown_without_control_characters(tmp_path):
    """A string in a file may hold escape sequences: they must not reach the terminal."""
    key, value = b"general.name", "\x1b[2Jred\n\x9b".encode() + b"\xff"
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key +
                     struct.pack("<IQ", 8, len(value)) + value + b"\0" * 64)
    result = run("inspect", path)
    assert result.code == 0
    assert "\\x1b[2Jred\\n" in result.out
    assert not any(ord(c) < 32 and c != "\n" or 0x7f <= ord(c) < 0xa0 for c in result.out)
    assert run("inspect", "--json", path).json["unsupported"]

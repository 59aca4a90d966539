"""The programs in examples/python, and the Python in README.md and docs: all of it runs as it stands."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import GOLDEN, ROOT

import llm_speed

EXAMPLES = sorted((ROOT / "examples" / "python").glob("*.py"))
PAGES = ["README.md", "docs/python.md"]


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.name)
def test_example(program, device):
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})}
    model = os.environ.get("LLS_TEST_MODEL") or str(GOLDEN / "tiny_llama.gguf")
    command = [sys.executable, str(program), model]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"on {device}" in done.stdout and "Hugging Face, same logits" in done.stdout
    if os.environ.get("LLS_TEST_MODEL"):
        assert "Paris" in done.stdout


@pytest.fixture
def hugging_face_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, vocab_size=64
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.mark.parametrize("page", PAGES)
def test_python_of_a_page(page, device, hugging_face_model, capsys, monkeypatch):
    """Block after block in one namespace; a GGUF file that stands for any is the tiny one."""
    if device == "cpu":  # the default backend wants a C++ compiler
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    names = {"name": hugging_face_model}
    for block in blocks:
        if "torch.cuda." in block and device != "cuda":
            continue
        block = block.replace('"model.gguf"', repr(str(GOLDEN / "tiny_llama.gguf")))
        exec(compile(block.replace('"cuda"', f'"{device}"'), page, "exec"), names)
    assert capsys.readouterr().out


def test_every_name_in_the_tables_is_there():
    text = (ROOT / "docs" / "python.md").read_text()
    tables = text[text.index("## Ops") : text.index("## torch.compile")]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and "`" in line]
    names = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1] + row.split("|")[2])}
    names -= {"qkvpacked", "kvpacked"}
    assert {"embed", "sample", "flash_attn_func", "silu_and_mul"} <= names
    missing = sorted(name for name in names if not hasattr(llm_speed, name))
    assert not missing


def test_every_error_is_in_the_table():
    text = (ROOT / "docs" / "python.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+Error)` \| `(\w+)` \|", text, re.MULTILINE))
    classes = {c.__name__: c for c in llm_speed.Error.__subclasses__()}
    assert rows.keys() == classes.keys()
    for name, built_in in rows.items():
        assert issubclass(classes[name], getattr(__import__("builtins"), built_in))

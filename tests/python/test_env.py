"""`python -m llm_speed.env`: complete, and alive where things are missing or broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch

import llm_speed
from llm_speed import env


def run(*arguments, **variables):
    environment = {**os.environ, **variables}
    command = [sys.executable, "-W", "error", "-m", "llm_speed.env", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_json():
    found = json.loads(run("--json", LLS_FORCE="rmsnorm:none", LLS_MISSPELT="1", OTHER="x"))
    assert found["llm_speed"]["version"] == llm_speed.__version__
    assert os.path.samefile(found["llm_speed"]["module"], llm_speed._C.__file__)
    assert found["frameworks"]["torch"] == torch.__version__.partition("+")[0]
    assert found["variables"]["LLS_FORCE"] == "rmsnorm:none" and found["variables"]["LLS_MISSPELT"] == "1"
    assert "OTHER" not in found["variables"]
    gpus = 0 if found["llm_speed"]["cuda"] == "none" else torch.cuda.device_count()
    assert len(found["cuda_devices"]) == gpus
    rows = [row for row in llm_speed.variants() if row["device"] == "cpu"]
    assert found["variants"]["cpu"]["can_run"] + sum(found["variants"]["cpu"]["cannot"].values()) == len(rows)
    assert found == json.loads(json.dumps(env.report())) | {"variables": found["variables"]}


def test_text_has_every_answer():
    text = run(LLS_LOG="")
    for name, answer in env.report().items():
        assert f"\n{name}\n" in f"\n{text}"
        if name == "llm_speed":
            assert all(f"  {key}: {value}" in text for key, value in answer.items())
    assert "  LLS_LOG: \n" in text


def test_a_probe_that_fails_is_reported(monkeypatch, capsys):
    def broken():
        raise RuntimeError("no driver today")

    monkeypatch.setitem(env._PROBES, "cuda_devices", broken)
    assert env.main([]) == 0
    assert "error: RuntimeError: no driver today" in capsys.readouterr().out
    assert env.report()["python"]["version"]


def test_without_frameworks():
    """Nothing but the standard library is imported, so nothing else has to be there."""
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "torch", "jax", "transformers", "ml_dtypes"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from llm_speed import env
sys.exit(env.main(["--json"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["llm_speed"]["version"] == llm_speed.__version__

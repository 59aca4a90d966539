"""bench op and bench model: what they print, and that results are well-formed."""

import json

import pytest

from conftest import ARGUMENT, USAGE, run

QUICK = ["bench", "op", "--op", "rmsnorm", "--case", "SmolLM2-135M, decode", "--seconds", "0.01", "--device", "cpu"]


def test_bench_op(tmp_path):
    path = tmp_path / "rmsnorm.json"
    result = run(*QUICK, "--json", path)
    assert result.code == 0, result.err
    found = json.loads(path.read_text())
    assert all(found["ceilings"][name] > 0 for name in ("read_tbps", "f32_tflops", "tf32_tflops", "f16_tflops", "f8_tflops", "i8_tops"))
    assert found["date"] and len(found["sources_sha256"]["rmsnorm"]) == 64
    rows = found["rows"]
    assert {row["variant"] for row in rows} >= {"cpu_portable"}
    for row in rows:
        assert row["op"] == "rmsnorm" and row["us"] > 0 and row["error"] <= 1
        assert row["best_us"] <= row["us"] <= row["p95_us"]
        assert set(row["params"]) == {"rows", "hidden"}
        assert row["floor_share"] > 0 and row["bound"] in {"memory", "compute", "latency"}
        assert (row["bound"] == "latency") == (row["floor_share"] < 0.25)
        assert not {"kernel", "registers", "occupancy"} & set(row)  # a GPU has those
    cases = {(row["case"], row["dtype"], *row["params"].values()) for row in rows}
    assert sum(row["chosen"] for row in rows) == len(cases)  # one choice a case


def test_bench_op_figures_are_those_of_the_definition(tmp_path):
    """x, residual, residual_out, out and the weight, 576 wide; 5 operations an element."""
    path = tmp_path / "rmsnorm.json"
    assert run(*QUICK, "--json", path).code == 0
    for row in json.loads(path.read_text())["rows"]:
        size = {"f32": 4, "bf16": 2}[row["dtype"]]
        assert row["tbps"] * row["us"] * 1e6 == pytest.approx(4 * 576 * size + 4 * 576, rel=1e-4)
        assert row["tflops"] * row["us"] * 1e6 == pytest.approx(5 * 576, rel=1e-4)


def test_bench_op_profile():
    plain, profile = run(*QUICK, "-v", "ref"), run(*QUICK, "-v", "ref", "--profile")
    assert plain.code == 0 and profile.code == 0
    heading = next(line for line in profile.out.splitlines() if line.startswith("rmsnorm"))
    assert heading.split()[-4:] == ["regs", "occ", "floor", "bound"] and "GFLOP/s of fp32" in profile.out
    rows = [line.split() for line in profile.out.splitlines() if "*ref" in line]
    assert rows and all(row[-1] in {"memory", "compute", "latency"} for row in rows)
    assert "bound" not in plain.out and "GFLOP/s of fp32" not in plain.out


def test_bench_op_sustained(tmp_path):
    path = tmp_path / "rmsnorm.json"
    result = run(*QUICK, "--chosen", "--sustained", "0.05", "--json", path)
    assert result.code == 0 and "sustained" in result.out
    rows = json.loads(path.read_text())["rows"]
    assert rows and all(row["sustained_us"] >= 0.5 * row["best_us"] and row["samples"] >= 3 for row in rows)
    assert run(*QUICK, "--chosen", "--json", path).code == 0
    assert not any("sustained_us" in row for row in json.loads(path.read_text())["rows"])


def test_bench_op_selects_dtype_and_chosen(tmp_path):
    path = tmp_path / "rmsnorm.json"
    assert run(*QUICK, "--chosen", "--dtype", "bf16", "--json", path).code == 0
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 1 and rows[0]["dtype"] == "bf16" and rows[0]["chosen"]


def test_bench_op_on_one_variant():
    result = run(*QUICK, "-v", "ref")
    assert result.code == 0
    assert "*ref" in result.out and "cpu_portable" not in result.out


@pytest.mark.parametrize("args", [["-o", "fft"], ["-o", "rmsnorm", "-v", "99_magic"], ["-c", "no such case"],
                                  ["--dtype", "f128"]])
def test_bench_op_of_nothing(args):
    result = run("bench", "op", "--device", "cpu", *args)
    assert result.code == ARGUMENT and args[-1] in result.err


def test_bench_op_without_that_gpu():
    result = run("bench", "op", "--device", "cuda:1000")
    assert result.code == 5 and "CUDA" in result.err and result.out == ""


def test_bench_op_result_that_cannot_be_written():
    result = run(*QUICK, "-v", "cpu_portable", "--json", "/nowhere/x.json")
    assert result.code == 1 and "/nowhere/x.json" in result.err


def test_ladder(tmp_path):
    path = tmp_path / "ladder.json"
    result = run("ladder", "rope", "--device", "cpu", "--case", "SmolLM2-135M, prompt", "--dtype", "f32", "--seconds", "0.01",
                 "--json", path)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("rung "))
    rungs = [line.split()[0].lstrip("*") for line in lines[heading + 1:] if line]
    assert rungs[0] == "cpu_portable" and "ref" not in rungs  # from the bottom up
    assert lines[heading + 1].split()[6] == "1.0x"
    found = json.loads(path.read_text())["rows"]
    assert [row["variant"] for row in found] == rungs[::-1]
    assert all(row["idea"] and row["idea"] in result.out and row["us"] > 0 for row in found)


def test_ladder_at_the_case_of_the_op():
    result = run("ladder", "gated_act", "--device", "cpu", "--seconds", "0.01")
    assert result.code == 0 and "gated_act, Llama-3-8B, prompt: rows 512" in result.out and ", bf16\n" in result.out


def test_ladder_of_nothing():
    assert 'op is "fft"' in run("ladder", "fft", "--device", "cpu").err
    result = run("ladder", "rope", "--device", "cpu", "--case", "no such case")
    assert result.code == ARGUMENT and "no such case" in result.err


def bench_model(model, *args):
    return run("bench", "model", "-m", model, "--device", "cpu", "-p", "16", "-n", "8", "-r", "2", *args)


def test_bench_model(tiny):
    result = bench_model(tiny)
    assert result.code == 0, result.err
    assert "prefill 16" in result.out and "decode 8" in result.out


def test_bench_model_json(tiny):
    found = bench_model(tiny, "--json", "--depth", "4", "-t", "1").json
    assert found["threads"] == 1 and found["depth"] == 4
    for test, unit in (("prefill", "s"), ("decode", "ms")):
        figures = found[test]
        assert figures["tokens_per_s"] > 0
        assert figures[f"best_{unit}"] <= figures[f"median_{unit}"] <= figures[f"p95_{unit}"]
    assert found["bytes_per_token"] > 0 and found["machine_gbps"] > 0 and 0 < found["decode"]["floor_share"]
    assert "decode" not in bench_model(tiny, "--json", "-n", "0").json
    assert "prefill" not in bench_model(tiny, "--json", "-p", "0").json


def test_bench_model_context(tiny):
    result = bench_model(tiny, "--context", "8")
    assert result.code == 6 and "8" in result.err


def test_tune_says_what_it_needs():
    for arguments, part in [
        (["tune"], "no op given"),
        (["tune", "rope", "-M", "1", "-N", "1", "-K", "1"], "only gemm"),
        (["tune", "gemm", "-M", "1", "-N", "1"], "-M, -N and -K are needed"),
        (["tune", "gemm", "-M", "1", "-N", "1,2", "-K", "1"], "must be equally many"),
        (["tune", "gemm", "-M", "0", "-N", "1", "-K", "1"], "must be up to"),
        (["tune", "gemm", "-M", "1", "-N", "1", "-K", "1", "--layout", "XX"], "must be NT or NN"),
    ]:
        result = run(*arguments)
        assert result.code == USAGE and part in result.err, (arguments, result.err)
    result = run("tune", "gemm", "-M", "1", "-N", "1", "-K", "1", "--device", "cpu")
    assert result.code == ARGUMENT and "only CUDA variants have configurations" in result.err

"""The package as a whole: import cost, what it imports, version, type information."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

import llm_speed
from llm_speed import _C
from test_arrays import child_environment

PACKAGE = Path(llm_speed.__file__).parent
ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "jax", "cupy", "transformers", "ml_dtypes", "asyncio", "http", "multiprocessing")


def run_python(code: str, **environment: Optional[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(**environment), capture_output=True, timeout=120, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_quick():
    """The best of five new processes, in CPU time: what Python itself takes to start, and waiting, do not count."""
    code = "import time; t = time.process_time(); import llm_speed; print(time.process_time() - t)"
    assert min(float(run_python(code)) for _ in range(5)) < 0.15


def test_import_brings_no_framework():
    imported = run_python("import sys, llm_speed; print(*sys.modules)").split()
    assert "llm_speed._C" in imported
    assert not set(HEAVY) & set(imported)


BARE = """
import array, sys
sys.modules["torch"] = sys.modules["numpy"] = None  # importing either raises ImportError
import llm_speed
x, out = array.array("f", [3.0, 4.0, 0.0, 0.0]), array.array("f", [0.0] * 4)
llm_speed.rmsnorm(x, out=out, eps=0.0)
assert [round(v, 4) for v in out] == [1.2, 1.6, 0.0, 0.0]
try:
    llm_speed.rmsnorm(x, weight=[1.0], out=out)
except TypeError as error:
    assert "rmsnorm: weight" in str(error)
else:
    raise AssertionError
print(len(llm_speed.variants()))
"""


@pytest.mark.parametrize("environment", [{}, {"CUDA_VISIBLE_DEVICES": ""}], ids=["as it is", "no GPU"])
def test_works_without_torch_and_numpy(environment):
    assert int(run_python(BARE, **environment)) > 0


def test_without_a_gpu():
    code = """
import llm_speed
from llm_speed import _C
assert _C.cuda_devices() == []
assert all(row["unavailable"] for row in llm_speed.variants() if row["device"] == "cuda")
assert any(row["unavailable"] is None for row in llm_speed.variants() if row["device"] == "cpu")
try:
    llm_speed.reserve_workspace(0, 0, 1024)
except RuntimeError as error:
    assert isinstance(error, llm_speed.Error) and error.status == "LLS_ERR_NO_DEVICE", error
else:
    raise AssertionError
"""
    run_python(code, CUDA_VISIBLE_DEVICES="")


def test_version():
    header = ROOT / "include" / "llmspeed" / "version.h"
    assert llm_speed.__version__ == re.search(r'LLS_VERSION_STRING "(.+)"', header.read_text())[1]
    numbers = [re.search(rf"LLS_VERSION_{part} (\d+)", header.read_text())[1] for part in ("MAJOR", "MINOR", "PATCH")]
    assert llm_speed.__version__ == ".".join(numbers)


def test_import_hook_is_gone_once_torch_is_there():
    """`import llm_speed` leaves no hook behind once torch is there, and torch's loader is its own again."""
    code = """
import sys, llm_speed
assert any(type(f).__module__ == "llm_speed._import_hook" for f in sys.meta_path)
import torch
assert not any(type(f).__module__ == "llm_speed._import_hook" for f in sys.meta_path)
assert type(torch.__spec__.loader).__module__ != "llm_speed._import_hook"
assert torch.ops.llm_speed.rmsnorm
"""
    run_python(code)


# ---- Types -------------------------------------------------------------------------------------------

KINDS = {
    "in": "_Array",
    "in?": "_Array | None",
    "out": "_Array",
    "out?": "_Array | None",
    "float": "float",
    "int": "int",
    "bool": "bool",
    "str?": "str | None",
    "float[]?": "Sequence[float] | None",
}


def stub() -> ast.Module:
    return ast.parse((PACKAGE / "_C.pyi").read_text())


def functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in stub().body if isinstance(node, ast.ClassDef)}


def public(names: object) -> set[str]:
    return {name for name in dir(names) if not name.startswith("_")}


def test_typed():
    assert (PACKAGE / "py.typed").is_file() and (PACKAGE / "_C.pyi").is_file()


def test_stub_has_every_name():
    assert {*functions(stub().body), *classes()} == public(_C)
    for name, node in classes().items():
        assert {method for method in functions(node.body) if method != "__init__"} == public(getattr(_C, name)), name


@pytest.mark.parametrize("op", _C.op_names())
def test_stub_of_ops(op):
    arguments = functions(stub().body)[op].args
    wanted = [(name, KINDS[kind]) for name, kind in _C.op_fields(op)] + [("stream", "int | None")]
    assert [(a.arg, ast.unparse(a.annotation)) for a in arguments.posonlyargs] == wanted
    assert not (arguments.args or arguments.kwonlyargs or arguments.defaults)


def test_stub_parameters():
    """pybind11 writes each signature into the docstring: names, order and defaults must be those of the stub."""
    pairs = [(node, getattr(_C, name)) for name, node in functions(stub().body).items()]
    for cls, node in classes().items():
        pairs += [(method, getattr(getattr(_C, cls), name)) for name, method in functions(node.body).items()]
    compared = 0
    for node, real in pairs:
        signature = (getattr(real, "__doc__", None) or "").partition("\n")[0]
        if not signature.startswith(f"{node.name}("):
            continue  # a plain C function or a property
        inner = signature[signature.index("(") + 1 : signature.rindex(")")]
        parsed = ast.parse(re.sub(r"<[^>]*>", "None", f"def f({inner}): ...")).body[0]
        assert isinstance(parsed, ast.FunctionDef)
        assert [a.arg for a in parsed.args.args] == [a.arg for a in node.args.args], node.name
        defaults = [[ast.unparse(d) for d in f.args.defaults] for f in (parsed, node)]
        assert defaults[0] == defaults[1], node.name
        compared += 1
    assert compared >= 20


def test_public_signatures_agree_with_the_exports():
    for op in _C.op_names():
        assert getattr(llm_speed, op) is getattr(llm_speed.ops, op)
        parameters = list(llm_speed.ops.__dict__[op].__annotations__)
        assert {"variant", "stream"} <= set(parameters)


def test_mypy(tmp_path):
    """Strict, but for the frameworks: they are optional, hence without types here."""
    pytest.importorskip("mypy")
    flags = [
        "--strict",
        "--python-version=3.10",
        "--ignore-missing-imports",
        "--follow-imports=skip",
        "--allow-subclassing-any",
        "--allow-untyped-decorators",
        "--no-warn-return-any",
        "--no-warn-unused-ignores",
        f"--cache-dir={tmp_path}",
    ]
    # The sources: an installed package lies beside others, which mypy would take for parts of it.
    command = [sys.executable, "-m", "mypy", *flags, str(ROOT / "python" / "llm_speed")]
    done = subprocess.run(command, env=child_environment(), cwd=tmp_path, capture_output=True, timeout=300, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

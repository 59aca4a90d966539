"""Tests of the Python package: `pytest tests/python` with llm_speed installed or on PYTHONPATH.

Tests that take `device` run on the CPU, and on CUDA where torch sees a GPU.
"""

import pathlib

import pytest

torch = pytest.importorskip("torch")

CUDA = torch.cuda.is_available()
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"


def devices():
    return ["cpu", "cuda"] if CUDA else ["cpu"]


@pytest.fixture(params=devices())
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield

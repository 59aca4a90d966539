"""sample: the set it draws from against torch in float64, the draw against its distribution, by rows and seeds."""

from __future__ import annotations

import math
from typing import Any, Optional

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cases
import llm_speed
from oracle import check


def final_distribution(
    logits: torch.Tensor,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    penalty: float = 1.0,
    history: tuple[int, ...] = (),
) -> torch.Tensor:
    """The probabilities of one row [vocab] in float64, as the header defines them."""
    scores = logits.double().cpu().nan_to_num(nan=-math.inf, posinf=torch.finfo(torch.float32).max, neginf=-math.inf)
    for token in set(history):
        if 0 <= token < len(scores):
            scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    if temperature < 1e-4:
        chosen = torch.zeros_like(scores)
        chosen[int(scores.argmax())] = 1
        return chosen
    probs = torch.softmax(scores / temperature, 0)
    ranked = torch.sort(probs, descending=True, stable=True).indices
    kept = ranked[: top_k or len(ranked)]
    mass = probs[kept].cumsum(0)
    before = mass - probs[kept]
    kept = kept[(before < top_p * mass[-1]) | (torch.arange(len(kept)) == 0)]
    kept = kept[probs[kept] >= min_p * probs.max()]
    final = torch.zeros_like(probs)
    final[kept] = probs[kept] / probs[kept].sum()
    return final


@cases.settings
@given(data=st.data())
def test_greedy_is_argmax(device, data):
    draw = data.draw
    batch, vocab, dtype = (
        draw(st.sampled_from([0, 1, 3])),
        draw(st.sampled_from([1, 2, 33, 1000])),
        draw(cases.float_dtypes),
    )
    logits = cases.normal((batch, vocab), dtype, device)
    if draw(st.booleans(), label="ties"):
        logits = logits.round()
    logits = cases.laid_out(logits, draw(cases.layouts))
    variant = draw(st.sampled_from(cases.variants("sample", device)))
    ids, probs = cases.run_variant(llm_speed.sample, logits, return_probs=True, variant=variant)
    assert ids.dtype == torch.int32 and ids.shape == probs.shape == (batch,)
    assert (probs == 1).all()
    wide = logits.double().cpu()
    lowest = [int((row == row.max()).nonzero()[0, 0]) for row in wide]  # ties go to the lowest index
    assert ids.tolist() == lowest


def test_odd_logits(device):
    inf, nan = math.inf, math.nan
    logits = torch.tensor(
        [[nan, 1.0, -inf], [inf, 3e38, 0.0], [-inf, -inf, -inf], [nan, nan, nan], [-inf, nan, -5.0]], device=device
    )
    for temperature in (0.0, 0.7):
        ids, probs = llm_speed.sample(logits, temperature=temperature, return_probs=True)
        assert ids.tolist() == [1, 0, -1, -1, 2]
        assert probs.tolist() == [1, 1, 0, 0, 1]


@cases.settings
@given(data=st.data())
def test_probability_of_what_is_drawn(device, data):
    """For random parameters a row each: the id is one of the final set, and out_probs is its probability there."""
    draw = data.draw
    batch, vocab, dtype = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 50, 700])), draw(cases.float_dtypes)
    logits = cases.laid_out(cases.normal((batch, vocab), dtype, device, 2.0), draw(cases.layouts))
    rows = [
        {
            "temperature": draw(st.sampled_from([0.0, 0.5, 1.0, 1.7])),
            "top_k": draw(st.sampled_from([0, 1, 3, 40, 10**6])),
            "top_p": draw(st.sampled_from([1.0, 0.0, 0.31, 0.9])),
            "min_p": draw(st.sampled_from([0.0, 0.05, 0.4, 1.0])),
            "penalty": draw(st.sampled_from([1.0, 1.3, 0.8])),
            "history": tuple(draw(st.lists(st.integers(-1, vocab), max_size=6))),
        }
        for _ in range(batch)
    ]
    lens = [len(row["history"]) for row in rows]
    history = torch.full((batch, max(lens) + 2), 0, dtype=torch.int32)
    for i, row in enumerate(rows):
        history[i, : lens[i]] = torch.tensor(row["history"], dtype=torch.int32)

    def column(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([row[name] for row in rows], dtype=dtype, device=device)

    options: dict[str, Any] = {
        "temperature": column("temperature", torch.float32),
        "top_k": column("top_k", torch.int32),
        "top_p": column("top_p", torch.float32),
        "min_p": column("min_p", torch.float32),
        "repetition_penalty": column("penalty", torch.float32),
        "history": history.to(device),
        "history_lens": torch.tensor(lens, dtype=torch.int32, device=device),
        "seed": torch.arange(batch, device=device) * 1000 - 500,
        "step": torch.full((batch,), draw(st.integers(0, 10**6)), device=device),
    }
    variant = draw(st.sampled_from(cases.variants("sample", device)))
    ids, probs = cases.run_variant(llm_speed.sample, logits, return_probs=True, variant=variant, **options)
    for i, row in enumerate(rows):
        exact = final_distribution(logits[i], **row)
        token = int(ids[i])
        assert exact[token] > 0
        check(probs[i], exact[token], exact[token].float())
        # A row's draw is its own: alone, it is the same.
        alone = {name: value[i : i + 1] for name, value in options.items()}
        got = cases.run_variant(llm_speed.sample, logits[i : i + 1], variant=variant, **alone)
        assert int(got) == token


DISTRIBUTIONS = [
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"temperature": 1.5, "top_k": 7},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.2, "top_k": 12, "top_p": 0.9, "min_p": 0.02},
]


@pytest.mark.parametrize("by", ["seed", "step"])
@pytest.mark.parametrize("options", DISTRIBUTIONS, ids=str)
def test_draws_follow_the_distribution(device, options, by):
    """Pearson's chi-square of 20 000 draws, by seed or by step; 6 standard deviations above its mean is the bound."""
    count, vocab = 20_000, 30
    row = cases.normal((vocab,), torch.float32, device, 1.5)
    logits = row.expand(count, vocab)
    ids = llm_speed.sample(logits, **{by: torch.arange(count, device=device)}, **options)
    exact = final_distribution(row, **options)
    seen = torch.bincount(ids.cpu().long(), minlength=vocab).double()
    assert (seen[exact == 0] == 0).all()
    wanted = exact * count
    common = wanted >= 5
    chi_square = ((seen - wanted)[common] ** 2 / wanted[common]).sum()
    freedom = int(common.sum()) - 1
    assert chi_square < freedom + 6 * math.sqrt(2 * freedom)
    assert abs(seen[~common].sum() - wanted[~common].sum()) < 6 * math.sqrt(wanted[~common].sum() + 1)


def test_successive_draws_are_independent(device):
    """Pairs of neighbouring steps of one seed over four equal tokens: 16 cells, chi-square as above."""
    count = 16_000
    ids = llm_speed.sample(
        torch.zeros(1, 4, device=device).expand(count, 4),
        temperature=1.0,
        seed=42,
        step=torch.arange(count, device=device),
    ).cpu()
    pairs = torch.bincount((4 * ids[:-1] + ids[1:]).long(), minlength=16).double()
    wanted = (count - 1) / 16
    assert ((pairs - wanted) ** 2 / wanted).sum() < 15 + 6 * math.sqrt(30)


def test_same_draw_for_every_variant_and_run(device):
    logits = cases.normal((64, 500), torch.float32, device, 2.0)
    options = {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "seed": 7, "step": torch.arange(64, device=device)}
    first = llm_speed.sample(logits, **options)
    assert torch.equal(first, llm_speed.sample(logits, **options))
    for variant in cases.variants("sample", device):
        assert torch.equal(first, cases.run_variant(llm_speed.sample, logits, variant=variant, **options))
    on_cpu = {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    assert torch.equal(first.cpu(), llm_speed.sample(logits.cpu(), **on_cpu))
    assert not torch.equal(first, llm_speed.sample(logits, **{**options, "seed": 8}))


def test_scalars_are_arrays_of_one_value(device):
    logits = cases.normal((9, 100), torch.float16, device, 2.0)
    scalars = {
        "temperature": 0.8,
        "top_k": 20,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "seed": 2**40,
        "step": 3,
    }
    dtypes = {"top_k": torch.int32, "seed": torch.int64, "step": torch.int64}
    history = torch.randint(0, 100, (9, 5), dtype=torch.int32, device=device)
    lens = torch.full((9,), 5, dtype=torch.int32, device=device)
    arrays = {
        name: torch.full((9,), value, dtype=dtypes.get(name, torch.float32), device=device)
        for name, value in scalars.items()
    }
    ids = torch.empty(9, dtype=torch.int32, device=device)
    probs = torch.empty(9, device=device)
    got = llm_speed.sample(logits, history=history, history_lens=lens, out_ids=ids, out_probs=probs, **scalars)
    assert got[0] is ids and got[1] is probs
    wanted = llm_speed.sample(logits, history=history, history_lens=lens, return_probs=True, **arrays)
    assert torch.equal(ids, wanted[0]) and torch.equal(probs, wanted[1])


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"repetition_penalty": 0.0},
    ],
    ids=str,
)
def test_impossible_parameters(device, bad):
    logits = torch.randn(2, 10, device=device)
    ((name, value),) = bad.items()
    default: Optional[float] = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}.get(name, 0)
    dtype = torch.int32 if name == "top_k" else torch.float32
    column = torch.tensor([default, value], dtype=dtype, device=device)
    ids = torch.full((2,), 77, dtype=torch.int32, device=device)
    if device == "cpu":
        with pytest.raises(ValueError, match=rf"sample: {name}\[1\]"):
            llm_speed.sample(logits, **{"temperature": 1.0, name: column}, out_ids=ids)
        assert (ids == 77).all()
    else:
        llm_speed.sample(logits, **{"temperature": 1.0, name: column}, out_ids=ids)
        assert ids[0] >= 0 and ids[1] == -1

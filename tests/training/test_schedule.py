"""Schedules against transformers' own and against closed forms."""

import math
from functools import partial
from typing import Any

import pytest
import torch

from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.training.optim.schedule import (
    Constant,
    Cosine,
    InverseSqrt,
    Polynomial,
    ReciprocalSqrt,
    WarmupStableDecay,
)

T, W = 100, 10


def theirs(name: str, **kwargs) -> list[float]:
    """Multipliers of a transformers schedule by its own 0-based step."""
    import transformers

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = getattr(
        transformers,
        f"get_{name}_with_warmup" if name != "inverse_sqrt" else "get_inverse_sqrt_schedule",
    )
    return [schedule(optimizer, **kwargs).lr_lambdas[0](s) for s in range(T + 1)]


@pytest.mark.parity
@pytest.mark.parametrize(
    ("ours", "name", "kwargs"),
    [
        (
            Polynomial(warmup_steps=W),
            "linear_schedule",
            {"num_warmup_steps": W, "num_training_steps": T},
        ),
        (
            Cosine(warmup_steps=W),
            "cosine_schedule",
            {"num_warmup_steps": W, "num_training_steps": T},
        ),
        (Constant(warmup_steps=W), "constant_schedule", {"num_warmup_steps": W}),
        (InverseSqrt(warmup_steps=W), "inverse_sqrt", {"num_warmup_steps": W}),
        (
            InverseSqrt(warmup_steps=W, timescale=50),
            "inverse_sqrt",
            {"num_warmup_steps": W, "timescale": 50},
        ),
    ],
)
def test_as_in_transformers_with_warmup_one_update_ahead(ours, name, kwargs):
    expected = theirs(name, **kwargs)
    for t in range(1, T + 1):
        assert ours(t, T) == pytest.approx(
            expected[t] if t < W else expected[t - 1] if t > W else 1.0, abs=1e-12
        )


@pytest.mark.parity
@pytest.mark.parametrize("share", [0.0, 0.1, 0.255])
@pytest.mark.parametrize(
    ("ours", "name", "kwargs"),
    [
        (Polynomial, "linear_schedule", {}),
        (Cosine, "cosine_schedule", {}),
        (partial(Cosine, cycles=3), "cosine_with_hard_restarts_schedule", {"num_cycles": 3}),
    ],
)
def test_from_zero_is_the_schedule_of_the_trainer(
    share: float, ours: Any, name: str, kwargs: dict[str, int]
) -> None:
    """`warmup_ratio` of `TrainingArguments`: its updates are rounded up."""
    steps = {"num_warmup_steps": math.ceil(T * share), "num_training_steps": T}
    expected = theirs(name, **steps, **kwargs)
    schedule = ours(warmup_share=share, from_zero=True)
    found = [schedule(t, T) for t in range(1, T + 1)]
    assert found == pytest.approx(expected[:T], abs=1e-12)
    assert schedule.after(T, T, 0) == pytest.approx(0, abs=1e-12)


def test_the_first_update_moves_and_the_last_is_not_wasted():
    for schedule in (
        Polynomial(warmup_steps=W),
        Cosine(warmup_steps=W),
        WarmupStableDecay(warmup_steps=W),
    ):
        assert schedule(1, T) == 1 / W
        assert max(schedule(t, T) for t in range(1, T + 1)) == 1
        assert schedule(T, T) > 0
        assert schedule(1, 1) == 1  # without warm-up a run of one update moves at full rate


def test_original_bert_decays_from_update_zero():
    bert = Polynomial(warmup_steps=W, decay_from_zero=True)
    assert [bert(t, T) for t in (5, W, W + 1, T)] == pytest.approx([0.5, 1, 1 - W / T, 1 / T])


def test_wsd_closed_form():
    for shape, half in (("linear", 0.5), ("cosine", 0.5), ("sqrt", 1 - math.sqrt(0.5))):
        wsd = WarmupStableDecay(warmup_steps=W, decay_share=0.2, min_ratio=0.1, shape=shape)
        assert [wsd(t, T) for t in (W, 50, 81)] == [1, 1, 1]
        assert wsd(91, T) == pytest.approx(0.1 + 0.9 * half)


def test_polynomial_power_and_end():
    schedule = Polynomial(power=2.0, end=0.2)
    assert schedule(51, T) == pytest.approx(0.2 + 0.8 * 0.25)


def test_min_ratio_of_cosine():
    assert Cosine(min_ratio=0.1)(51, T) == pytest.approx(0.55)


def test_short_runs_warm_up_for_less_and_say_so():
    schedule = Polynomial(warmup_steps=1000, warmup_limit=0.1)
    assert schedule.warmup(T) == 10
    assert schedule(5, T) == 0.5
    assert "from 1000 to 10 updates" in schedule.describe_shortening(T)
    assert schedule.describe_shortening(20_000) == ""
    assert Polynomial(warmup_share=0.2).warmup(T) == 20
    long = Polynomial(warmup_steps=200)
    assert "from 200 to 100 updates" in long.describe_shortening(100)
    assert long(100, 100) == 1


@pytest.mark.parametrize(
    ("words", "steps", "share", "limit"),
    [
        ([], 0, 0.1, 0.1),
        (["schedule.warmup_steps=20"], 20, 0.0, 1.0),
        (["schedule.warmup_steps=20", "schedule.warmup_limit=0.5"], 20, 0.0, 0.5),
        (["schedule.warmup_share=0.3"], 0, 0.3, 1.0),
        (["schedule.warmup_steps=0"], 0, 0.1, 0.1),
        (["schedule.warmup_share=0"], 0, 0.0, 0.1),
    ],
)
def test_what_a_user_says_of_warm_up_counts_more_than_defaults(words, steps, share, limit):
    task = ["task=classification", "task.path=x", "checkpoint=null"]
    schedule = compose("finetune", None, [*task, *words]).schedule
    found = [schedule[f"warmup_{name}"] for name in ("steps", "share", "limit")]
    assert found == [steps, share, limit]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"warmup_steps": -1}, "schedule.warmup_steps"),
        ({"warmup_share": 2.0}, "schedule.warmup_share"),
        ({"warmup_steps": 5, "warmup_share": 0.1}, "either"),
    ],
)
def test_wrong_numbers(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        Constant(**kwargs)
    with pytest.raises(ConfigError, match="linear, cosine, sqrt"):
        WarmupStableDecay(shape="round")


def test_inverse_sqrt_is_the_rate_of_the_transformer() -> None:
    """`d^-0.5 min(t^-0.5, t W^-1.5)` (Vaswani et al., 2017, sec. 5.3) lr = (d W)^-0.5; decay
    begins one update later.
    """
    width, warmup = 512, 4000
    schedule, lr = InverseSqrt(warmup_steps=warmup), (width * warmup) ** -0.5
    for t in (1, 2, 999, 4000, 4001, 4002, 16000, 100_000):
        at = t if t <= warmup else t - 1
        assert lr * schedule(t, 100_000) == pytest.approx(
            width**-0.5 * min(at**-0.5, at * warmup**-1.5), rel=1e-12
        )


def test_rsqrt_is_the_rate_of_t5() -> None:
    """`1 / sqrt(max(step, 10000))`, with updates counted from 0 (Raffel et al., 2020, sec. 3.1.2),
    which is also the relative step `min(0.01, 1 / sqrt(t))`.
    """
    schedule = ReciprocalSqrt()
    for t in (1, 9_999, 10_001, 10_002, 40_001, 524_288):
        found = 0.01 * schedule(t, 524_288)
        assert found == pytest.approx(1 / math.sqrt(max(t - 1, 10_000)), rel=1e-12)
        assert found == pytest.approx(min(0.01, 1 / math.sqrt(max(1, t - 1))), rel=1e-12)
    assert ReciprocalSqrt(warmup_steps=10)(5, 1_000) == 0.5
    with pytest.raises(ConfigError, match=r"schedule.flat"):
        ReciprocalSqrt(flat=0)

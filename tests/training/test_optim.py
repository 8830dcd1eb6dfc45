"""Optimizers against torch's own and against ten lines of numpy."""

import numpy as np
import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.training.optim.adafactor import Adafactor
from plmctl.training.optim.adagrad import Adagrad
from plmctl.training.optim.adamw import AdamW
from plmctl.training.optim.groups import groups, has_decay, split_groups
from plmctl.training.optim.lamb import Lamb
from plmctl.training.optim.momentum import Momentum
from plmctl.training.optim.muon import Muon, orthogonalize
from plmctl.training.optim.stable_adamw import StableAdamW
from plmctl.training.optim.state import load_optimizer_tensors, optimizer_tensors

NUMBERS = {"lr": 0.01, "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.1}


def parameters(seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = {
        "backbone.w": (6, 4),
        "backbone.qkv.weight": (12, 4),
        "backbone.norm.weight": (4,),
        "backbone.fc.bias": (4,),
    }
    return [
        (name, torch.nn.Parameter(torch.randn(shape, generator=g)))
        for name, shape in shapes.items()
    ]


def run(optimizer, named, steps=5, seed=1):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for _, p in named:
            p.grad = torch.randn(p.shape, generator=g)
        optimizer.step()
    return [p.detach().clone() for _, p in named]


def gradients(shapes, steps=5, seed=1):
    g = torch.Generator().manual_seed(seed)
    return [
        [torch.randn(shape, generator=g).double().numpy() for shape in shapes] for _ in range(steps)
    ]


def reference(named, *, lr, betas, eps, weight_decay, bias_correction, trust=False, clamp=10.0):
    """Adam, AdamW and LAMB in numpy, float64, one tensor after the other."""
    theta = [p.detach().double().numpy().copy() for _, p in named]
    m, v = [np.zeros_like(x) for x in theta], [np.zeros_like(x) for x in theta]
    for t, grads in enumerate(gradients([p.shape for _, p in named]), start=1):
        for i, (name, p) in enumerate(named):
            m[i] = betas[0] * m[i] + (1 - betas[0]) * grads[i]
            v[i] = betas[1] * v[i] + (1 - betas[1]) * grads[i] ** 2
            m_hat = m[i] / (1 - betas[0] ** t) if bias_correction else m[i]
            v_hat = v[i] / (1 - betas[1] ** t) if bias_correction else v[i]
            matrix = p.ndim >= 2 and not name.endswith("bias")
            r = m_hat / (np.sqrt(v_hat) + eps) + (weight_decay if matrix else 0) * theta[i]
            ratio = (
                min(np.linalg.norm(theta[i]), clamp) / np.linalg.norm(r)
                if trust and matrix
                else 1.0
            )
            theta[i] = theta[i] - lr * ratio * r
    return theta


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_is_the_formula(bias_correction):
    named = parameters()
    expected = reference(named, **NUMBERS, bias_correction=bias_correction)
    found = run(AdamW(parameters=named, **NUMBERS, bias_correction=bias_correction), named)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), torch.from_numpy(b), rtol=1e-5, atol=1e-6)


def test_without_correction_the_first_update_is_three_times_larger():
    moves = []
    for correction in (True, False):
        named = [("x", torch.nn.Parameter(torch.zeros(3)))]
        optimizer = AdamW(
            parameters=named,
            lr=1.0,
            betas=[0.9, 0.999],
            eps=0.0,
            weight_decay=0.0,
            bias_correction=correction,
        )
        moves.append(run(optimizer, named, steps=1)[0].abs().mean().item())
    assert moves == pytest.approx([1.0, 0.1 / 0.001**0.5], rel=1e-4)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_lamb_is_the_formula(bias_correction):
    named = parameters()
    expected = reference(named, **NUMBERS, bias_correction=bias_correction, trust=True, clamp=3.0)
    found = run(
        Lamb(parameters=named, **NUMBERS, bias_correction=bias_correction, clamp=3.0), named
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), torch.from_numpy(b), rtol=1e-5, atol=1e-6)


def test_stable_adamw_is_the_formula():
    """Wortsman et al., 2023, algorithm 2, in numpy: with betas debiased, and without clipping."""
    named = parameters()
    theta = [p.detach().double().numpy().copy() for _, p in named]
    u, v, shorter = [0.0 * x for x in theta], [0.0 * x for x in theta], 0
    for t, grads in enumerate(gradients([p.shape for _, p in named]), start=1):
        first, second = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in NUMBERS["betas"])
        for i, (name, p) in enumerate(named):
            u[i] = first * u[i] + (1 - first) * grads[i]
            v[i] = second * v[i] + (1 - second) * grads[i] ** 2
            rms = np.sqrt(np.mean(grads[i] ** 2 / np.maximum(v[i], NUMBERS["eps"] ** 2)))
            shorter += rms > 1.01
            rate = NUMBERS["lr"] / max(1.0, rms)
            decay = NUMBERS["weight_decay"] if p.ndim >= 2 and not name.endswith("bias") else 0.0
            theta[i] *= 1 - rate * decay
            theta[i] -= rate * u[i] / (np.sqrt(v[i]) + NUMBERS["eps"])
    found = run(StableAdamW(parameters=named, **NUMBERS), named)
    assert shorter
    for a, b in zip(found, theta, strict=True):
        torch.testing.assert_close(a.double(), torch.from_numpy(b), rtol=1e-5, atol=1e-6)


def test_a_burst_of_gradients_makes_no_longer_step_of_stable_adamw():
    """After calm gradients one a thousand times as long moves a weight by at most the rate."""
    named = [("x", torch.nn.Parameter(torch.zeros(3)))]
    optimizer = StableAdamW(parameters=named, **{**NUMBERS, "weight_decay": 0.0})
    for size in (*[1e-3] * 20, 1.0):
        before = named[0][1].detach().clone()
        named[0][1].grad = torch.full((3,), size)
        optimizer.step()
    assert (named[0][1] - before).abs().max() < NUMBERS["lr"]


def test_lamb_leaves_a_zero_tensor_a_plain_step():
    named = [("w", torch.nn.Parameter(torch.zeros(2, 2)))]
    found = run(Lamb(parameters=named, **NUMBERS), named, steps=1)
    assert found[0].abs().max() == pytest.approx(0.01, rel=1e-3)


def test_momentum_is_the_formula():
    named = parameters()
    theta = [p.detach().double().numpy().copy() for _, p in named]
    v = [np.zeros_like(x) for x in theta]
    for grads in gradients([p.shape for _, p in named]):
        for i, (name, p) in enumerate(named):
            decay = 0.1 if p.ndim >= 2 and not name.endswith("bias") else 0.0
            v[i] = 0.9 * v[i] + grads[i] + decay * theta[i]
            theta[i] = theta[i] - 0.01 * v[i]
    made = run(Momentum(parameters=named, lr=0.01, momentum=0.9, weight_decay=0.1), named)
    for a, b in zip(made, theta, strict=True):
        torch.testing.assert_close(a.double(), torch.from_numpy(b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("clip", "fused"), [(None, False), (None, True), (1e9, False), (3.0, False)]
)
def test_adagrad_is_the_formula(clip, fused):
    """With `clip`, the step of a long gradient is shorter, and its squares are summed as they
    are.
    """
    named = parameters()
    theta = [p.detach().double().numpy().copy() for _, p in named]
    sums = [np.full_like(x, 0.5) for x in theta]
    shorter = 0
    for grads in gradients([p.shape for _, p in named]):
        for i, g in enumerate(grads):
            sums[i] += g**2
            share = min(1.0, clip / np.linalg.norm(g)) if clip else 1.0
            shorter += share < 1
            theta[i] -= 0.1 * share * g / (np.sqrt(sums[i]) + 1e-3)
    assert bool(shorter) == (clip == 3.0)
    made = Adagrad(parameters=named, lr=0.1, start=0.5, eps=1e-3, clip=clip, fused=fused)
    found = run(made, named)
    for a, b in zip(found, theta, strict=True):
        torch.testing.assert_close(a.double(), torch.from_numpy(b), rtol=1e-5, atol=1e-6)


def adafactor_steps(theta, grads, *, lr, factored, relative, momentum, decay, threshold):
    """Shazeer and Stern (2018), algorithms 4 and 5, cell by cell, of one tensor in float64."""
    squares = np.zeros_like(theta)
    rows, columns = np.zeros(theta.shape[0]), np.zeros(theta.shape[-1])
    kept_move = np.zeros_like(theta)
    for t, g in enumerate(grads, start=1):
        b = 1 - t**-0.8
        u = np.zeros_like(theta)
        if factored:
            for i in range(theta.shape[0]):
                rows[i] = b * rows[i] + (1 - b) * np.mean([x**2 + 1e-30 for x in g[i]])
            for j in range(theta.shape[1]):
                columns[j] = b * columns[j] + (1 - b) * np.mean([x**2 + 1e-30 for x in g[:, j]])
        for cell in np.ndindex(*theta.shape):
            squares[cell] = b * squares[cell] + (1 - b) * (g[cell] ** 2 + 1e-30)
            v = rows[cell[0]] * columns[cell[1]] / rows.mean() if factored else squares[cell]
            u[cell] = g[cell] / np.sqrt(v)
        if threshold is not None:
            u /= max(1, np.sqrt(np.mean(u**2)) / threshold)
        rate = lr * (max(1e-3, np.sqrt(np.mean(theta**2))) if relative else 1)
        move = rate * u
        if momentum is not None:
            move = kept_move = momentum * kept_move + (1 - momentum) * move
        theta = theta - decay * rate * theta - move
    return theta


@pytest.mark.parametrize(
    ("relative", "momentum", "decay", "threshold", "factored_from"),
    [
        (True, None, 0.0, 1.0, 1),
        (True, 0.9, 0.1, 0.5, 1),
        (False, None, 0.1, None, 1),
        (True, None, 0.0, 1.0, 5),  # the last dimension of a matrix is 4: none is factored
    ],
)
def test_adafactor_is_the_algorithm(relative, momentum, decay, threshold, factored_from):
    named = parameters()
    settings = {"lr": 0.05, "relative": relative, "momentum": momentum, "threshold": threshold}
    grads = gradients([p.shape for _, p in named])
    expected = [
        adafactor_steps(
            p.detach().double().numpy().copy(),
            [step[i] for step in grads],
            factored=p.ndim >= 2 and min(p.shape) >= factored_from,
            decay=decay if has_decay(name, p) else 0.0,
            **settings,
        )
        for i, (name, p) in enumerate(named)
    ]
    made = Adafactor(parameters=named, weight_decay=decay, factored_from=factored_from, **settings)
    for a, b in zip(run(made, named), expected, strict=True):
        torch.testing.assert_close(a.double(), torch.from_numpy(b), rtol=1e-5, atol=1e-6)
    assert ("rows" in made.state[named[0][1]]) == (factored_from == 1)


@pytest.mark.parametrize(
    ("settings", "moved"),
    [
        ({"lr": 1e-2}, [[0.0212132, -0.03], [0.0284605, 0.0268328]]),
        ({"lr": 1e-3, "relative": False}, [[0.0007746, -0.0010954], [0.0010392, 0.0009798]]),
    ],
)
def test_adafactors_first_step_worked_by_hand(settings, moved):
    p = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    p.grad = torch.tensor([[0.1, -0.2], [0.3, 0.4]])
    before = p.detach().clone()
    Adafactor(parameters=[("w", p)], factored_from=1, **settings).step()
    torch.testing.assert_close(before - p.detach(), torch.tensor(moved), rtol=0, atol=2e-6)


@pytest.mark.parametrize("relative", [True, False])
def test_adafactor_is_that_of_transformers(relative):
    """With relative steps theirs has the rate min(0.01, 1 / sqrt(t)), which is 0.01 here."""
    transformers = pytest.importorskip("transformers")
    named, same = parameters(), parameters()
    kernel = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(3))
    for each in (named, same):
        each.append(("backbone.kernel", torch.nn.Parameter(kernel.clone())))
    rate = {"relative_step": True} if relative else {"relative_step": False, "lr": 0.02}
    other = transformers.Adafactor(
        [p for _, p in same], scale_parameter=relative, warmup_init=False, **rate
    )
    lr = 0.01 if relative else 0.02
    made = Adafactor(parameters=named, lr=lr, relative=relative, factored_from=1)
    for a, b in zip(run(made, named, steps=9), run(other, same, steps=9), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_adafactor_keeps_a_row_and_a_column_of_a_matrix():
    p = torch.nn.Parameter(torch.randn(128, 256, generator=torch.Generator().manual_seed(0)))
    p.grad = torch.ones_like(p)
    optimizer = Adafactor(parameters=[("w", p)], lr=0.01)
    optimizer.step()
    kept = {name: tuple(value.shape) for name, value in optimizer.state[p].items()}
    assert kept == {"step": (), "rows": (128,), "columns": (256,)}


def muon(named, **kwargs):
    return Muon(
        parameters=named,
        **NUMBERS,
        momentum=0.95,
        matrices=["backbone.*"],
        fused=kwargs.get("fused", {}),
    )


@pytest.fixture
def torch_in_fp32(monkeypatch):
    """torch's Muon turns in bf16 on every device; ours not on a CPU."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)


def test_muon_is_torchs_on_matrices_and_adamw_on_the_rest(torch_in_fp32):
    named, same = parameters(), parameters()
    found = run(muon(named), named)
    other = torch.optim.Muon(
        [p for _, p in same[:2]],
        lr=0.01,
        weight_decay=0.1,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    rest = AdamW(parameters=same[2:], **NUMBERS)

    class Both:
        def step(self):
            other.step()
            rest.step()

    for a, b in zip(found, run(Both(), same), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_muon_of_matrices_alone(torch_in_fp32):
    """As torch's, where nothing is left for AdamW; a second optimizer goes on from its state."""
    named, same = parameters()[:2], parameters()[:2]
    made = muon(named)
    other = torch.optim.Muon(
        [p for _, p in same],
        lr=0.01,
        weight_decay=0.1,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    for a, b in zip(run(made, named), run(other, same), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert split_groups(made, named, lambda name: 0) == [named[0][0]]
    again = muon(named)
    again.load_state_dict(made.state_dict())
    run(again, named, steps=1)


def test_muon_takes_q_k_and_v_apart():
    named, same = parameters(), parameters()
    found = run(muon(named, fused={"*qkv.weight": 3}), named, steps=1)[1]
    grad = gradients([p.shape for _, p in same], steps=1)[0][1]
    for i in range(3):
        rows = slice(4 * i, 4 * i + 4)
        direction = orthogonalize(torch.from_numpy(grad[rows]).float())
        expected = same[1][1].detach()[rows] * (1 - 0.01 * 0.1) - 0.01 * 0.2 * 2 * direction
        torch.testing.assert_close(found[rows], expected, rtol=2e-2, atol=2e-4)


def test_orthogonalize_gives_singular_values_near_one():
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalize(x))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_groups():
    assert [has_decay(name, p) for name, p in parameters()] == [True, True, False, False]
    found = groups(parameters(), lr=1.0, weight_decay=0.1, scales={"*norm*": 0.5})
    assert [(len(g["params"]), g["initial_lr"], g["weight_decay"]) for g in found] == [
        (2, 1.0, 0.1),
        (1, 0.5, 0.0),
        (1, 1.0, 0.0),
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda n: AdamW(parameters=n, **NUMBERS, bias_correction=False),
        muon,
        lambda n: Lamb(parameters=n, **NUMBERS),
        lambda n: StableAdamW(parameters=n, **NUMBERS),
        lambda n: Momentum(parameters=n, lr=0.01, momentum=0.9),
        lambda n: Adagrad(parameters=n, lr=0.1, start=0.5, eps=1e-3, clip=3.0),
        lambda n: Adafactor(parameters=n, lr=0.1, momentum=0.9, factored_from=1),
    ],
)
def test_state_by_name_continues_exactly(make):
    named = parameters()
    optimizer = make(named)
    run(optimizer, named, steps=3)
    state = {name: value.clone() for name, value in optimizer_tensors(optimizer, named).items()}
    copies = [(name, torch.nn.Parameter(p.detach().clone())) for name, p in named]
    other = make(copies)
    load_optimizer_tensors(other, copies, state)
    for a, b in zip(run(optimizer, named, seed=7), run(other, copies, seed=7), strict=True):
        assert torch.equal(a, b)


def test_a_parameter_without_gradient_stays():
    named = parameters()
    for make in (
        lambda n: AdamW(parameters=n, **NUMBERS, bias_correction=False),
        muon,
        lambda n: Lamb(parameters=n, **NUMBERS),
        lambda n: StableAdamW(parameters=n, **NUMBERS),
        lambda n: Adafactor(parameters=n, lr=0.1, factored_from=1),
    ):
        before = named[0][1].detach().clone()
        optimizer = make(named)
        for _, p in named[1:]:
            p.grad = torch.ones_like(p)
        named[0][1].grad = None
        optimizer.step()
        assert torch.equal(named[0][1], before)


def test_wrong_numbers():
    with pytest.raises(ConfigError, match=r"optim.lr"):
        AdamW(parameters=parameters(), **{**NUMBERS, "lr": -1})
    with pytest.raises(ConfigError, match=r"optim.betas"):
        Lamb(parameters=parameters(), **{**NUMBERS, "betas": [0.9]})
    with pytest.raises(ConfigError, match=r"optim.matrices"):
        Muon(parameters=parameters(), **NUMBERS, momentum=0.9, matrices=["nothing.*"], fused={})
    for name, value in (
        *(("lr", -1.0), ("threshold", 0.0), ("momentum", 1.0), ("factored_from", 0)),
        *(("decay", float("nan")), ("eps", -1e-30)),
    ):
        with pytest.raises(ConfigError, match=rf"optim.{name}"):
            Adafactor(parameters=parameters(), **{"lr": 0.01, name: value})

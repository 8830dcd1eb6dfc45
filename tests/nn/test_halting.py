"""Adaptive computation time (Dehghani et al., 2019, sec. 2.2): a loop over single numbers, tokens
that no longer change, padding, token by token, the cost.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.padding import Padding
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.env import Env, Streams
from plmctl.nn.halting import Halting
from plmctl.nn.positions import EveryStep
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from plmctl.objectives.base import Facts, Objective, Output, Term
from plmctl.objectives.costs import charge
from plmctl.runs.contract.stand_in import TINY
from tests.nn.stacks import INNER, B, T, W, make_env, make_input, make_stack, run_stack

LAYERS = 6
VARIANTS = pytest.mark.parametrize("variant", ["basic", "accumulated"])


def make_halting_stack(variant: Any = "basic", spread: float = 2.0, **settings: Any) -> Stack:
    """Tokens take from 1 to all layers: the map of the unit is large."""
    halting = Halting(width=W, variant=variant)
    stack = make_stack(f"af@{LAYERS}", halting=halting, residual=PostNorm, **settings)
    generator = torch.Generator().manual_seed(5)
    halting.unit.weight.data = spread * torch.randn(1, W, generator=generator).double()
    halting.unit.bias.data.fill_(-1.0)
    return stack


def run(stack: Stack, x: Tensor, env: Env) -> tuple[Tensor, Tensor]:
    """([B, T, W] results, [B, T, 2] layers and remainders)."""
    streams, _ = stack(Streams({"text": x}), env)
    return streams["text"], streams["ponder"]


def loop(stack: Stack, x: Tensor, env: Env, variant: str) -> tuple[Tensor, Tensor]:
    """The same, one token and one number after the other."""
    assert stack.halting is not None
    unit, rows = stack.halting.unit, range(x.shape[0])
    tokens = [(b, t) for b in rows for t in range(x.shape[1])]
    h: dict[Any, Any] = dict.fromkeys(tokens, 0.0)
    r: dict[Any, Any] = dict.fromkeys(tokens, 0.0)
    n = dict.fromkeys(tokens, 0)
    y = {token: torch.zeros(W, dtype=x.dtype) for token in tokens}
    state, step = x, 0
    while step < LAYERS and any(
        float(torch.as_tensor(h[token]).detach()) < 0.99 for token in tokens
    ):
        weights: dict[Any, Any] = dict.fromkeys(tokens, 0.0)
        for token in tokens:
            if float(torch.as_tensor(h[token]).detach()) >= 1.0:
                continue
            p = 1 / (1 + torch.exp(-(unit.weight[0] @ state[token] + unit.bias[0])))
            n[token] += 1
            if float((h[token] + p).detach()) > 0.99:
                r[token] = 1 - h[token]
                weights[token], h[token] = r[token], h[token] + r[token]
            else:
                weights[token], h[token] = p, h[token] + p
        for letter in "af":
            block = stack.blocks[letter][0]  # type: ignore[index]
            state = block.norm_sum(state + block.cell(Streams({"text": state}), env))
        for token in tokens:
            kept = 1 if variant == "accumulated" else 1 - weights[token]
            y[token] = weights[token] * state[token] + kept * y[token]
        step += 1
    numbers = [torch.stack([torch.as_tensor(float(n[k])), torch.as_tensor(r[k])]) for k in tokens]
    shape = (*x.shape[:2], -1)
    return torch.stack([y[k] for k in tokens]).view(shape), torch.stack(numbers).view(shape)


@VARIANTS
def test_the_loop_over_numbers_with_its_gradients(variant: str) -> None:
    stack, env = make_halting_stack(variant), make_env()
    weigh = torch.randn(B, T, W, generator=torch.Generator().manual_seed(2)).double()
    results = []
    for compute in (run, partial(loop, variant=variant)):
        x = make_input()
        states, ponder = compute(stack, x, env)
        stack.zero_grad()
        ((states * weigh).sum() + 0.3 * ponder.sum()).backward()
        results.append([states, ponder, x.grad, *(p.grad for p in stack.parameters())])
    layers = results[0][1][..., 0]
    assert layers.min() == 1
    assert layers.max() == LAYERS
    assert len(layers.unique()) >= 4
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference.to(ours.dtype), rtol=1e-6, atol=1e-9)


@VARIANTS
def test_what_holds_for_every_token(variant: str) -> None:
    """N is a whole number of layers, 0 <= R <= 1, and the weights of a token that halts sum to 1:
    the accumulated sum of one state is this state.
    """
    halting, x = Halting(width=W, variant=variant), make_input()
    halting = halting.double()
    pondering = halting.begin(x)
    while halting.goes_on(pondering, None):
        pondering = halting.step(pondering, x, x)
    assert pondering.steps.equal(pondering.steps.round())
    assert pondering.steps.min() >= 1
    assert (pondering.remainder >= 0).all()
    assert (pondering.remainder <= 1).all()
    assert (pondering.halted == 1).all()
    if variant == "accumulated":
        torch.testing.assert_close(pondering.state, x, rtol=0, atol=1e-12)


def count_layers(stack: Stack) -> list[int]:
    """A list that grows by one with every layer that runs."""
    ran: list[int] = []
    stack.blocks["a"][0].cell.register_forward_hook(lambda *_: ran.append(1))  # type: ignore[index]
    return ran


def test_the_loop_ends_with_the_last_token_and_padding_is_no_token() -> None:
    """A row alone, and beside a longer one: the same states, and no more layers than it needs."""
    stack, x = make_halting_stack(), make_input().detach()
    length = 4
    seq = Seq(torch.zeros(B, T, dtype=torch.long), torch.tensor([T, length]))
    padded = BoundOp(Mask.of(Full() & Padding(), seq), EveryStep(width=W), torch.arange(T)[None])
    env = Env({"text": padded}, seq=seq)
    states, ponder = run(stack, x, env)
    short = Seq(torch.zeros(1, length, dtype=torch.long), torch.tensor([length]), full=True)
    alone = replace(padded, plan=Mask(None), positions=torch.arange(length)[None])
    ran = count_layers(stack)
    own, own_ponder = run(stack, x[1:, :length], Env({"text": alone}, seq=short))
    assert len(ran) == own_ponder[..., 0].max()
    torch.testing.assert_close(states[1:, :length], own, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ponder[1:, :length], own_ponder, rtol=1e-10, atol=1e-10)
    assert not ponder[1, length:].any()
    # padding that would never halt: the loop ends with the tokens
    stack.halting.unit.weight.data.zero_()  # type: ignore[union-attr]
    stack.halting.unit.bias.data.fill_(9.0)  # type: ignore[union-attr]
    with pytest.MonkeyPatch.context() as patch:
        step = Halting.step

        def never_at_padding(self: Halting, before: Any, x: Tensor, after: Tensor) -> Any:
            pondering = step(self, before, x, after)
            return replace(pondering, halted=pondering.halted * seq.real)

        patch.setattr(Halting, "step", never_at_padding)
        ran.clear()
        run(stack, x, env)
    assert len(ran) == 1


def test_recorded_layers_are_the_results_so_far() -> None:
    stack, x, env = make_halting_stack(spread=0.0), make_input().detach(), make_env()
    stack.halting.unit.bias.data.fill_(9.0)  # type: ignore[union-attr]  # all halt at once
    last, layers = run_stack(stack, x, env, record=True)
    assert len(layers) == LAYERS + 1
    assert layers[0].equal(x)
    for state in layers[1:]:
        torch.testing.assert_close(state, last, rtol=0, atol=1e-12)
    assert not stack.records  # attention: layers that do not run have none


def test_no_pass_knows_of_another() -> None:
    stack, env = make_halting_stack(), make_env()
    first, second = make_input().detach(), 3 * make_input().detach().flip(1)
    before = run(stack, first, env)
    run(stack, second, env)
    for once, again in zip(before, run(stack, first, env), strict=True):
        assert once.equal(again)
    assert not list(stack.buffers())


def test_layers_that_run_again_in_the_backward_pass() -> None:
    gradients = []
    for checkpointed in (False, True):
        stack, x = make_halting_stack(dropout=0.1).train(), make_input()
        stack.checkpointed = checkpointed
        torch.manual_seed(3)
        states, ponder = run(stack, x, make_env())
        (states.square().sum() + ponder.sum()).backward()
        gradients.append([x.grad, *(p.grad for p in stack.parameters())])
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again, rtol=1e-10, atol=1e-10)


def test_probabilities_are_summed_in_fp32() -> None:
    stack = make_halting_stack().to(torch.bfloat16)
    streams, _ = stack(Streams({"text": make_input(torch.bfloat16)}), make_env())
    assert streams["text"].dtype == torch.bfloat16
    assert streams["ponder"].dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        halting = Halting(width=W)
        x = torch.randn(1, 3, W)
        assert halting.step(halting.begin(x), x, x).halted.dtype == torch.float32


@pytest.mark.parametrize("layers", [1, 4])
def test_tied_layers_of_torch_and_signals_before_each(layers: int) -> None:
    """Post-norm layers of torch with the same weights: `x + P^t`, then the layer."""
    torch.manual_seed(0)
    ours = make_stack(f"af@{layers}", residual=PostNorm, more=relu_cell())
    assert {len(blocks) for blocks in ours.blocks.values()} == {1}  # type: ignore[arg-type]
    theirs = nn.TransformerEncoderLayer(
        W, 2, INNER, dropout=0.0, activation="relu", batch_first=True, dtype=torch.float64
    )
    a, f = (ours.blocks[letter][0] for letter in "af")  # type: ignore[index]
    theirs.load_state_dict(
        {
            "self_attn.in_proj_weight": a.cell.qkv.weight,
            "self_attn.in_proj_bias": a.cell.qkv.bias,
            **{f"self_attn.out_proj.{k}": p for k, p in a.cell.out.named_parameters()},
            **{f"norm1.{k}": p for k, p in a.norm_sum.named_parameters()},
            **{f"linear1.{k}": p for k, p in f.cell.up.named_parameters()},
            **{f"linear2.{k}": p for k, p in f.cell.down.named_parameters()},
            **{f"norm2.{k}": p for k, p in f.norm_sum.named_parameters()},
        }
    )
    x = make_input().detach()
    seq = Seq(torch.zeros(B, T, dtype=torch.long), torch.full((B,), T), full=True)
    op = BoundOp(Mask(None), EveryStep(width=W), torch.arange(T)[None])
    states, _ = run_stack(ours, x, Env({"text": op}, seq=seq))
    for t in range(1, layers + 1):
        signal = torch.zeros(T, W, dtype=torch.float64)
        for i in range(1, T + 1):
            for j in range(W // 2):
                wave = 10000 ** (2 * j / W)
                number, time = torch.tensor(i / wave), torch.tensor(t / wave)
                signal[i - 1, 2 * j] = number.sin() + time.sin()
                signal[i - 1, 2 * j + 1] = number.cos() + time.cos()
        x = theirs(x + signal)
    torch.testing.assert_close(states, x, rtol=0, atol=2e-5)


def relu_cell() -> dict[str, Any]:
    return {"f": partial(FeedForward, width=W, inner_width=INNER, activation="relu")}


def test_learned_signals_of_layers_and_moved_positions() -> None:
    torch.manual_seed(0)
    position, x = EveryStep(width=W, learned_steps=2, shift=5), torch.zeros(1, 3, W)
    places = torch.arange(3)[None]
    position.eval()
    expected = position.waves(places) + position.steps.weight[1]  # type: ignore[union-attr]
    assert position.every_step(x, 1, places).equal(expected)
    assert position.embed(x, places) is x
    with pytest.raises(ConfigError, match=r"position\.learned_steps=2: at least 3"):
        position.every_step(x, 2, places)
    position.train()
    moved = {
        by
        for _ in range(60)
        for by in range(9)
        if position.every_step(x, 1, places).allclose(
            position.waves(places + by) + position.steps.weight[1]  # type: ignore[union-attr]
        )
    }
    assert moved <= set(range(6))
    assert len(moved) >= 4


SMALL = ["size=tiny", "size.width=16", "size.inner_width=32", "data.path=a"]
TARGET = "plmctl.nn.halting.Halting"


def words_of(recipe: str) -> list[str]:
    two = ["data.target_path=b", f"model.encoder.stack.halting={{_target_: {TARGET}}}"]
    two += [f"model.decoder.stack.halting={{_target_: {TARGET}}}"]
    two += ["model.encoder.stack.layout=at@5", "model.decoder.stack.layout=acz@5"]
    one = [f"model.stack.halting={{_target_: {TARGET}}}", "model.stack.layout=at@5"]
    return [*SMALL, "position=every_step", *(two if recipe == "transformer" else one)]


def make_model(recipe: str) -> Any:
    cfg = compose("pretrain", recipe, words_of(recipe))
    model = build_model(cfg, vocab_size=40, vocab=TINY, seed=0).double()
    for part in model.modules():
        if isinstance(part, Halting):
            assert part.unit.bias == 1  # whatever the initializer does with biases
            part.unit.weight.data.mul_(1.5)
            part.unit.bias.data.fill_(0)
    return cfg, model


def make_batch(recipe: str, rows: slice = slice(None)) -> Batch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 40, (4, 9), generator=generator)[rows]
    key, lengths = torch.arange(4)[rows], torch.tensor([9, 6, 7, 2])[rows]
    if recipe == "transformer":
        seqs = {"source": Seq(ids, lengths), "target": Seq(ids.flip(1), lengths.flip(0))}
        return Batch(key, seqs)
    return Batch(key, {"text": Seq(ids, lengths)})


@torch.no_grad()
@pytest.mark.parametrize("recipe", ["gpt2", "transformer"])
def test_token_by_token_equals_all_at_once(recipe: str) -> None:
    _, model = make_model(recipe)
    model.eval()
    batch = make_batch(recipe, slice(1))
    whole = model(batch)
    name = "target" if recipe == "transformer" else "text"
    assert len(whole.pondered[name][..., 0].unique()) >= 2
    ids = batch.seqs[name].ids
    if recipe == "transformer":
        ids = torch.cat([torch.full((1, 1), model.backbone.start), ids[:, :-1]], 1)
    state = model.backbone.fresh_cache(batch)
    for t in range(ids.shape[1]):
        token = Seq(ids[:, t : t + 1], torch.ones(1, dtype=torch.long), full=True)
        step = model(Batch(torch.arange(1), {name: token}), state)
        torch.testing.assert_close(step.last[0, 0], whole.last[0, t], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(step.pondered[name][0, 0], whole.pondered[name][0, t])


def test_weights_do_not_depend_on_the_number_of_layers() -> None:
    sizes = {
        sum(part.numel() for part in build_model(cfg, vocab_size=40, vocab=TINY).parameters())
        for layers in (2, 9)
        for cfg in [
            compose("pretrain", "gpt2", [*words_of("gpt2"), f"model.stack.layout=at@{layers}"])
        ]
    }
    assert len(sizes) == 1


@pytest.mark.parametrize("recipe", ["gpt2", "transformer"])
def test_the_cost_is_a_term_over_real_tokens(recipe: str) -> None:
    cfg, model = make_model(recipe)
    model.eval()
    objective = build_objective(cfg.objective, model, TINY, seed=cfg.seed)
    batch = with_targets(make_batch(recipe), recipe)
    out = objective(model, batch)
    names = {"ponder", "ponder_source"} if recipe == "transformer" else {"ponder"}
    assert objective.facts.terms >= names
    counts, pondered = objective.counts(batch), model(batch).pondered
    for name in names:
        key = "source" if name.endswith("source") else "target"
        key = key if recipe == "transformer" else "text"
        rows = zip(pondered[key], batch.seqs[key].length.tolist(), strict=True)
        own = [row[:length] for row, length in rows]
        assert counts[name] == sum(map(len, own))
        torch.testing.assert_close(out.terms[name].total, sum(row.sum() for row in own))
        assert out.terms[name].weight == 0.01
        total, count = out.logs[name.replace("ponder", "layers")]
        assert count == counts[name]
        torch.testing.assert_close(total, sum(row[:, 0].sum() for row in own))
    out.terms["ponder"].total.backward()
    stack = model.backbone.decoder.stack if recipe == "transformer" else model.backbone.stack
    assert stack.halting.unit.weight.grad.abs().sum() > 0


def with_targets(batch: Batch, recipe: str) -> Batch:
    name = "seq2seq" if recipe == "transformer" else "clm"
    targets = Targets(torch.tensor([0, 1]), torch.tensor([11, 12]), 2)
    return replace(batch, targets={name: targets}, counts={name: 2, "rows": 4})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reversible=true"], r"model\.stack\.halting.*two streams.*reversible=false"),
        (["halting.epsilon=0"], r"model\.stack\.halting\.epsilon=0"),
        (["halting.weight=-1"], r"model\.stack\.halting\.weight=-1"),
        (["halting.variant=best"], r"variant"),
    ],
)
def test_bad_settings_are_named(words: list[str], message: str) -> None:
    more = [f"++model.stack.{word}" for word in words]
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        build_small("gpt2", [*words_of("gpt2"), *more])


@pytest.mark.parametrize("recipe", ["xlnet", "transformer_xl"])
def test_models_that_cannot_halt_say_so(recipe: str) -> None:
    halting = f"++model.stack.halting={{_target_: {TARGET}}}"
    with pytest.raises(ConfigError, match=r"model\.stack\.halting: null"):
        build_small(recipe, [*SMALL, halting])


def build_small(recipe: str, words: list[str]) -> None:
    build_model(compose("pretrain", recipe, words), vocab_size=40, vocab=TINY)


class Asks(Objective):
    """One number of the states; `outside`: it runs the backbone and not the model."""

    facts = Facts(terms=frozenset({"asked"}))

    def __init__(self, *, outside: bool = False) -> None:
        super().__init__()
        self.outside = outside

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"asked": 1}

    def forward(self, model: Any, batch: Batch, state: Any = None) -> Output:
        hidden = (model.backbone if self.outside else model)(batch)
        return Output({"asked": Term(hidden.last.square().mean())})


def test_any_objective_of_such_a_model_has_the_cost() -> None:
    """As in fine-tuning; two passes over one batch are one."""
    _, model = make_model("gpt2")
    model.eval()
    batch = make_batch("gpt2")
    objective = charge(model, Asks())
    assert objective.facts.terms == {"asked", "ponder"}
    assert objective.counts(batch) == {"asked": 1, "ponder": 24}
    out = objective(model, batch)
    torch.testing.assert_close(out.terms["ponder"].total, model(batch).pondered["text"].sum())
    with pytest.raises(ConfigError, match="does not run the model as a whole"):
        charge(model, Asks(outside=True))(model, batch)
    plain = build_model(compose("pretrain", "gpt2", SMALL), vocab_size=40, vocab=TINY)
    asks = Asks()
    assert charge(plain, asks) is asks

"""ELECTRA and its ablations against loops over positions in float64; what learns from what; how
samples are drawn.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats
from torch.nn import functional as F
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.artifacts.cost import cost, own_parameters
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.core.draws import whole_at
from plmctl.core.errors import UsageError
from plmctl.nn.tables import count
from plmctl.objectives.rtd import RTD
from plmctl.runs.contract.contract import check_contract
from tests.objectives.electra_parts import MASK, REAL, SMALL, B, T, V, made, one_batch

EXACT = {"atol": 1e-10, "rtol": 1e-10}


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generator draws these tokens: right, wrong, wrong, right, wrong, wrong, and two for
    spare slots.
    """
    batch, _ = one_batch()
    answers = batch.targets["mlm"].ids.tolist()
    drawn = [
        token if place in (0, 3) else 5 + (token - 4) % 6 for place, token in enumerate(answers[:6])
    ] + [9, 9]
    from plmctl.objectives.generator import Generator

    monkeypatch.setattr(
        Generator, "sample", lambda self, features, ids, numbers: torch.tensor(drawn)
    )
    return drawn


def corrupted(drawn: list[int]) -> torch.Tensor:
    batch, text = one_batch()
    for place, token in zip(batch.targets["mlm"].index.tolist()[:6], drawn, strict=False):
        text[place // T, place % T] = token
    return text


def states(backbone: Any, ids: torch.Tensor) -> torch.Tensor:
    return backbone(Batch(torch.arange(B), {"text": Seq(ids, torch.tensor(REAL))})).last


def generator_loss(mix: Any, name: str) -> float:
    batch, text = one_batch()
    generator = mix.parts[name].generator
    logits, total = generator.head(states(generator.backbone, batch.text.ids)), 0.0
    for place in batch.targets["mlm"].index.tolist()[:6]:
        row, column = divmod(place, T)
        total -= math.log(logits[row, column].softmax(-1)[text[row, column]].item())
    return total


@pytest.mark.parametrize("all_tokens", [True, False])
def test_electra_is_the_sum_over_positions(all_tokens: bool, fixed: list[int]) -> None:
    _, model, mix = made(f"objective.electra.all_tokens={all_tokens}")
    batch, text = one_batch()
    out = mix(model, batch)
    changed = corrupted(fixed)
    assert (changed != text).sum() == 4  # of six drawn, two are right
    head = model.heads["discriminator"]
    hidden, total, replaced = states(model.backbone, changed), 0.0, 0
    chosen = batch.targets["mlm"].index.tolist()[:6]
    for row in range(B):
        for column in range(REAL[row]):
            if all_tokens or row * T + column in chosen:
                h = F.gelu(hidden[row, column] @ head.dense.weight.T + head.dense.bias)
                p = torch.sigmoid(h @ head.linear.weight[0] + head.linear.bias[0]).item()
                different = changed[row, column] != text[row, column]
                replaced += int(different)
                total -= math.log(p if different else 1 - p)
    assert out.terms["rtd"].total.item() == pytest.approx(total, rel=1e-10)
    assert out.terms["mlm"].total.item() == pytest.approx(generator_loss(mix, "electra"), rel=1e-10)
    assert (out.terms["rtd"].weight, out.terms["mlm"].weight) == (50, 1)
    assert mix.counts(batch) == {"mlm": 6, "rtd": sum(REAL) if all_tokens else 6}
    assert (out.logs["replaced"][0].item(), out.logs["replaced"][1]) == (
        replaced,
        mix.counts(batch)["rtd"],
    )
    assert out.logs["recall/rtd"][1].item() == 4
    asked = [label for label in out.answers["rtd"].tolist() if label != IGNORE]
    assert (sum(asked), len(asked)) == (replaced, mix.counts(batch)["rtd"])


def test_samples_stand_where_they_were_asked_and_nowhere_else(fixed: list[int]) -> None:
    _, _, mix = made()
    batch, text = one_batch()
    drawn = mix.parts["electra"].generator(batch)
    assert torch.equal(drawn.batch.text.ids, corrupted(fixed))
    assert torch.equal(drawn.original, text)
    assert torch.equal(drawn.replaced, corrupted(fixed) != text)
    assert not (drawn.batch.text.ids == MASK).any()


def test_a_spare_slot_does_not_overwrite_a_chosen_first_place() -> None:
    targets = Targets(torch.tensor([0, 3, 0]), torch.tensor([7, 8, IGNORE]), 2)
    assert targets.write_into(
        torch.zeros(2, 2, dtype=torch.int64), torch.tensor([5, 6, 9])
    ).tolist() == [[5, 0], [0, 6]]


def grads(parameters: Any) -> float:
    return sum(float(p.grad.abs().sum()) for p in parameters if p.grad is not None)


def test_nothing_flows_from_the_model_into_the_generator() -> None:
    _, model, mix = made("objective.electra.generator.tied=none")
    out = mix(model, one_batch()[0])
    out.terms["rtd"].total.backward()
    assert grads(mix.parameters()) == 0
    assert grads(model.parameters()) > 0
    model.zero_grad()
    out = mix(model, one_batch()[0])
    out.terms["mlm"].total.backward()
    assert grads(model.parameters()) == 0
    assert grads(mix.parameters()) > 0


def test_only_chosen_places_teach_the_generator_and_no_padding_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, model, mix = made("objective.electra.generator.tied=none")
    kept: dict[str, torch.Tensor] = {}

    def record(name: str, module: Any) -> None:
        module.final_norm.register_forward_hook(
            lambda _, __, out: (out.retain_grad(), kept.update({name: out}))[0]
        )

    record("generator", mix.parts["electra"].generator.backbone.stack)
    record("model", model.backbone.stack)
    batch, _ = one_batch()
    out = mix(model, batch)
    (out.terms["mlm"].total + out.terms["rtd"].total).backward()
    read = {name: state.grad.abs().sum(-1) > 0 for name, state in kept.items()}
    chosen = torch.zeros(B * T, dtype=torch.bool)
    chosen[batch.targets["mlm"].index[:6]] = True
    assert torch.equal(read["generator"], chosen.view(B, T))
    assert torch.equal(read["model"], batch.text.real)


@pytest.mark.parametrize(
    ("settings", "temperature"),
    [([], 1.0), (["temperature=0.5"], 0.5), (["avoid_originals=true"], 1.0)],
)
def test_samples_follow_the_softmax(settings: list[str], temperature: float) -> None:
    _, _, mix = made(*(f"objective.electra.generator.{word}" for word in settings))
    generator = mix.parts["electra"].generator
    features = torch.randn(
        1, generator.backbone.width, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    numbers = whole_at(torch.tensor(5), torch.arange(20000))
    drawn = generator.sample(features.expand(20000, -1), torch.full((20000,), 6), numbers)
    logits = generator.head(features)[0] / temperature
    if "avoid_originals=true" in settings:
        logits[6] = -math.inf
    expected = logits.softmax(-1).detach().numpy() * 20000
    found = torch.bincount(drawn, minlength=V).numpy()
    likely = expected > 0
    assert not found[~likely].any()
    assert stats.chisquare(found[likely], expected[likely]).pvalue > 1e-3
    sums = expected.cumsum() / 20000
    for number, token in zip(numbers[:500].tolist(), drawn[:500].tolist(), strict=True):
        assert token == next(v for v in range(V) if sums[v] > number / 2**40)


def test_samples_are_those_of_a_row_and_a_position() -> None:
    """The same tokens without other rows, without padding, and with logits held in pieces."""
    _, _, mix = made()
    generator = mix.parts["electra"].generator.eval()
    batch, _ = one_batch()
    mlm, whole = batch.targets["mlm"], generator(batch).batch.text.ids
    for row, real in enumerate(REAL):
        mine = mlm.index[:6] // T == row
        text = Seq(batch.text.ids[row : row + 1, :real], torch.tensor([real]))
        targets = Targets(mlm.index[:6][mine] - row * T, mlm.ids[:6][mine], int(mine.sum()))
        draw = {"draw": batch.values["draw"][row : row + 1]}
        one = Batch(torch.tensor([row]), {"text": text}, {"mlm": targets}, values=draw)
        assert torch.equal(generator(one).batch.text.ids[0], whole[row, :real])
    generator.head.chunk = 2 * V
    assert torch.equal(generator(batch).batch.text.ids, whole)
    other = replace(batch, values={"draw": batch.values["draw"] + 1})
    assert not torch.equal(generator(other).batch.text.ids, whole)


def test_scores_that_are_not_finite_give_a_token() -> None:
    _, _, mix = made()
    generator = mix.parts["electra"].generator
    features = torch.full((3, generator.backbone.width), math.nan, dtype=torch.float64)
    numbers = torch.tensor([0, 2**39, 2**40 - 1])
    assert generator.sample(features, torch.zeros(3, dtype=torch.int64), numbers).max() < V


def test_replace_mlm_asks_the_model_at_replaced_places(fixed: list[int]) -> None:
    _, model, mix = made("objective=[replace_mlm]")
    batch, text = one_batch()
    out = mix(model, batch)
    logits, total = model.heads["mlm"](states(model.backbone, corrupted(fixed))), 0.0
    for place in batch.targets["mlm"].index.tolist()[:6]:
        row, column = divmod(place, T)
        total -= math.log(logits[row, column].softmax(-1)[text[row, column]].item())
    assert out.terms["replace_mlm"].total.item() == pytest.approx(total, rel=1e-10)
    assert out.terms["mlm"].total.item() == pytest.approx(
        generator_loss(mix, "replace_mlm"), rel=1e-10
    )
    assert mix.counts(batch) == {"mlm": 6, "replace_mlm": 6}


def test_all_tokens_mlm_copies_or_knows(fixed: list[int]) -> None:
    _, model, mix = made("objective=[all_tokens_mlm]")
    batch, text = one_batch()
    out = mix(model, batch)
    changed = corrupted(fixed)
    hidden, total = states(model.backbone, changed), 0.0
    logits, gate = model.heads["mlm"](hidden), model.heads["copy"].linear
    for row in range(B):
        for column in range(REAL[row]):
            c = torch.sigmoid(hidden[row, column] @ gate.weight[0] + gate.bias[0])
            p = (1 - c) * logits[row, column].softmax(-1)
            p[changed[row, column]] += c
            assert p.sum().item() == pytest.approx(1)
            total -= math.log(p[text[row, column]].item())
    assert out.terms["all_tokens_mlm"].total.item() == pytest.approx(total, rel=1e-10)
    assert mix.counts(batch) == {"mlm": 6, "all_tokens_mlm": sum(REAL)}
    out.terms["all_tokens_mlm"].total.backward()
    assert grads(model.heads["copy"].parameters()) > 0
    # logits of two places at once: the same loss, the same gradient
    model.heads["mlm"].chunk = 2 * V
    before = model.heads["mlm"].dense.weight.grad.clone()
    model.zero_grad()
    mix(model, batch).terms["all_tokens_mlm"].total.backward()
    assert_close(model.heads["mlm"].dense.weight.grad, before, **EXACT)


def test_reinforce_climbs_the_expected_reward() -> None:
    """The surrogate's gradient, averaged over all samples by their probability, is that of the
    expected reward.
    """
    _, _, mix = made("objective=[adversarial]", "objective.adversarial.generator.temperature=0.7")
    adversarial = mix.parts["adversarial"]
    generator, width = adversarial.generator, adversarial.generator.backbone.width
    features = torch.randn(
        1,
        width,
        generator=torch.Generator().manual_seed(3),
        dtype=torch.float64,
        requires_grad=True,
    )
    reward = torch.randn(V, generator=torch.Generator().manual_seed(4), dtype=torch.float64).abs()
    p = (generator.head(features)[0] / 0.7).softmax(-1)
    (wanted,) = torch.autograd.grad(-(p * reward).sum(), features, retain_graph=True)
    found = torch.zeros_like(features)
    batch = Batch(
        torch.arange(1),
        {},
        {"mlm": Targets(torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64), 1)},
    )
    from plmctl.objectives.generator import Drawn

    for token in range(V):
        drawn = Drawn(features, torch.tensor([token]), batch, torch.zeros(1, 1), torch.zeros(1, 1))
        (one,) = torch.autograd.grad(
            adversarial.policy(drawn, reward[token][None])["policy"].total, features
        )
        found += p[token].detach() * one
    assert_close(found, wanted, **EXACT)


def test_the_adversary_sees_rewards_at_its_own_places(fixed: list[int]) -> None:
    _, model, mix = made("objective=[adversarial]")
    adversarial, (batch, text) = mix.parts["adversarial"], one_batch()
    out = mix(model, batch)
    changed = corrupted(fixed)
    logits = model.heads["discriminator"](states(model.backbone, changed))
    features = states(adversarial.generator.backbone, batch.text.ids)
    policy = baseline = 0.0
    for place in batch.targets["mlm"].index.tolist()[:6]:
        row, column = divmod(place, T)
        right = torch.sigmoid(
            logits[row, column] * (1 if changed[row, column] != text[row, column] else -1)
        ).item()
        guess = torch.sigmoid(adversarial.baseline(features[row, column])).item()
        p = (
            adversarial.generator.head(features[row, column])
            .softmax(-1)[changed[row, column]]
            .item()
        )
        policy -= (-math.log(right) + math.log(guess)) * math.log(p)
        baseline -= right * math.log(guess) + (1 - right) * math.log(1 - guess)
    assert out.terms["policy"].total.item() == pytest.approx(policy, rel=1e-10)
    assert out.terms["baseline"].total.item() == pytest.approx(baseline, rel=1e-10)
    assert mix.counts(batch) == {"policy": 6, "baseline": 6, "rtd": sum(REAL)}
    out.terms["baseline"].total.backward(retain_graph=True)
    assert grads(adversarial.generator.parameters()) == 0
    out.terms["policy"].total.backward()
    assert grads(model.heads.parameters()) == 0
    assert grads(adversarial.generator.head.parameters()) > 0


def test_two_stages() -> None:
    _, model, mix = made("objective=[two_stage]", "objective.two_stage.updates=3")
    stage, (batch, _) = mix.parts["two_stage"], one_batch()
    assert set(mix.train()(model, batch).terms) == {"mlm"}
    assert set(mix.eval()(model, batch).terms) == {"mlm", "rtd"}
    mix.train().after_step(model, 2)
    assert not model.backbone.embedding.token.weight.equal(
        stage.generator.backbone.embedding.token.weight
    )
    mix.after_step(model, 3)
    for name, parameter in stage.generator.backbone.named_parameters():
        assert model.backbone.get_parameter(name).equal(parameter)
        assert model.backbone.get_parameter(name) is not parameter
    out = mix(model, batch)
    (out.terms["rtd"].total + out.terms["mlm"].total).backward()
    assert grads(stage.generator.parameters()) == 0
    assert grads(model.backbone.parameters()) > 0
    _, _, again = made("objective=[two_stage]", "objective.two_stage.updates=3")
    again.load_state_dict(mix.state_dict())
    assert again.parts["two_stage"].second  # a resumed run knows


def test_rtd_is_the_sum_over_asked_tokens() -> None:
    _, model, _ = made()
    labels = torch.tensor(
        [
            [IGNORE, 0, 1, 0, 1, IGNORE],
            [IGNORE, 1, 0, IGNORE, 0, 0],
            [IGNORE, 0, 0, 1, IGNORE, IGNORE],
        ]
    )
    index = (labels != IGNORE).flatten().nonzero()[:, 0]
    targets = Targets(
        torch.cat([index, torch.zeros(2, dtype=torch.int64)]),
        torch.cat([labels.flatten()[index], torch.full((2,), IGNORE)]),
        len(index),
    )
    batch, text = one_batch()
    batch = Batch(
        batch.key,
        {"text": Seq(text, batch.text.length)},
        {"replaced": targets},
        counts={"replaced": len(index)},
    )
    out, total = RTD()(model, batch), 0.0
    logits = model.heads["discriminator"](states(model.backbone, text))
    for row in range(B):
        for column in range(T):
            if labels[row, column] != IGNORE:
                p = torch.sigmoid(logits[row, column]).item()
                total -= math.log(p if labels[row, column] else 1 - p)
    assert out.terms["rtd"].total.item() == pytest.approx(total, rel=1e-10)
    assert RTD().counts(batch) == {"rtd": len(index)}


def shared_parts(tied: str, *words: str) -> tuple[set[str], Any, Any]:
    _, model, mix = made(f"objective.electra.generator.tied={tied}", *words)
    own = {id(p): name for name, p in model.backbone.named_parameters()}
    return (
        {own[id(p)] for p in mix.parts["electra"].generator.parameters() if id(p) in own},
        model,
        mix,
    )


def test_what_is_shared() -> None:
    tables = {"embedding.token.weight"}
    every = tables | {
        "embedding.segment.weight",
        "embedding.norm.weight",
        "embedding.norm.bias",
        "position.table.weight",
    }
    assert shared_parts("none")[0] == set()
    assert shared_parts("tokens")[0] == tables
    assert shared_parts("all")[0] == every
    whole, model, _ = shared_parts("weights", "objective.electra.generator.share=1")
    assert whole == set(dict(model.backbone.named_parameters()))


def test_the_published_small_model_and_its_generator() -> None:
    """14M parameters (table 1) counted by hand; the generator's are counted once, and in the
    FLOPs.
    """
    V, E, H, L, F_, G = 30522, 128, 256, 12, 1024, 64
    cfg = compose("pretrain", "electra", ["size=electra_small", "model.embedding.table_width=128"])
    with torch.device("meta"):
        cfg = cfg.replace({"format.max_length": 512})
        model = build_model(cfg, vocab_size=V)
        mix = build_objective(cfg.objective, model, vocab_size=V, seed=cfg.seed)
    layers = lambda h, f: 12 * (4 * (h * h + h) + 2 * h * f + f + h + 4 * h)  # noqa: E731
    tables = (V + 512 + 2) * E + 2 * E
    assert count(model.backbone) == tables + E * H + H + layers(H, F_) == 13_483_008
    assert count(model) == 13_483_008 + H * H + H + H + 1 == 13_549_057
    head = G * E + E + 2 * E + V
    assert own_parameters(mix, model) == E * G + G + layers(G, 4 * G) + head
    found = cost(model, length=128, predicted={"mlm": 0.15}, objective=mix)
    assert found.total_parameters == count(model) + own_parameters(mix, model)
    body = lambda h, f: L * (4 * h * h + 2 * h * f + 2 * 128 * h) + E * h  # noqa: E731
    macs = body(H, F_) + H * H + H + body(G, 4 * G) + 0.15 * (G * E + V * E)
    assert found.flops_per_token == pytest.approx(6 * macs)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["objective.electra.generator.share=1.5"], "0 < share <= 1"),
        (["objective.electra.generator.share=0"], "0 < share <= 1"),
        (["objective.electra.generator.tied=weights"], "share=1"),
        (["objective.electra.generator._given_.width=64"], "no wider"),
        (["objective.electra.generator.backbone.embedding.segments=0"], "embedding.segment"),
        (["objective.electra.generator.temperature=0"], "more than 0"),
        (["objective=[two_stage]", "objective.two_stage.updates=0"], "1 or more"),
        (["objective=[two_stage]", "objective.two_stage.generator.share=0.5"], "share=1"),
        (["objective=[two_stage]", "objective.two_stage.generator.tied=all"], "tied=none"),
    ],
)
def test_what_cannot_work_is_said_before_it_begins(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_contract(compose("pretrain", "electra", [*SMALL, *words]))


def test_first_weights_follow_the_seed_alone() -> None:
    found = []
    for state in (1, 2):
        torch.manual_seed(state)
        cfg = compose("pretrain", "electra", SMALL)
        model = build_model(cfg, vocab_size=V, seed=0)
        before = torch.get_rng_state()
        mix = build_objective(cfg.objective, model, vocab_size=V, seed=cfg.seed)
        assert torch.equal(torch.get_rng_state(), before)
        found.append({name: p.detach() for name, p in mix.named_parameters()})
    assert all(found[0][name].equal(found[1][name]) for name in found[0])
    weight = found[0]["parts.electra.generator.backbone.stack.blocks.a.0.cell.qkv.weight"]
    assert 0 < weight.abs().max() <= 0.04  # truncated at two standard deviations of 0.02

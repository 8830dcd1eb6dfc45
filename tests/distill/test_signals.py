"""Every signal against loops from its definition, in float64; and the gradients that each of
them gives.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.distill import logits as soft
from plmctl.distill.attention import AttentionKL, AttentionMSE
from plmctl.distill.base import Logits, Predictions
from plmctl.distill.hidden import HiddenCosine, HiddenMean, HiddenMSE, HiddenVariance, Patient
from plmctl.distill.logits import LogitMSE, SoftTargets
from plmctl.distill.relations import MiniLM, MiniLMv2
from tests.distill.lessons import LENGTHS, V, answers, batch, pair

REAL = [(b, i) for b, n in enumerate(LENGTHS) for i in range(n)]


def softmax(scores):
    top = max(scores)
    exps = [math.exp(s - top) for s in scores]
    return [e / sum(exps) for e in exps]


def kl(teacher, student):
    return sum(
        p * math.log(p / q)
        for p, q in zip(softmax(teacher), softmax(student), strict=True)
        if p > 0
    )


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def seen(side, layer, b, h, i):
    """The scores of one query, as a list: the keys of row b only."""
    return side.recorded["scores"][layer][b, h, i, : LENGTHS[b]].tolist()


def taught(signal, small, teacher, given):
    """(total by name, student's answers, teacher's) for the same batch."""
    with torch.no_grad():
        own, other = answers(small, given), answers(teacher.model, given)
        return (
            {name: float(term.total) for name, term in signal(own, other, given).terms.items()},
            own,
            other,
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["ce", "kl"])
@pytest.mark.parametrize("places", ["predicted", "all"])
@pytest.mark.parametrize("chunk", [1 << 24, 3 * V])
def test_soft_targets(form, places, chunk, monkeypatch):
    monkeypatch.setattr(soft, "CHUNK", chunk)
    small, _, teacher = pair()
    given, tau = batch(), 3.0
    own, other = answers(small, given, places), answers(teacher.model, given, places)
    targets = given.targets["mlm"]
    chosen = (
        [divmod(int(i), 7) for i in targets.index[: targets.count]]
        if places == "predicted"
        else REAL
    )
    expected = 0.0
    for b, i in chosen:
        t, s = (m.heads["mlm"](m(given).last[b, i]).tolist() for m in (teacher.model, small))
        p, q = softmax([x / tau for x in t]), softmax([x / tau for x in s])
        expected += tau**2 * sum(
            a * ((math.log(a) if form == "kl" else 0) - math.log(c))
            for a, c in zip(p, q, strict=True)
        )
    term = SoftTargets(weight=0.5, temperature=tau, form=form)(own, other, given).terms["mlm"]
    assert float(term.total.detach()) == pytest.approx(expected, rel=1e-10)
    assert term.weight == 0.5
    assert (targets.count, len(targets.index)) == (5, 12)  # spare slots do not count


def test_chunks_have_the_gradient_of_the_whole(monkeypatch):
    small, _, teacher = pair()
    found = []
    for chunk in (1 << 24, 2 * V):
        monkeypatch.setattr(soft, "CHUNK", chunk)
        small.zero_grad()
        term = SoftTargets(weight=1.0, temperature=2.0)(
            answers(small, batch()), answers(teacher.model, batch()), batch()
        )
        term.terms["mlm"].total.backward()
        found.append(torch.cat([p.grad.flatten() for p in small.parameters()]))
    assert torch.allclose(*found, atol=1e-12)
    assert found[0].abs().max() > 1e-3


def of(z, asked=None):
    return Predictions(
        torch.ones(1, 1),
        {"class": Logits(z, torch.ones(len(z), dtype=torch.bool) if asked is None else asked)},
    )


def test_logit_mse_leaves_out_padding_and_places_without_an_answer():
    lowest = torch.finfo(torch.float64).min
    s = torch.tensor([[1.0, 2.0, 4.0], [0.0, 1.0, lowest], [9.0, 9.0, 9.0]], dtype=torch.float64)
    t = torch.tensor([[0.0, 4.0, 1.0], [2.0, 2.0, lowest], [0.0, 0.0, 0.0]], dtype=torch.float64)
    term = LogitMSE(weight=1.0)(of(s, torch.tensor([True, True, False])), of(t), None).terms[
        "class"
    ]
    assert float(term.total) == pytest.approx((1 + 4 + 9) / 3 + (4 + 1) / 2)


@pytest.mark.parametrize("form", ["ce", "kl"])
def test_soft_targets_are_the_same_under_autocast(form):
    z, other = (
        torch.randn(8, 1000, generator=torch.Generator().manual_seed(seed)) + 5 for seed in (0, 1)
    )
    found = []
    for enabled in (False, True):
        s = z.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            total = (
                SoftTargets(weight=1.0, temperature=2.0, form=form)(of(s), of(other), None)
                .terms["class"]
                .total
            )
        total.backward()
        found.append((total.detach(), s.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_padding_of_spans_leaves_soft_targets_finite_below_one():
    s = torch.tensor([[1.0, 2.0, torch.finfo(torch.float32).min]], requires_grad=True)
    term = SoftTargets(weight=1.0, temperature=0.5, form="ce")(
        of(s), of(s.detach() + torch.tensor([1.0, 0.0, 0.0])), None
    )
    term.terms["class"].total.backward()
    assert term.terms["class"].total.isfinite()
    assert s.grad.isfinite().all()


def test_tau_squared_keeps_the_size_of_the_gradient():
    """Random logits of std 3, 10 classes: nearly flat in tau with tau^2, and as 1 / tau^2
    without it.
    """
    z = torch.randn(256, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    other = (
        torch.randn(256, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    )
    norms = []
    for tau in (1.0, 2.0, 4.0, 8.0, 16.0):
        s = z.clone().requires_grad_()
        SoftTargets(weight=1.0, temperature=tau)(of(s), of(other), None).terms[
            "class"
        ].total.backward()
        norms.append(float(s.grad.norm()))
    assert max(norms[1:]) / min(norms[1:]) < 1.2
    assert max(norms) / min(norms) < 2
    assert norms[-1] / 16**2 < norms[0] / 50


def test_at_a_high_temperature_soft_targets_are_half_the_squared_distance_over_classes():
    """Hinton et al., sec. 2.1: of logits with a mean of zero, the gradient goes to (z - t) / C."""
    z = torch.randn(8, 10, dtype=torch.float64)
    z, t = (x - x.mean(1, keepdim=True) for x in (z, z.flip(0) * 1.5))
    grads = []
    for signal in (SoftTargets(weight=1.0, temperature=1e4), LogitMSE(weight=1.0)):
        s = z.clone().requires_grad_()
        signal(of(s), of(t), None).terms["class"].total.backward()
        grads.append(s.grad)
    assert torch.allclose(2 * grads[0], grads[1], atol=1e-3)


@pytest.mark.parametrize(("width", "projection"), [(8, "shared"), (6, "shared"), (6, "each")])
def test_hidden_mse(width, projection):
    small, student, teacher = pair(width=width)
    signal = HiddenMSE(weight=1.0, student=student, teacher=teacher, projection=projection).double()
    maps = {"8": 0, "6shared": 1, "6each": 3}[f"{width}{projection if width == 6 else ''}"]
    assert sum(p.numel() for p in signal.parameters()) == maps * (6 * 8 + 8)
    found, own, other = taught(signal, small, teacher, batch())
    expected = 0.0
    for place, (m, g) in enumerate([(0, 0), (1, 2), (2, 4)]):
        for b, i in REAL:
            h = own.recorded["hidden"][m][b, i].tolist()
            if maps:
                linear = signal.maps[place if maps == 3 else 0]
                h = [
                    dot(row, h) + float(c)
                    for row, c in zip(linear.weight.tolist(), linear.bias.detach(), strict=True)
                ]
            t = other.recorded["hidden"][g][b, i].tolist()
            expected += sum((x - y) ** 2 for x, y in zip(h, t, strict=True)) / 8
    assert found == pytest.approx({"": expected}, rel=1e-10)
    assert signal.counts(batch(), {}, 15) == {"": 15}


@pytest.mark.parametrize("width", [8, 6])
def test_statistics_of_states_and_what_they_leave(width):
    """MobileBERT's three parts of the distance of states, layer by layer."""
    small, student, teacher = pair(width=width)
    given = {"weight": 1.0, "student": student, "teacher": teacher, "by_layer": True}
    kinds = [HiddenMean, HiddenVariance]
    if width == 8:
        kinds.append(partial(HiddenMSE, normalised=True, embeddings=False))
    for number, kind in enumerate(kinds):
        found, own, other = taught(kind(**given), small, teacher, batch())
        expected = {"1": 0.0, "2": 0.0}
        for m, g in [(1, 2), (2, 4)]:
            for b, i in REAL:
                sides = [
                    side.recorded["hidden"][layer][b, i].tolist()
                    for side, layer in ((own, m), (other, g))
                ]
                means = [sum(x) / len(x) for x in sides]
                spreads = [
                    sum((v - mean) ** 2 for v in x) / len(x)
                    for x, mean in zip(sides, means, strict=True)
                ]
                z = [
                    [(v - mean) / math.sqrt(spread) for v in x]
                    for x, mean, spread in zip(sides, means, spreads, strict=True)
                ]
                expected[str(m)] += (
                    (means[0] - means[1]) ** 2,
                    abs(spreads[0] - spreads[1]),
                    sum((x - y) ** 2 for x, y in zip(*z, strict=False)) / width,
                )[number]
        assert found == pytest.approx(expected, rel=1e-9)


def test_cosine_of_the_last_layers():
    small, student, teacher = pair()
    found, own, other = taught(
        HiddenCosine(weight=1.0, student=student, teacher=teacher), small, teacher, batch()
    )
    expected = 0.0
    for b, i in REAL:
        s, t = own.recorded["hidden"][2][b, i].tolist(), other.recorded["hidden"][4][b, i].tolist()
        expected += 1 - dot(s, t) / math.sqrt(dot(s, s) * dot(t, t))
    assert found == pytest.approx({"": expected}, rel=1e-10)


@pytest.mark.parametrize("anchored", [True, False])
def test_patient_leaves_the_last_layer_out(anchored):
    small, student, teacher = pair(layers=3, teacher={"layers": 6})
    given = batch() if anchored else replace(batch(), anchors=None)
    signal = Patient(weight=1.0, student=student, teacher=teacher, layers="skip")
    found, own, other = taught(signal, small, teacher, given)
    expected = 0.0
    for m, g in [(1, 2), (2, 4)]:
        for b in range(3):
            s, t = (
                side.recorded["hidden"][k][b, b if anchored else 0].tolist()
                for side, k in ((own, m), (other, g))
            )
            s, t = ([x / math.sqrt(dot(v, v)) for x in v] for v in (s, t))
            expected += sum((x - y) ** 2 for x, y in zip(s, t, strict=True))
    assert found == pytest.approx({"": expected}, rel=1e-10)
    assert signal.counts(given, {}, 15) == {"": 3}
    assert Patient(weight=1.0, student=student, teacher=teacher, layers=[3, 5]).pairs == [
        (1, 3),
        (2, 5),
    ]
    with pytest.raises(ConfigError, match=r"2 layers or more"):
        Patient(weight=1.0, student=replace(student, num_layers=1), teacher=teacher)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_every_layer(causal):
    pattern = {"pattern": Causal()} if causal else {}
    small, student, teacher = pair(**pattern, teacher=pattern)
    mse, by_kl = 0.0, 0.0
    found, own, other = taught(
        AttentionMSE(weight=1.0, student=student, teacher=teacher), small, teacher, batch()
    )
    for m, g in [(0, 1), (1, 3)]:
        for b, i in REAL:
            keys = i + 1 if causal else LENGTHS[b]
            for h in range(2):
                s, t = seen(own, m, b, h, i)[:keys], seen(other, g, b, h, i)[:keys]
                mse += sum((x - y) ** 2 for x, y in zip(s, t, strict=True)) / keys / 2
                by_kl += kl(t, s) / 2
    assert found == pytest.approx({"": mse}, rel=1e-10)
    found, _, _ = taught(
        AttentionKL(weight=1.0, student=student, teacher=teacher), small, teacher, batch()
    )
    assert found == pytest.approx({"": by_kl}, rel=1e-10)


def related(side, name, layer, columns, b):
    """Scores [i][j] of a row of tokens whose vectors are these columns of all heads side by
    side.
    """
    x = side.recorded[name][layer][b].transpose(0, 1).flatten(1)[: LENGTHS[b], columns].tolist()
    return [[dot(u, v) / math.sqrt(len(u)) for v in x] for u in x]


def test_minilm():
    small, student, teacher = pair(width=12, heads=4, teacher={"width": 8, "heads": 4})
    found, own, other = taught(
        MiniLM(weight=1.0, student=student, teacher=teacher), small, teacher, batch()
    )
    attention = sum(
        kl(seen(other, 3, b, h, i), seen(own, 1, b, h, i)) / 4 for b, i in REAL for h in range(4)
    )
    values = 0.0
    for b in range(3):
        for h in range(4):
            s = related(own, "values", 1, slice(3 * h, 3 * h + 3), b)
            t = related(other, "values", 3, slice(2 * h, 2 * h + 2), b)
            values += sum(kl(x, y) for x, y in zip(t, s, strict=True)) / 4
    assert found == pytest.approx({"attention": attention, "values": values}, rel=1e-10)


@pytest.mark.parametrize("layer", [-1, 3])
def test_minilm_v2_splits_both_anew(layer):
    small, student, teacher = pair(width=12, heads=3, teacher={"width": 8, "heads": 2})
    signal = MiniLMv2(weight=2.0, student=student, teacher=teacher, relation_heads=4, layer=layer)
    found, own, other = taught(signal, small, teacher, batch())
    expected = dict.fromkeys(("queries", "keys", "values"), 0.0)
    for name in expected:
        for b in range(3):
            for r in range(4):
                s = related(own, name, 1, slice(3 * r, 3 * r + 3), b)
                t = related(other, name, 3 if layer == -1 else 2, slice(2 * r, 2 * r + 2), b)
                expected[name] += sum(kl(x, y) for x, y in zip(t, s, strict=True)) / 4
    assert found == pytest.approx(expected, rel=1e-10)
    assert {term.weight for term in signal(own, other, batch()).terms.values()} == {2 / 3}


def test_whoever_is_like_the_teacher_has_nothing_to_learn():
    small, student, teacher = pair(layers=4, seed=1)
    signals = [
        kind(weight=1.0, student=student, teacher=teacher)
        for kind in (HiddenMSE, HiddenCosine, Patient, AttentionMSE, AttentionKL, MiniLM, MiniLMv2)
    ]
    for signal in [*signals, SoftTargets(weight=1.0, temperature=2.0), LogitMSE(weight=1.0)]:
        found, _, _ = taught(signal, small, teacher, batch())
        assert found == pytest.approx(dict.fromkeys(found, 0.0), abs=1e-12), type(signal)


def test_relations_teach_the_projections_of_the_last_layer_and_what_is_below():
    small, student, teacher = pair()
    other = answers(teacher.model, batch())
    out = MiniLMv2(weight=1.0, student=student, teacher=teacher)(
        answers(small, batch()), other, batch()
    )
    reached = {}
    for name, term in out.terms.items():
        small.zero_grad(set_to_none=True)
        term.total.backward(retain_graph=True)
        rows = small.backbone.stack.blocks["a"][1].cell.qkv.weight.grad.abs().sum(1) > 0
        reached[name] = rows.view(3, -1).any(1).tolist()
        grads = {
            key
            for key, p in small.named_parameters()
            if p.grad is not None and p.grad.abs().sum() > 0
        }
    assert reached == {
        "queries": [True, False, False],
        "keys": [False, True, False],
        "values": [False, False, True],
    }
    last = [key for key in grads if ".a.1." in key or ".f.1." in key or key.startswith("heads")]
    assert all("a.1.cell.qkv" in key for key in last)
    assert any(".f.0." in key for key in grads)


def test_shapes_that_do_not_meet_are_named():
    _, student, teacher = pair(width=12, heads=3)
    with pytest.raises(
        ConfigError, match=r"size.num_heads=3: the 2 heads of the teacher runs/large"
    ) as error:
        MiniLM(weight=1.0, student=student, teacher=teacher)
    assert "distill=minilmv2" in str(error.value)
    with pytest.raises(ConfigError, match=r"the 2 heads"):
        AttentionMSE(weight=1.0, student=student, teacher=teacher)
    for kind in (HiddenCosine, Patient):
        with pytest.raises(ConfigError, match=r"size.width=12: the width 8 of the teacher"):
            kind(weight=1.0, student=student, teacher=teacher)
    with pytest.raises(
        ConfigError, match=r"(?s)relation_heads=3: a divisor of the 8 columns.*relation_heads=2"
    ):
        MiniLMv2(weight=1.0, student=student, teacher=teacher, relation_heads=3)
    with pytest.raises(ConfigError, match=r"layer=5: 1 to 4, the layers of the teacher"):
        MiniLMv2(weight=1.0, student=student, teacher=teacher, relation_heads=4, layer=5)
    with pytest.raises(ConfigError, match=r"layers=.*has no scores"):
        AttentionKL(
            weight=1.0, student=replace(student, num_heads=2), teacher=teacher, layers=[0, 4]
        )
    with pytest.raises(ConfigError, match=r"fix: embeddings=false"):
        AttentionKL(
            weight=1.0, student=replace(student, num_heads=2), teacher=teacher, embeddings=True
        )


def test_a_row_that_fills_up_the_batch_counts_nothing():
    """Rows with a negative key are there for their shape alone."""
    small, student, teacher = pair()
    given = batch()
    filled = Batch(**{**vars(given), "key": torch.tensor([0, 1, -1])})
    signal = Patient(weight=1.0, student=student, teacher=teacher)
    two, three = (taught(signal, small, teacher, each)[0][""] for each in (filled, given))
    assert 0 < two < three


@pytest.mark.parametrize("causal", [0, 1])
def test_patterns_of_teacher_and_student_may_differ(causal):
    """The keys that either of them sees count, and the one that does not see a key has 0 there."""
    patterns = [{}, {}]
    patterns[causal] = {"pattern": Causal()}
    small, student, teacher = pair(**patterns[0], teacher=patterns[1])
    expected = 0.0
    found, own, other = taught(
        AttentionMSE(weight=1.0, student=student, teacher=teacher), small, teacher, batch()
    )
    for m, g in [(0, 1), (1, 3)]:
        for b, i in REAL:
            for h in range(2):
                sides = [seen(own, m, b, h, i), seen(other, g, b, h, i)]
                sides[causal] = [x if j <= i else 0.0 for j, x in enumerate(sides[causal])]
                expected += sum((x - y) ** 2 for x, y in zip(*sides, strict=True)) / LENGTHS[b] / 2
    assert found == pytest.approx({"": expected}, rel=1e-10)

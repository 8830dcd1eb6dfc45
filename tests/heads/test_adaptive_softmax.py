"""Adaptive input and adaptive softmax: torch's own (untied), a loop over the definition (tied),
costs, checkpoints and mistakes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.heads.adaptive import AdaptiveSoftmax
from plmctl.heads.lm import LMHead
from plmctl.nn.adaptive import AdaptiveTable, check_cutoffs
from plmctl.nn.tables import count, real

V, W, CUTOFFS = 100, 16, [20, 50]
POSITIONS = 40


def make_table(**settings: Any) -> AdaptiveTable:
    table = AdaptiveTable(vocab_size=V, width=W, cutoffs=CUTOFFS, **settings).double()
    return table


def make_features() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(POSITIONS, W, generator=generator, dtype=torch.float64)
    ids = torch.randint(0, V, (POSITIONS,), generator=generator)
    ids[:3] = torch.tensor([0, 20, 99])  # the ends of clusters are asked, too
    return features, ids


def make_tied(tie_projs: Any = True, **settings: Any) -> tuple[AdaptiveTable, AdaptiveSoftmax]:
    torch.manual_seed(1)
    table = make_table(**settings)
    head = AdaptiveSoftmax(
        width=W, vocab_size=V, token_embedding=table, tied=True, tie_projs=tie_projs
    ).double()
    with torch.no_grad():
        for parameter in real(head).values():
            parameter.normal_()
    return table, head


@pytest.mark.parametrize("head_bias", [False, True])
def test_untied_is_that_of_torch(head_bias: bool) -> None:
    theirs = nn.AdaptiveLogSoftmaxWithLoss(W, V, CUTOFFS, div_value=4, head_bias=head_bias).double()
    ours = AdaptiveSoftmax(
        width=W,
        vocab_size=V,
        token_embedding=None,
        tied=False,
        cutoffs=CUTOFFS,
        div_val=4,
        bias=head_bias,
    ).double()
    table = ours.table
    with torch.no_grad():
        table.real_rows(0).copy_(theirs.head.weight[:20])
        ours.cluster_weight.copy_(theirs.head.weight[20:])
        if ours.biases is not None and ours.cluster_bias is not None:
            ours.biases[0].weight[:20] = theirs.head.bias[:20]
            ours.cluster_bias.copy_(theirs.head.bias[20:])
        for cluster, (project, out) in enumerate(theirs.tail, 1):
            table.projections[cluster].weight.copy_(project.weight.T)
            table.real_rows(cluster).copy_(out.weight)
    features, ids = make_features()
    mine, other = (features.clone().requires_grad_() for _ in range(2))
    expected = theirs(other, ids)
    torch.testing.assert_close(ours.token_losses(mine, ids), -expected.output)
    torch.testing.assert_close(ours(features), theirs.log_prob(features))
    loss, right = ours.loss(mine, ids)
    assert right is None
    (-expected.output).sum().backward()
    loss.backward()
    torch.testing.assert_close(loss, -expected.output.sum())
    torch.testing.assert_close(mine.grad, other.grad)
    for cluster, (project, out) in enumerate(theirs.tail, 1):
        torch.testing.assert_close(table.projections[cluster].weight.grad.T, project.weight.grad)
        gradient = table.tables[cluster].weight.grad
        torch.testing.assert_close(gradient[: table.sizes[cluster]], out.weight.grad)
        assert not gradient[table.sizes[cluster] :].any()  # spare rows
    torch.testing.assert_close(ours.cluster_weight.grad, theirs.head.weight.grad[20:])


def log_probability(head: AdaptiveSoftmax, h: Tensor, token: int) -> Tensor:
    """`log p(token)` of one state, by the released code's definition."""
    table, clusters = head.table, len(CUTOFFS) + 1
    assert head.biases is not None
    assert head.cluster_bias is not None

    def logit(cluster: int, vector: Tensor, bias: Tensor) -> Tensor:
        own = dict(head.projections.items()).get(str(cluster))
        projection = own or table.projections[cluster if table.div_val > 1 else 0]
        state = h if isinstance(projection, nn.Identity) else h @ projection.weight
        return state @ vector + bias

    def rows(cluster: int) -> list[Tensor]:
        vectors, biases = table.tables[cluster].weight, head.biases[cluster].weight
        size = table.edges[cluster + 1] - table.edges[cluster]
        return [logit(cluster, vectors[i], biases[i]) for i in range(size)]

    first = rows(0)
    for rare in range(clusters - 1):
        first.append(logit(0, head.cluster_weight[rare], head.cluster_bias[rare]))
    chosen = torch.log_softmax(torch.stack(first), 0)
    cluster = sum(token >= cutoff for cutoff in CUTOFFS)
    if cluster == 0:
        return chosen[token]
    inside = torch.log_softmax(torch.stack(rows(cluster)), 0)
    return chosen[CUTOFFS[0] + cluster - 1] + inside[token - CUTOFFS[cluster - 1]]


SHAPES: list[dict[str, Any]] = [
    {"div_val": 1},
    {"div_val": 1, "table_width": 8},
    {"div_val": 2},
    {"div_val": 4, "proj_same_dim": True, "tie_projs": [False, True, False]},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_tied_is_the_definition_in_order(shape: dict[str, Any]) -> None:
    _, head = make_tied(**shape)
    features, ids = make_features()
    expected = torch.stack(
        [-log_probability(head, h, int(token)) for h, token in zip(features, ids, strict=True)]
    )
    torch.testing.assert_close(head.token_losses(features, ids), expected)
    torch.testing.assert_close(head.loss(features, ids)[0], expected.sum())
    torch.testing.assert_close(head(features).gather(1, ids[:, None])[:, 0], -expected)
    torch.testing.assert_close(head(features).exp().sum(1), torch.ones_like(expected))
    without = ids.masked_fill(torch.arange(POSITIONS) % 3 == 0, IGNORE)
    kept = torch.where(without == IGNORE, 0.0, expected)
    torch.testing.assert_close(head.token_losses(features, without), kept)
    torch.testing.assert_close(head.loss(features, without)[0], kept.sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_the_definition(shape: dict[str, Any]) -> None:
    table, head = make_tied(**shape)
    features, ids = make_features()
    ids = ids.clamp(max=49)  # no label in the last cluster
    parameters = [*table.parameters(), *head.parameters()]
    losses = [-log_probability(head, h, int(i)) for h, i in zip(features, ids, strict=True)]
    found, expected = (
        torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        for loss in (head.loss(features, ids)[0], torch.stack(losses).sum())
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_input_vectors_are_projected_rows(shape: dict[str, Any]) -> None:
    settings = {name: value for name, value in shape.items() if name != "tie_projs"}
    table = make_table(**settings)
    ids = torch.arange(V).view(4, 25)
    found = table(ids)
    for token in range(V):
        cluster = sum(token >= cutoff for cutoff in CUTOFFS)
        vector = table.tables[cluster].weight[token - [0, *CUTOFFS][cluster]]
        projection = table.projections[cluster if shape["div_val"] > 1 else 0]
        expected = vector if isinstance(projection, nn.Identity) else projection.weight @ vector
        torch.testing.assert_close(found[token // 25, token % 25], expected)


def test_numbers_of_parameters_and_work_by_hand() -> None:
    table, head = make_tied(div_val=2)
    # widths 16, 8, 4; projections for the narrow ones only
    assert count(table) == 20 * 16 + 30 * 8 + 50 * 4 + 16 * 8 + 16 * 4
    assert count(head) == 2 * 16 + 2 + V

    def harmonic(n: int) -> float:
        return sum(1 / i for i in range(1, n + 1))

    common, rare = (
        (harmonic(high) - harmonic(low)) / harmonic(V) for low, high in ((20, 50), (50, V))
    )
    macs, logits = head.work()
    assert logits == pytest.approx(22 + common * 30 + rare * 50, rel=1e-3)
    expected = 22 * 16 + common * (16 * 8 + 30 * 8) + rare * (16 * 4 + 50 * 4)
    assert macs == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cutoffs": [50, 20]}, "ids that rise"),
        ({"cutoffs": [20, 20]}, "ids that rise"),
        ({"cutoffs": [20, 100]}, "ids below 100"),
        ({"cutoffs": CUTOFFS, "div_val": 5}, "the width of the first cluster"),
    ],
)
def test_wrong_clusters_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AdaptiveTable(vocab_size=V, width=W, **settings)


def test_wrong_ties_are_refused() -> None:
    known: dict[str, Any] = {"width": W, "vocab_size": V}
    with pytest.raises(ConfigError, match="no clusters"):
        AdaptiveSoftmax(**known, token_embedding=nn.Embedding(V, W))
    with pytest.raises(ConfigError, match="as in the embedding"):
        AdaptiveSoftmax(**known, token_embedding=make_table(), cutoffs=[10])
    with pytest.raises(ConfigError, match="each of the 3 clusters"):
        AdaptiveSoftmax(**known, token_embedding=make_table(), tie_projs=[True])
    with pytest.raises(ConfigError, match="several tables"):
        LMHead(**known, token_embedding=make_table(), tied=True, transform=False, bias=False)
    with pytest.raises(ConfigError, match="cutoffs"):
        AdaptiveSoftmax(**known, token_embedding=None, tied=False)


def test_fixes_of_cutoffs_are_accepted() -> None:
    for wrong in ([50, 20, 20], [20, 50, 100, 300]):
        with pytest.raises(ConfigError) as caught:
            check_cutoffs(wrong, V)
        fixed = caught.value.fix.removeprefix("cutoffs=[").removesuffix("]").split(",")
        check_cutoffs([int(number) for number in fixed], V)


WORDS = [
    "model.embedding.table={_target_:plmctl.nn.adaptive.AdaptiveTable,cutoffs:[20,60],div_val:2}",
    "objective=[clm_adaptive]",
    "size.width=16",
    "size.num_heads=2",
    "size.inner_width=16",
    "size.num_layers=1",
    "format.max_length=8",
    "train.batch_size=4",
    "train.steps=3",
    "train.device=cpu",
]


def say(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return str(done.output)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", ["transformer_xl", "gpt2"])
def test_a_run_saves_tied_tables_once(recipe: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"a{i % 90} b{i % 7} c{i % 31} ." for i in range(400)))
    out = tmp_path / "run"
    words = [recipe, f"data.path={text}", f"run.dir={out}", "tokenizer=word", *WORDS]
    say("pretrain", *words)
    saved = load_file(next(out.rglob("model.safetensors")))
    tables = [saved[f"backbone.embedding.token.tables.{cluster}.weight"] for cluster in range(3)]
    assert [tuple(table.shape) for table in tables[:2]] == [(20, 16), (40, 8)]
    own = {name for name in saved if name.startswith("heads.clm.")}
    assert own == {"heads.clm.cluster_weight", "heads.clm.cluster_bias"} | {
        f"heads.clm.biases.{cluster}.weight" for cluster in range(3)
    }
    scores = json.loads(say("eval", "task=lm", f"checkpoint={out}", f"data.path={text}", "--json"))
    # three updates have not changed much
    uniform = len(tables[0]) * 3  # the classes of the first choice, then those of a cluster
    assert 0.3 * uniform < scores["metrics"]["text"]["perplexity_per_token"] < 30 * uniform
    say("generate", f"checkpoint={out}", "prompt=a1 b2", "max_new=4")


def test_cutoffs_beyond_the_vocabulary_are_refused_before_the_run(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d")
    words = [word.replace("[20,60]", "[20,9000]") for word in WORDS]
    said = say("pretrain", "transformer_xl", f"data.path={text}", *words, code=2)
    assert "model.embedding.table.cutoffs=[20, 9000]: ids below 8,192" in said
    assert "fix: 'model.embedding.table.cutoffs=[20]'" in said

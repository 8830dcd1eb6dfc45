"""Tables of 64 k rows: the same numbers as tables of exactly the vocabulary, in the model and in
what it writes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

import plmctl
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.convert import convert
from plmctl.cli.app import make_app
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.nn import tables
from plmctl.training.checkpoint import tensors_of
from plmctl.training.optim.adamw import AdamW
from plmctl.training.optim.lamb import Lamb

V, P, T = 70, 40, 20
TINY = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "format.max_length=48",
    "train.batch_size=8",
    "eval.rows=8",
]


@pytest.fixture
def unpadded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`unpadded(make, ...)`: what `make` gives where tables have exactly the vocabulary's rows."""

    def run(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(tables, "MULTIPLE", 1)
            return make(*args, **kwargs)

    return run


def model_of(recipe: str = "bert", words: Sequence[str] = ()) -> Model:
    return build_model(
        plain(compose("pretrain", recipe, ["size=tiny", *words])), vocab_size=V, seed=5
    ).eval()


def loss_of(model: Model) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    ids, answers = (
        torch.randint(V, (2, T), generator=generator),
        torch.randint(V, (2 * T,), generator=generator),
    )
    answers[::5] = IGNORE
    last = model(Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([T, T]))})).last
    return model.heads["mlm"].loss(last.flatten(0, 1), answers)[0]  # type: ignore[operator]


def test_rows_of_known_vocabularies() -> None:
    assert [tables.padded(size) for size in (1, 64, 65, 30522, 50257)] == [
        64,
        64,
        128,
        30528,
        50304,
    ]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_the_heads_loss_and_gradients_are_those_without_padding(
    tied: bool, bias: bool, unpadded: Callable
) -> None:
    def make() -> tuple[LMHead, nn.Module]:
        torch.manual_seed(0)
        table = tables.TokenTable(vocab_size=V, width=6)
        head = LMHead(
            width=6, vocab_size=V, token_embedding=table, tied=tied, transform=True, bias=bias
        )
        return head.double(), table.double()

    generator = torch.Generator().manual_seed(1)
    features, ids = (
        torch.randn(P, 6, generator=generator).double(),
        torch.randint(V, (P,), generator=generator),
    )
    ids[::7] = IGNORE
    found: list[Any] = []
    for head, table in (make(), unpadded(make)):
        loss, right = head.loss(features, ids)
        loss.backward()
        logits = head(features)
        assert logits.shape == (P, V)
        both = nn.ModuleDict({"head": head, "table": table})
        grads = {name: p.grad for name, p in both.named_parameters() if p.grad is not None}
        found.append((loss.detach(), right, logits.detach(), grads, len(head.table)))
    (loss, right, logits, grads, rows), (loss_, right_, logits_, grads_, rows_) = found
    assert (rows, rows_) == (128, V)
    assert torch.equal(right, right_)
    torch.testing.assert_close((loss, logits), (loss_, logits_), atol=1e-10, rtol=1e-10)
    assert grads.keys() == grads_.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(grad[: len(grads_[name])], grads_[name], atol=1e-10, rtol=1e-10)
        assert not grad[len(grads_[name]) :].any(), name  # spare rows: exactly nothing


def test_a_table_that_is_not_padded_may_be_tied_too() -> None:
    head = LMHead(
        width=6,
        vocab_size=V,
        token_embedding=nn.Embedding(V, 6),
        tied=True,
        transform=False,
        bias=True,
    )
    assert head.bias is not None
    assert head.bias.shape == (V,)
    assert head(torch.zeros(2, 6)).shape == (2, V)


@pytest.mark.parametrize("words", [[], ["heads.mlm.tied=false"]])
def test_first_weights_are_the_same_numbers(words: list[str], unpadded: Callable) -> None:
    model, plainer = model_of(words=words), unpadded(model_of, words=words)
    one, other = tables.real(model), dict(plainer.named_parameters())
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert len(model.backbone.token_embedding.weight) == 128  # type: ignore[arg-type]
    assert tables.count(model) == sum(p.numel() for p in plainer.parameters())
    with torch.no_grad():
        torch.testing.assert_close(loss_of(model), loss_of(plainer), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(
        loss_of(model.double()), loss_of(plainer.double()), atol=1e-10, rtol=1e-10
    )


@pytest.mark.slow  # the loss and the gradients of the head stay
@pytest.mark.parametrize(
    "make",
    [
        lambda named: AdamW(
            parameters=named, lr=0.01, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1
        ),
        lambda named: Lamb(
            parameters=named, lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.1
        ),
    ],
)
def test_training_takes_the_same_way_and_leaves_spare_rows_alone(
    make: Callable, unpadded: Callable
) -> None:
    trained = []
    for model in (model_of().double(), unpadded(model_of).double()):
        optimizer = make(list(model.named_parameters()))
        for _ in range(3):
            loss = loss_of(model)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        trained.append(model)
    one, other = (tables.real(model) for model in trained)
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], atol=1e-9, rtol=1e-9)
    assert not trained[0].backbone.token_embedding.weight[V:].any()
    assert not trained[0].heads["mlm"].bias[V:].any()


def test_what_is_saved_has_the_rows_of_tokens_even_of_a_copy() -> None:
    model = model_of(words=["heads.mlm.tied=false"])
    for each in (model, copy.deepcopy(model), nn.ModuleDict({"again": model, "once": model})):
        named = {
            name: len(t)
            for name, t in tensors_of(each).items()
            if name.endswith(("token.weight", "mlm.weight", "mlm.bias"))
        }
        assert sorted(named.values()) == [V, V, V]


def pretrain(*words: str) -> str:
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def saved(run: Path, step: int) -> dict[str, Tensor]:
    files = [run / f"checkpoints/step-{step}/{name}.safetensors" for name in ("model", "optimizer")]
    return {
        f"{file.stem}/{name}": tensor for file in files for name, tensor in load_file(file).items()
    }


@pytest.mark.slow  # the numbers of one update stay
def test_a_run_from_before_padding_goes_on(
    tokens_of: Callable[..., Path], tmp_path: Path, unpadded: Callable
) -> None:
    words = [
        "bert",
        *TINY,
        f"data.path={tokens_of('wordpiece')}",
        "schedule=constant",
        "train.precision=fp32",
    ]
    straight, old = tmp_path / "straight", tmp_path / "old"
    pretrain(*words, "train.steps=4", f"run.dir={straight}")
    unpadded(pretrain, *words, "train.steps=2", f"run.dir={old}")
    size = plmctl.load(old).vocab.size
    assert size % 64
    pretrain("--resume", f"run.dir={old}", "train.steps=4")
    one, other = saved(straight, 4), saved(old, 4)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, atol=2e-5, rtol=1e-4)
    for name in ("model/", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"):
        assert (
            len(one[f"{name}backbone.embedding.token.weight"])
            == len(one[f"{name}heads.mlm.bias"])
            == size
        )
    loaded = plmctl.load(old)
    assert len(loaded.model.backbone.token_embedding.weight) == tables.padded(size)
    assert loaded.model.heads["mlm"](torch.zeros(1, 32)).shape == (1, size)
    convert(old, tmp_path / "hf", to="hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["vocab_size"] == size
    assert (
        len(load_file(tmp_path / "hf/model.safetensors")["bert.embeddings.word_embeddings.weight"])
        == size
    )


def test_dry_run_counts_the_rows_of_tokens_and_says_what_is_padded(unpadded: Callable) -> None:
    words = ["bert", *TINY, "tokenizer.vocab_size=600", "--dry-run", "--json"]
    report, without = json.loads(pretrain(*words)), json.loads(unpadded(pretrain, *words))
    size = 600 * 32
    share = size / sum(report["parameters"].values())
    held = f"{size:,} parameters for 600 tokens, {share:.0%} of the model"
    spare = "tables of 640 rows, spare ones are not counted above"
    assert report["run"].pop("vocabulary") == f"{held}; {spare}"
    assert without["run"]["vocabulary"] == held
    for name in ("parameters", "macs_per_token"):
        assert report[name] == without[name]
    assert report["run"]["training FLOPs per token"] == without["run"]["training FLOPs per token"]

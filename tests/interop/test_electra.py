"""ELECTRA's discriminators and generators against `transformers`, in both directions, and those
of our own runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close
from typer.testing import CliRunner

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.runs.adapt import adapt
from tests.interop.publishing import publish
from tests.interop.test_families import assert_round_trip, batch, inputs

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

CLASSES = {
    "ElectraModel": None,
    "ElectraForPreTraining": "discriminator",
    "ElectraForMaskedLM": "mlm",
    "ElectraForTokenClassification": "tag",
    "ElectraForSequenceClassification": "class",
    "ElectraForQuestionAnswering": "span",
}


@torch.no_grad()
def ours(model: Any, head: str | None, ids: Tensor, mask: Tensor) -> Tensor:
    last = model(batch(ids, mask)).last
    return last if head is None else model.heads[head](last[:, 0] if head == "class" else last)


@torch.no_grad()
def theirs(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    out = model(ids, attention_mask=mask.long())
    if "Question" in type(model).__name__:
        return torch.stack([out.start_logits, out.end_logits], -1)
    return out.last_hidden_state if type(model).__name__ == "ElectraModel" else out.logits


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["fp32", "fp64"]
)
@pytest.mark.parametrize("length", [[9, 9], [9, 4, 1]], ids=["unpadded", "padded"])
@pytest.mark.parametrize("embedding", [8, 16])
@pytest.mark.parametrize("name", CLASSES)
def test_import_agrees(
    name: str, embedding: int, length: list[int], dtype: torch.dtype, within: float, published: Any
) -> None:
    model, folder = published(
        name, num_labels=2 if "Question" in name else 3, embedding_size=embedding, hidden_act="relu"
    )
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    assert (loaded.config["model"]["embedding"]["table_width"] is None) == (embedding == 16)
    ids, mask = inputs(length)
    found = ours(loaded.model.to(dtype), CLASSES[name], ids, mask)
    wanted = theirs(model.to(dtype), ids, mask)
    whole = found.shape[:2] != mask.shape
    assert_close(
        found if whole else found[mask], wanted if whole else wanted[mask], atol=within, rtol=within
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("embedding", [8, 16])
@pytest.mark.parametrize("name", CLASSES)
def test_there_and_back_is_bitwise(
    name: str, embedding: int, published: Any, tmp_path: Path
) -> None:
    assert_round_trip(
        *published(name, num_labels=2 if "Question" in name else 3, embedding_size=embedding),
        tmp_path,
    )


def test_the_papers_classifier_has_no_published_class(published: Any, tmp_path: Path) -> None:
    _, folder = published("ElectraForSequenceClassification", num_labels=3, embedding_size=8)
    source = plmctl.load(folder).source
    head = {
        key: value
        for key, value in source.config["heads"]["class"].items()
        if key not in ("dense", "activation")
    }
    with pytest.raises(ConfigError, match="heads that a published class has"):
        hf.export({**source.config, "heads": {"class": head}}, source.tensors)


RUN = [
    "electra",
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "format.max_length=48",
    "train.batch_size=8",
    "eval.rows=8",
    "train.steps=2",
    "optim.lr=0.1",
    "model.embedding.dropout=0",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "settings",
    [
        ["model.embedding.table_width=24"],
        ["objective.electra.generator.share=0.5", "objective.electra.generator.tied=none"],
        ["objective.electra.generator.share=1", "objective.electra.generator.tied=weights"],
    ],
    ids=["narrow", "untied", "one"],
)
def test_both_halves_of_a_run_are_exported(
    settings: list[str], tokens_of: Any, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["pretrain", *RUN, *settings, f"data.path={tokens_of('wordpiece')}", f"run.dir={run}"]
    for command in (
        words,
        ["convert", str(run), str(tmp_path / "d"), "--to", "hf"],
        ["convert", str(run), str(tmp_path / "g"), "--to", "hf", "--part", "generator"],
    ):
        result = CliRunner().invoke(make_app(), command)
        assert result.exit_code == 0, result.output
    loaded = plmctl.load(run)
    ids, mask = inputs([9, 4, 1])
    published = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "d").eval()
    assert_close(
        ours(loaded.model, "discriminator", ids, mask)[mask],
        theirs(published, ids, mask)[mask],
        atol=1e-5,
        rtol=1e-5,
    )
    published = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "g").eval()
    found = _generator_of(run, loaded)
    with torch.no_grad():
        logits = found.head(found.backbone(batch(ids, mask)).last)
    assert_close(logits[mask], theirs(published, ids, mask)[mask], atol=1e-5, rtol=1e-5)


def _generator_of(run: Path, loaded: Any) -> Any:
    """The generator as the run has it: the objective built anew around the loaded model, with
    its saved weights.
    """
    from plmctl.artifacts.assemble import build_objective
    from plmctl.config.saved import read_spec
    from plmctl.training.checkpoint import load_exactly

    spec = read_spec(run)
    objective = build_objective(
        spec.objective, loaded.model, vocab_size=loaded.vocab.size, seed=spec.seed
    ).eval()
    file = loaded.source.folder / "objective.safetensors"
    load_exactly(
        objective, load_file(file) if file.exists() else {}, file=file, without=loaded.model
    )
    return objective.parts["electra"].generator


def test_a_run_without_a_generator_says_so(published: Any, tmp_path: Path) -> None:
    _, folder = published("ElectraForPreTraining", embedding_size=8)
    with pytest.raises(ConfigError, match="a run with a generator"):
        convert(folder, tmp_path / "g", to="hf", part="generator")


def test_a_generator_has_its_share_of_the_model_that_is_trained_on(
    with_tokenizer: Any, tmp_path: Path
) -> None:
    """`init=` brings the size; that of the recipe is another."""
    sizes = {"embedding_size": 8, "num_attention_heads": 4}
    _, folder = publish(tmp_path, "ElectraForPreTraining", **sizes)
    with_tokenizer(folder)
    words = [f"init={folder}", "data.path=x", "format.max_length=12"]
    generator = adapt(compose("pretrain", "electra", words)).objective["electra"]["generator"]
    assert generator["_given_"] == {"width": 4, "num_heads": 1, "inner_width": 6}
    assert generator["backbone"]["stack"]["layout"] == "af*2"

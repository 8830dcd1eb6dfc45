"""Systems that know more than text start from a trained plain model, `init=`: its weights are
taken, what a system adds is new, and before the first update the model computes what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from plmctl import load
from plmctl.cli.app import make_app
from plmctl.config.build import plain as unpack
from plmctl.config.compose import compose
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import UsageError
from plmctl.runs.adapt import adapt
from plmctl.study import plan as planning
from plmctl.study.parse import parse

SMALL = ["format.max_length=32", "train.batch_size=4", "train.steps=1", "eval.rows=4"]
SIZE = [
    "size=tiny",
    "size.num_layers=3",
    "size.width=32",
    "size.num_heads=4",
    "size.inner_width=48",
]
PLAIN = ("bert", "modern_encoder")


def pretrain(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def plain(
    tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """A run of each plain model, of another size than the default."""
    folder = tmp_path_factory.mktemp("plain")
    data = f"data.path={tokens_of('wordpiece')}"
    for name in PLAIN:
        # gains of norms are no longer 1
        learning = ["train.steps=3", "optim.lr=0.03", "schedule=constant", "first_vectors=null"]
        pretrain(name, *SMALL, *SIZE, data, *learning, f"run.dir={folder / name}")
    return {name: folder / name for name in PLAIN}


@torch.no_grad()
def predict(run: Path, **tracks: Tensor) -> Tensor:
    """[2, 9, V] logits of a run for the same two rows."""
    model = load(run).model
    ids = torch.randint(5, 600, (2, 9), generator=torch.Generator().manual_seed(0))
    rows = Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([9, 9]), tracks, full=True)})
    head: Any = model.heads["mlm"]
    return head(model(rows).last)


def mention() -> dict[str, Tensor]:
    track = torch.zeros(2, 9, dtype=torch.int64)
    track[0, 2:4], track[1, 5] = 7, 12
    return {"entity": track}


def begin(recipe: str, init: Path, text: Path, folder: Path, *words: str) -> tuple[Path, str]:
    """A run that stands still at its first weights, and what it said."""
    data = [f"data.path={text}", f"data.cache_dir={folder / 'cache'}", f"run.dir={folder / 'run'}"]
    return folder / "run", pretrain(recipe, *SMALL, f"init={init}", "optim.lr=0", *data, *words)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("recipe", ["ernie_thu", "knowbert"])
def test_entities_beside_a_trained_model(
    recipe: str, name: str, plain: Mapping[str, Path], linked_text: Path, tmp_path: Path
) -> None:
    run, said = begin(recipe, plain[name], linked_text, tmp_path)
    found, wanted = predict(run, **mention()), predict(plain[name])
    near = (found - wanted).abs().max()
    # KnowBERT norms the sum with the new cell, where BERT norms sums
    assert (near < 1e-4) == ((recipe, name) != ("knowbert", "bert"))
    assert "tensors taken; new and random: backbone.stack.blocks." in said
    assert "not used: " not in said.partition("heads.")[0]


SYSTEMS = {
    "luke": [],
    "sensebert": [],
    "sentilare": ["noise.sentiment_mask.lexicon.path=lexicon.tsv"],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("recipe", SYSTEMS)
def test_tables_and_tokens_beside_a_trained_model(
    recipe: str, name: str, plain: Mapping[str, Path], linked_text: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("lexicon.tsv").write_text("good\t1\nlist\t1\nvalue\t-1\n")
    run, said = begin(recipe, plain[name], linked_text, tmp_path, *SYSTEMS[recipe])
    torch.testing.assert_close(predict(run), predict(plain[name]), rtol=1e-4, atol=1e-5)
    part = {"luke": "entities", "sensebert": "embedding.token", "sentilare": "embedding.tracks"}
    assert f"backbone.{part[recipe]}" in said.partition("new and random: ")[2].partition(";")[0]


def test_parts_of_a_system_can_be_taken_away(
    plain: Mapping[str, Path], linked_text: Path, tmp_path: Path
) -> None:
    words = ["model.stack.adds=null", "objective.entity_denoise.weight=0"]
    run, said = begin("ernie_thu", plain["modern_encoder"], linked_text, tmp_path, *words)
    wanted = predict(plain["modern_encoder"])
    torch.testing.assert_close(predict(run, **mention()), wanted, rtol=1e-4, atol=1e-5)
    assert "new and random: backbone.entities, heads" in said


@pytest.mark.slow  # test_parts_of_a_system_can_be_taken_away stays
def test_a_system_goes_on_from_its_own_run(
    plain: Mapping[str, Path], linked_text: Path, tmp_path: Path
) -> None:
    first, _ = begin(
        "knowbert", plain["modern_encoder"], linked_text, tmp_path / "1", "optim.lr=1e-2"
    )
    second, said = begin("knowbert", first, linked_text, tmp_path / "2")
    assert "nothing is new in the model" in said
    assert torch.equal(predict(second, **mention()), predict(first, **mention()))


@pytest.mark.parametrize(
    ("recipe", "words", "answer"),
    [
        ("ernie_thu", ["size=mini"], "init decides this"),
        ("ernie_thu", ["model.stack.layout=af*2"], "init decides this"),
        ("ernie_thu", ["model.stack.adds.x.replaces=t"], "a cell of the layout saf saf saf"),
        ("ernie_thu", ["model.stack.cells.x.words=${model.stack.cells.a}"], "a feed-forward cell"),
    ],
)
def test_what_is_refused(
    recipe: str, words: list[str], answer: str, plain: Mapping[str, Path], linked_text: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    init = f"init={plain['modern_encoder']}"
    data = [f"data.path={linked_text}", f"run.dir={tmp_path / 'x'}"]
    assert answer in pretrain(recipe, *SMALL, init, *data, *words, code=2)


def test_another_kind_of_model_is_refused(
    plain: Mapping[str, Path], linked_text: Path, tmp_path: Path
) -> None:
    first, _ = begin("knowbert", plain["bert"], linked_text, tmp_path)
    data = [f"data.path={linked_text}", f"run.dir={tmp_path / 'x'}"]
    said = pretrain("ernie_thu", *SMALL, f"init={first}", *data, code=2)
    assert "this one is KnowBert" in said
    assert "fix: init=RUN" in said


def test_a_model_without_what_the_parts_refer_to_is_refused(
    tokens_of: Callable[..., Path], linked_text: Path, tmp_path: Path
) -> None:
    gpt, data = tmp_path / "gpt", [f"data.path={linked_text}", f"run.dir={tmp_path / 'x'}"]
    pretrain("gpt", *SMALL, *SIZE, f"data.path={tokens_of('wordpiece')}", f"run.dir={gpt}")
    said = pretrain("ernie_thu", *SMALL, f"init={gpt}", *data, code=2)
    assert "this one is Encoder without it" in said
    assert "fix: init=RUN # RUN: a run of plmctl pretrain bert" in said


@pytest.fixture(scope="module")
def others(
    tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Runs of models that write, and of one that reads characters."""
    folder = tmp_path_factory.mktemp("others")
    tokens = {
        "gpt2": tokens_of("byte_bpe"),
        "bart": tokens_of("wordpiece"),
        "elmo": tokens_of("word"),
    }
    for name, data in tokens.items():
        size = SIZE if name != "elmo" else ["size=tiny", "size.width=32", "size.inner_width=48"]
        pretrain(name, *SMALL, *size, f"data.path={data}", f"run.dir={folder / name}")
    return {name: folder / name for name in tokens}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("recipe", "init", "answer"),
    [
        ("gpt2", "bert", "tokens saw later tokens; under this run's pattern they do"),
        ("bert", "gpt2", "tokens did not see later tokens;"),
        ("bert", "bart", "EncoderDecoder, not the Encoder of this config rows have no target"),
        ("transformer_xl", "bert", "Encoder, not the XLNet of this config"),
    ],
)
def test_a_model_of_another_use_is_remarked(
    recipe: str, init: str, answer: str, plain: Mapping[str, Path], others: Mapping[str, Path],
    small_text: Path, tmp_path: Path,
) -> None:  # fmt: skip
    assert answer in begin(recipe, {**plain, **others}[init], small_text, tmp_path)[1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("recipe", "init", "answers"),
    [
        ("gpt2", "bart", ["a model of the kind Encoder", "EncoderDecoder fix: init=RUN"]),
        ("electra", "bart", ["a model of the kind Encoder", "EncoderDecoder fix: init=RUN"]),
        ("bart", "bert", ["this one is Encoder fix: init_into=encoder"]),
        ("xlnet", "bert", ["a model of the kind XLNet"]),
        (
            "unilm",
            "bert",
            ["segments=2: at least 6", "fix: init=RUN # RUN: a run whose model has as many"],
        ),
        *((name, "elmo", ["this one is BiLM"]) for name in ("wklm", "erica", "libert")),
    ],
)
def test_a_model_that_a_config_cannot_use_is_refused(
    recipe: str, init: str, answers: list[str], plain: Mapping[str, Path],
    others: Mapping[str, Path], small_text: Path, tmp_path: Path,
) -> None:  # fmt: skip
    data = [f"data.path={small_text}", f"data.cache_dir={tmp_path}", f"run.dir={tmp_path}/run"]
    run = {**plain, **others}[init]
    said = pretrain(recipe, *SMALL, f"init={run}", *data, code=2)
    for answer in answers:
        assert answer in said
    assert "tied" not in said
    assert not list(tmp_path.iterdir())  # before any work


def test_a_tokenizer_without_a_mask_is_refused_before_any_work(
    tokens_of: Callable[..., Path], small_text: Path, tmp_path: Path
) -> None:
    tokens = tokens_of("byte_bpe", "tokenizer.specials=gpt2")
    data = [f"data.path={small_text}", f"data.cache_dir={tmp_path}", f"run.dir={tmp_path}/run"]
    said = pretrain("bert", *SMALL, f"tokenizer.path={tokens}", *data, code=2)
    assert "a tokenizer with a mask token" in said
    assert "fix: tokenizer=wordpiece" in said
    assert not list(tmp_path.iterdir())
    gpt = tmp_path / "gpt"
    pretrain("gpt2", *SMALL, *SIZE, f"data.path={tokens}", f"run.dir={gpt}")
    said = pretrain("bert", *SMALL, f"init={gpt}", *data, code=2)
    assert "fix: init=RUN # RUN: a run whose tokenizer has one" in said
    assert "tokenizer=wordpiece" not in said


STUDY = """\
title: toy
pretrain:
  recipe: ernie_thu
  new_model: [size=tiny, tokenizer.vocab_size=4096, position=rotary, first_vectors=pairs]
  overrides: [train.batch_size=4, format.max_length=32]
arms:
  without: [model.stack.adds=null, objective.entity_denoise.weight=0]
  entities: []
  random: [model.entities.control=random]
baseline: without
seeds: [0]
budget: {steps: 1}
finetune:
  tasks: {docstrings: {task: classification, path: builtin}}
  overrides: [task.max_length=32]
metrics:
  masked loss: {of: pretrain, key: loss/mlm}
"""


def plan(*words: str) -> Any:
    """The planned study of toy.yaml."""
    study = parse(compose("ablate", "./toy.yaml", list(words)))
    return planning.plan(study, Provenance("ablate"))


def test_a_study_of_one_trained_model(
    plain: Mapping[str, Path], linked_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text(STUDY.replace("path: builtin", "path: null"))
    words = [f"init={plain['modern_encoder']}", f"data.path={linked_text}"]
    jobs = plan(*words).jobs.values()
    assert [job.verb for job in jobs] == ["tokenize", *["pretrain"] * 3]
    kinds = []
    for job in jobs:
        config = job.config
        assert config["tokenizer"]["path"].startswith(str(plain["modern_encoder"]))
        if job.verb == "pretrain":
            model = config["model"]
            assert config["size"]["width"] == 32
            assert model["stack"]["layout"] == "saf*3"
            if cell := model["stack"]["cells"].get("x"):
                # references of what is new are those of the trained model
                assert cell["words"] == model["stack"]["cells"]["f"]
            assert bool(cell) == bool(model["stack"]["adds"])
            assert config["position"]["_target_"].endswith("Rotary")
            kinds.append((bool(model["stack"]["adds"]), model["entities"]["control"]))
    assert kinds == [(False, "none"), (True, "none"), (True, "random")]


def test_a_job_of_a_study_is_the_command_that_one_would_type(
    plain: Mapping[str, Path], linked_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text(STUDY.replace("path: builtin", "path: null"))
    words = [f"init={plain['modern_encoder']}", f"data.path={linked_text}"]
    config = list(plan(*words).jobs.values())[2].config
    again = unpack(adapt(spec_of("pretrain", config)))
    for name in ("size", "model", "position", "heads", "tokenizer"):
        assert again[name] == config[name]
    typed = compose("pretrain", "ernie_thu", ["format.max_length=32", *words])
    assert unpack(adapt(typed))["model"] == config["model"]


@pytest.mark.slow  # a study of one trained model is above
def test_a_study_that_pretrains_nothing(
    plain: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = STUDY.replace("{of: pretrain, key: loss/mlm}", "{of: docstrings, key: accuracy}")
    Path("toy.yaml").write_text(text)
    trained = f"checkpoint={plain['bert']}"
    with pytest.raises(UsageError, match="fix: init="):
        plan(trained)
    arms = "arms:\n  without: {finetune: []}\n  faster: {finetune: [optim.lr=1]}\nbaseline"
    head, _, tail = text.partition("arms:")
    Path("toy.yaml").write_text(head + arms + tail.partition("baseline")[2])
    jobs = plan(trained).jobs.values()
    assert [job.verb for job in jobs] == ["finetune"] * 2
    own = sum(parameter.numel() for parameter in load(plain["bert"]).model.parameters())
    arms = plan(trained).arms.values()
    assert [arm.parameters for arm in arms] == [own] * 2  # shown in place of a new model's
    assert {job.config["checkpoint"] for job in jobs} == {str(plain["bert"])}

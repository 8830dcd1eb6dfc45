"""`plmctl.load`: what it accepts, what it says about the rest; `take` and `adopt` for further
training.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

import plmctl
from plmctl.artifacts.assemble import build_model, longest, settle_lengths
from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import find, load, open_source
from plmctl.artifacts.taking import initialize, list_new_parts, name_parts, take
from plmctl.config.compose import compose
from plmctl.config.schema import Pretrain
from plmctl.config.spec import Part
from plmctl.core.errors import ConfigError, DataError, PlmctlError, UsageError
from plmctl.runs.adapt import adopt
from plmctl.training.checkpoint import Checkpoints, Snapshot, seal, tensors_of
from plmctl.training.progress import Progress
from plmctl.training.rundir import lock_folder


@pytest.fixture
def checkpoint(published, with_tokenizer, tmp_path: Path) -> Path:
    convert(with_tokenizer(published("BertForPreTraining")[1]), tmp_path / "ours", to="plmctl")
    return tmp_path / "ours"


def test_importing_the_package_imports_no_torch() -> None:
    code = "import plmctl, sys; sys.exit('load' not in dir(plmctl) or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_checkpoint_has_model_tokenizer_and_config(checkpoint: Path) -> None:
    loaded = plmctl.load(checkpoint)
    assert not loaded.model.training
    assert loaded.vocab.size == 40
    assert loaded.tokenizer.pieces(loaded.tokenizer.encode("The cats")) == ["the", "cat", "##s"]
    assert loaded.config["size"]["width"] == 16
    assert sorted(path.name for path in checkpoint.iterdir()) == [
        "config.yaml",
        "manifest.json",
        "model.safetensors",
        "tokenizer",
        "trainer.json",
    ]


def test_a_run_gives_its_best_checkpoint_or_the_newest(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_source(checkpoint)
    run = tmp_path / "run"
    writer = Checkpoints(
        run / "checkpoints",
        lambda place: OmegaConf.save(OmegaConf.create(source.config), place / "config.yaml"),
        9,
    )
    for step in (1, 2, 3):
        best: dict[str, Any] = {"best_step": 2, "best": 0.25} if step > 1 else {}
        progress = Progress(step=step, **best).to_json()
        writer.save(Snapshot(dict(source.tensors), {}, {}, {}, {"progress": progress}), step=step)
    assert find(run).name == find(run).name == "step-2"
    (said,) = caplog.messages
    assert said.endswith("step-2 is taken: it validated best, 0.25 (step-3 is the newest)")
    caplog.clear()
    with lock_folder(run):
        find(run)  # the lock of this process, which trains there itself
        assert not caplog.messages
        (run / "lock").write_text("12 far", encoding="utf-8")
        find(run)
        find(run / "checkpoints/step-1")  # one that nobody replaces
    (warned,) = caplog.messages
    assert warned == (
        f"{run}: it is being trained, process 12 on far; step-2 is read, a later save is not"
    )
    (run / "checkpoints/step-2/model.safetensors").write_bytes(b"")
    assert find(run).name == "step-3"
    assert find(run / "checkpoints").name == "step-3"
    assert load(run / "checkpoints/step-1").source.folder.name == "step-1"
    with pytest.raises(DataError, match=r"model\.safetensors is truncated"):
        load(run / "checkpoints/step-2")


def test_what_is_no_model_is_refused(tmp_path: Path, published, checkpoint: Path) -> None:
    with pytest.raises(DataError, match="hf download bert-base-uncased"):
        load("bert-base-uncased")
    with pytest.raises(DataError, match="is a file"):
        load(checkpoint / "model.safetensors")
    with pytest.raises(
        DataError,
        match=r"is a file, but a folder is needed\n  fix: # give the folder of a run or a model$",
    ):
        load(__file__)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"\(did you mean '(.*/empty)'\?\)\n  fix: # give \1"):
        load(tmp_path / "emty/run")
    with pytest.raises(DataError, match="neither checkpoints/"):
        load(tmp_path / "empty")
    (tmp_path / "runs/20260101/checkpoints").mkdir(parents=True)
    with pytest.raises(DataError, match=r"folder of 1 run, the newest is 20260101\n.*/20260101$"):
        load(tmp_path / "runs")
    (tmp_path / "empty/config.yaml").write_text("seed: 0\n")
    with pytest.raises(DataError, match="no checkpoint yet"):
        load(tmp_path / "empty")
    (checkpoint / "tokenizer/plmctl_tokenizer.json").unlink()
    with pytest.raises(DataError, match="is missing"):
        load(checkpoint)


def test_an_unsupported_architecture_lists_the_supported_ones(published) -> None:
    _, folder = published("BertModel")
    settings = json.loads((folder / "config.json").read_text())
    for change, answer in (
        (
            {"architectures": ["BertForSequenceClasification"]},
            r"one of .*\(did you mean 'BertForSequenceClassification'",
        ),
        (
            {"architectures": ["CTRLModel"], "model_type": "ctrl"},
            r"model_type='ctrl': a family that plmctl reads: albert, bart, bert, .*gpt2, .*t5",
        ),
    ):
        (folder / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(ConfigError, match=answer):
            load(folder)
    (folder / "config.json").write_text(json.dumps(settings | {"hidden_act": "mish"}))
    with pytest.raises(ConfigError, match=r"hidden_act.*gelu_new"):
        load(folder)
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in settings.items() if k != "hidden_size"})
    )
    with pytest.raises(DataError, match="must have 'hidden_size'"):
        load(folder)
    (folder / "config.json").write_text('{"a": ')
    with pytest.raises(DataError, match="truncated or not JSON"):
        load(folder)


def test_missing_tensors_are_named_in_their_words(published) -> None:
    from safetensors.torch import load_file, save_file

    _, folder = published("BertModel")
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.attention.self.key.bias"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"encoder\.layer\.1\.attention\.self\.key\.bias"):
        load(folder)


def test_no_tokenizer_is_an_error_only_when_it_is_asked_for(published) -> None:
    loaded = load(published("GPT2Model")[1])
    with pytest.raises(DataError, match="no tokenizer"):
        loaded.tokenizer  # noqa: B018


def test_a_config_may_not_name_foreign_code(checkpoint: Path) -> None:
    source = open_source(checkpoint)
    for target in ("os.system", "plmctl.artifacts.convert.convert"):
        with pytest.raises(PlmctlError, match="_target_"):
            build_model(source.config | {"position": {"_target_": target}}, vocab_size=40)


def test_the_same_seed_gives_the_same_first_weights_and_leaves_the_global_generator(
    checkpoint: Path,
) -> None:
    config = open_source(checkpoint).config
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, two, three = (
        build_model(config, vocab_size=40, seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert before.equal(torch.random.get_rng_state())
    assert all(one[name].equal(two[name]) for name in one)
    assert not one["backbone.embedding.token.weight"].equal(
        three["backbone.embedding.token.weight"]
    )


def test_positions_are_sized_for_the_longest_row() -> None:
    config = {
        "format": {"max_length": 128},
        "train": {"stages": [{"share": 0.9}, {"share": 0.1, "format.max_length": 512}]},
    }
    assert longest(config) == 512
    assert longest({**config, "data": {"sources": {"a": {"format": {"max_length": 600}}}}}) == 600
    assert longest({}) is None
    nodes = {
        name: {"_target_": "plmctl.attention.patterns.base.Full"}
        for name in ("size", "pattern", "model")
    }
    position = {"_target_": "plmctl.nn.positions.Learned"}
    assert (
        settle_lengths({**config, **nodes, "position": position})["position"]["max_length"] == 512
    )
    assert (
        "max_length"
        not in settle_lengths({**nodes, "position": {"_target_": "plmctl.nn.positions.Rotary"}})[
            "position"
        ]
    )


def test_an_objective_has_new_parts_beside_those_of_its_model() -> None:
    model = nn.ModuleDict({"table": nn.Embedding(4, 2)})
    generator = nn.ModuleDict({"table": model["table"], "stack": nn.Linear(2, 2)})
    objective = nn.ModuleDict({"electra": nn.ModuleDict({"generator": generator})})
    assert list_new_parts(objective, model) == ["electra.generator.stack"]
    assert list_new_parts(nn.ModuleDict({"mlm": model}), model) == []


def test_take_says_what_is_taken_and_what_is_new(checkpoint: Path) -> None:
    source = open_source(checkpoint)
    heads = {
        "mlm": source.config["heads"]["mlm"],
        "tag": {"_target_": "plmctl.heads.tag.Tag", "num_classes": 5, "dropout": 0.1},
    }
    model = build_model(source.config, vocab_size=40, heads=heads, seed=0)
    said: list[str] = []
    fit = take(model, source.tensors, source="there", say=said.append)
    assert fit.missing == ["heads.tag.linear.weight", "heads.tag.linear.bias"]
    assert said == [
        f"from there: {len(fit.taken)} tensors taken; new and random: heads.tag; not used:"
        " heads.nsp, heads.pooler"
    ]
    assert all(
        tensor.equal(source.tensors[name])
        for name, tensor in tensors_of(model).items()
        if not name.startswith("heads.tag")
    )
    position = {**source.config["position"], "max_length": 6}
    with pytest.raises(DataError, match=r"position\.table\.weight \[12, 16\] for \[6, 16\]"):
        take(
            build_model(source.config | {"position": position}, vocab_size=40),
            source.tensors,
            source="there",
        )


def test_parts_that_are_whole_are_named_as_parts() -> None:
    own = [
        "backbone.query",
        "backbone.stack.a.weight",
        "backbone.stack.a.bias",
        "backbone.stack.b.bias",
        "heads.mlm.bias",
    ]
    assert name_parts(["backbone.stack.a.weight", "backbone.stack.a.bias"], among=own) == [
        "backbone.stack.a"
    ]
    assert name_parts(["backbone.stack.a.bias"], among=own) == ["backbone.stack.a.bias"]
    assert name_parts(own, among=own) == ["backbone.query", "backbone.stack", "heads.mlm"]


@pytest.mark.parametrize("to", ["hf", "plmctl"])
def test_rows_that_are_no_token_are_left_out(
    to: str, published, with_tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = with_tokenizer(
        published("BertForMaskedLM", vocab_size=48, tie_word_embeddings=False)[1]
    )
    # a checkpoint from before `convert` left them out
    monkeypatch.setattr("plmctl.artifacts.convert.without_spare_rows", lambda source: source)
    folder = (
        folder
        if to == "hf"
        else (convert(folder, tmp_path / "ours", to="plmctl"), tmp_path / "ours")[1]
    )
    source = open_source(folder)
    said: list[str] = []
    model = build_model(source.config, vocab_size=40, seed=0)
    assert not initialize(model, folder, say=said.append).reshaped
    tables = ["backbone.embedding.token.weight", "heads.mlm.weight", "heads.mlm.bias"]
    assert (
        said[0] == f"8 rows beyond the 40 tokens of its tokenizer are left out: {', '.join(tables)}"
    )
    for name, tensor in tensors_of(model).items():
        assert tensor.equal(
            source.tensors[name][:40] if name in tables else source.tensors[name]
        ), name
    # not what its tokenizer has
    with pytest.raises(DataError, match=r"token\.weight \[48, 16\] for \[39, 16\]"):
        initialize(build_model(source.config, vocab_size=39, seed=0), folder)
    rows = 40 if to == "hf" else 48
    assert load(folder).model.heads["mlm"](torch.zeros(1, 16)).shape == (1, rows)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_whoever_reads_them(
    bad: float, published, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    _, folder = published("BertModel")
    good = build_model(open_source(folder).config, vocab_size=40, seed=0)
    tensors = load_file(folder / "model.safetensors")
    tensors["pooler.dense.bias"][3] = bad
    save_file(tensors, folder / "model.safetensors")
    told = (
        r"not finite: heads\.pooler\.dense\.bias\n  fix: # use a checkpoint from before it diverged"
    )
    for use in (
        lambda: load(folder),
        lambda: convert(folder, tmp_path / "out", to="plmctl"),
        lambda: take(good, open_source(folder).tensors, source=folder),
    ):
        with pytest.raises(DataError, match=f"{folder}: {told}"):
            use()
    assert not (tmp_path / "out").exists()


def test_export_says_which_rows_it_cannot_give_back(
    published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert(published("RobertaForMaskedLM", pad_token_id=1)[1], tmp_path / "ours", to="plmctl")
    capsys.readouterr()
    convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    table = "roberta.embeddings.position_embeddings.weight"
    assert f"{table}: its first 2 rows, which no token uses, are zeros\n" in capsys.readouterr().err


def test_adopt_refuses_what_the_weights_decide(checkpoint: Path) -> None:
    cfg = Pretrain(init=str(checkpoint), format=Part({"max_length": 13}), heads=Part({}))
    with pytest.raises(
        ConfigError, match=r"size=mini: init decides this|size='mini': init decides this"
    ):
        adopt(cfg.asked(overrides=("size=mini", "seed=3")))
    with pytest.raises(ConfigError, match=r"(?s)at most 12.*fix: format.max_length=12"):
        adopt(cfg)


def test_adopt_takes_the_model_and_keeps_the_task_of_the_run(checkpoint: Path) -> None:
    causal = {"_target_": "plmctl.attention.patterns.causal.Causal"}
    empty: Any = {"size": {}, "model": {}, "position": {}, "tokenizer": {"vocab_size": 99}}
    heads = {"clm": {"_target_": "x"}, "mlm": {}}
    run = {"format": {"max_length": 10}, "pattern": causal, "heads": heads}
    cfg = Pretrain(init=str(checkpoint)).replace({**run, **empty})
    made = adopt(cfg)
    assert made.size.width == 16
    assert made.position.max_length == 12
    assert made.pattern._target_.endswith("Causal")
    assert made.heads.clm._target_ == "x"
    assert made.heads.mlm._target_ == "plmctl.heads.lm.LMHead"
    assert made.tokenizer.path == str(checkpoint)
    with pytest.raises(ConfigError, match="at most 12"):
        adopt(cfg.replace({"format.max_length": 13}))


def test_adopt_has_the_dropout_of_the_user(checkpoint: Path) -> None:
    """As fine-tuning: one setting for all parts, or each its own."""
    words = [f"init={checkpoint}", "data.path=x.txt", "format.max_length=10"]

    def read(*more: str) -> list[float]:
        spec = adopt(compose("pretrain", "bert", [*words, *more]))
        names = ["embedding", "stack.cells.a", "stack.residual"]
        return [spec.select(f"model.{name}.dropout") for name in names]

    whole, attention = "model.embedding.dropout=0", "model.stack.cells.a.dropout=0.3"
    assert read() == [0.1, 0.1, 0.1]
    assert read(whole) == [0, 0, 0]
    assert read(attention, whole) == [0, 0.3, 0]
    assert read("own=[embedding]", attention, whole) == [0, 0.3, 0]
    with pytest.raises(ConfigError, match="which has no such"):
        read("model.stack.cells.f.dropout=0.1")


def test_convert_never_writes_over_something_and_leaves_nothing_half_done(
    checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    with pytest.raises(UsageError, match="not an empty folder"):
        convert(checkpoint, tmp_path / "full", to="hf")
    (checkpoint / "manifest.json").unlink()
    with pytest.raises(DataError):
        convert(checkpoint, tmp_path / "out", to="hf")
    assert not (tmp_path / "out").exists()


def test_the_exported_tokenizer_gives_the_same_ids(checkpoint: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    convert(checkpoint, tmp_path / "hf", to="hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    own = plmctl.load(checkpoint)
    assert tokenizer("The cats, ran.")["input_ids"] == [
        2,
        *own.tokenizer.encode("The cats, ran."),
        3,
    ]
    assert (
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf").config.pad_token_id == 0
    )
    assert plmctl.load(tmp_path / "hf").tokenizer.encode("the dog") == own.tokenizer.encode(
        "the dog"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 0}, "'num_attention_heads' must be 1 or more"),
        ({"hidden_size": "16"}, "'hidden_size' must be a whole number"),
        ({"hidden_dropout_prob": None}, "'hidden_dropout_prob' must be a number"),
        ({"id2label": {"a": "b"}}, "'id2label' must be numbers from 0 on, each with a name"),
        ({"architectures": 3}, "'architectures' must be a list, like \\[a,b\\] or null"),
        ({"num_attention_heads": 3}, "describes no model that can be built"),
        ({"intermediate_size": 10**6}, "says intermediate_size=1000000, and the weights"),
    ],
)
def test_a_published_config_is_refused_by_the_name_of_its_key(
    published, with_tokenizer, change: dict[str, Any], message: str
) -> None:
    folder = with_tokenizer(published("BertForMaskedLM")[1])
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DataError, match=message):
        plmctl.load(folder)


def test_a_list_for_a_special_token(published, with_tokenizer) -> None:
    folder = with_tokenizer(published("BertForMaskedLM")[1])
    (folder / "tokenizer_config.json").write_text('{"pad_token": ["[PAD]"]}')
    with pytest.raises(
        DataError, match=r"tokenizer_config\.json: damaged: 'pad_token' must be .* or text"
    ):
        plmctl.load(folder)


HEADERS: dict[str, Callable[[dict[str, Any], str], object]] = {
    "another type": lambda head, name: head[name].update(dtype="I32"),
    "no such type": lambda head, name: head[name].update(dtype="X9"),
    "another shape": lambda head, name: head[name].update(shape=[2, *head[name]["shape"]]),
    "a text for a shape": lambda head, name: head[name].update(shape="16"),
    "offsets beyond the file": lambda head, name: head[name].update(data_offsets=[0, 10**12]),
    "negative offsets": lambda head, name: head[name].update(data_offsets=[-4, 4]),
    "no offsets": lambda head, name: head[name].pop("data_offsets"),
    "no header": lambda head, name: head.clear(),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", HEADERS)
def test_weights_with_a_damaged_header_that_the_manifest_knows(
    checkpoint: Path, damage: str
) -> None:
    file = checkpoint / "model.safetensors"
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    HEADERS[damage](head, next(name for name in head if name.endswith("qkv.weight")))
    made = json.dumps(head).encode()
    file.write_bytes(len(made).to_bytes(8, "little") + made + data[8 + size :])
    _seal_anew(checkpoint)
    with pytest.raises(
        DataError,
        match=(
            r"model\.safetensors: truncated or not a weight file|disagree|does not fit this model"
        ),
    ):
        plmctl.load(checkpoint)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("\tsize: 1", "not readable as YAML"),
        ("- 1", "not a group of settings"),
        ("a: &a [*a]", "nested too deeply, or a group holds itself"),
        ("a: " + "[" * 600, "nested too deeply"),
        ("a: !!python/object/apply:os.system [x]", "not readable as YAML"),
        ("a: ${nope:1}", "refers to something else"),
        ("size: [1]", "'size' must be a mapping"),
        ("heads: 3", "'heads' must be a mapping of names to values or null"),
    ],
)
def test_a_saved_config_that_the_manifest_knows(
    checkpoint: Path, settings: str, message: str
) -> None:
    (checkpoint / "config.yaml").write_text(settings)
    _seal_anew(checkpoint)
    with pytest.raises(DataError, match=rf"config\.yaml:.*{message}"):
        plmctl.load(checkpoint)


def _seal_anew(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    seal(folder)

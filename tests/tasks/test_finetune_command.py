"""The two commands from end to end on tables of a few rows."""

import contextlib
import csv
import io
import json
import random
from pathlib import Path

import pytest
import torch

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import load
from plmctl.artifacts.model_facts import pooling
from plmctl.config import compose as config
from plmctl.config.command import find_command, perform
from plmctl.config.saved import read_spec
from plmctl.config.spec import Provenance
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, ConfigErrors, DataError, UsageError
from plmctl.core.rounding import round_floats
from plmctl.nn import tables
from plmctl.runs import finetuning
from plmctl.tasks import unlabelled
from plmctl.tasks.capabilities import submit
from plmctl.tasks.classification import Classification
from plmctl.tasks.predictions import write_submission
from plmctl.tasks.readers import files
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.training.log import Log
from plmctl.use.submitting import read_boards

WORDS = {
    "good": ["fine", "great", "lovely", "superb"],
    "bad": ["awful", "poor", "dull", "terrible"],
}
SMALL = [
    "size=tiny",
    "tokenizer.vocab_size=32",
    "train.precision=fp32",
    "optim.lr=1e-3",
    "train.threads=1",
    "train.epochs=8",
    "train.batch_size=8",
    "task.max_length=32",
]


def _table(folder, *, shuffled=False, rows=96):
    """A task that one word decides; `shuffled`: labels that nothing decides, three quarters of
    them "good".
    """
    draw = random.Random(3)
    for name, count in (("train", rows), ("dev", 32)):
        lines = ["text\tlabel"]
        for n in range(count):
            label = ("bad" if n % 4 == 0 else "good") if shuffled else ("bad" if n % 2 else "good")
            word = draw.choice(WORDS[draw.choice(["good", "bad"])] if shuffled else WORDS[label])
            lines.append(f"this is a {word} film\t{label}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def _run(verb, *words, **flags):
    """The exit code: of a command that returns what it measured, 0."""
    found = perform(config.compose(verb, None, list(words)).asked(**flags))
    return found if isinstance(found, int) else 0


def _finetune(path, run, *words, **flags):
    checkpoint = (
        [] if any(word.startswith("checkpoint=") for word in words) else ["checkpoint=null", *SMALL]
    )
    return _run(
        "finetune",
        "task=classification",
        f"task.path={path}",
        f"run.dir={run}",
        *checkpoint,
        *words,
        **flags,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    run = tmp_path_factory.mktemp("runs") / "first"
    assert _finetune(_table(folder), run) == 0
    return folder, run


@pytest.fixture(scope="module")
def sources(trained, tmp_path_factory):
    """The finished run, its Hugging Face folder, and that folder once more in our own format."""
    places = {"run": trained[1], **{to: tmp_path_factory.mktemp(to) / to for to in ("hf", "own")}}
    convert(places["run"], places["hf"], to="hf")
    convert(places["hf"], places["own"], to="plmctl")
    return places


@pytest.mark.parametrize("source", ["run", "hf", "own"])
@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_a_dry_run_reads_each_sort_of_checkpoint(trained, sources, tmp_path, capsys, task, source):
    path = trained[0]
    if task == "tagging":
        path = tmp_path
        for name in ("train", "dev"):
            (path / f"{name}.txt").write_text("a O\nfilm B-X\n\n" * 8, encoding="utf-8")
    words = [f"task={task}", f"task.path={path}", f"checkpoint={sources[source]}"]
    _run("finetune", *words, "task.max_length=32", dry_run=True, json=True)
    found = json.loads(capsys.readouterr().out)
    backbone = load(sources[source]).model.backbone
    assert found["metrics"]["train"]["parameters of backbone"] == tables.count(backbone)
    assert found["costs"]["seconds"] > 0


def test_learns_keeps_the_best_and_writes_what_it_says(trained):
    _, run = trained
    result = json.loads((run / "result.json").read_text())
    assert result["metrics"]["dev"]["accuracy"] > 0.9
    assert result["labels"] == ["bad", "good"]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scores = [record["valid/accuracy"] for record in records if "valid/accuracy" in record]
    assert len(scores) == 8  # once an epoch
    lines = [record["step"] for record in records if "lr" in record]
    assert lines == [1, *range(9, 97, 9), 96]  # ten lines of 96 updates, the first and the last
    assert result["metrics"]["dev"]["accuracy"] == pytest.approx(max(scores), abs=1e-6)
    baselines = json.loads((run / "baselines.json").read_text())["dev"]
    assert (baselines["most frequent in train"]["accuracy"], baselines["words"]["accuracy"]) == (
        0.5,
        1.0,
    )


def test_saved_predictions_give_the_same_digits_in_training_and_eval(trained):
    _, run = trained
    result = json.loads((run / "result.json").read_text())["metrics"]["dev"]
    saved = [
        json.loads(line) for line in (run / "predictions" / "dev.jsonl").read_text().splitlines()
    ]
    kind = {
        "columns": {},
        "max_length": 16,
        "metrics": ["accuracy", "macro_f1"],
        "label_names": ["bad", "good"],
    }
    task = Classification(name="x", reader=Table(splits={}), **kind)
    assert round_floats(task.score(saved)) == {
        name: value for name, value in result.items() if name != "loss"
    }
    assert _run("eval", f"checkpoint={run}", json=True) == 0
    again = [json.loads(line) for line in (run / "eval" / "dev.jsonl").read_text().splitlines()]
    assert again == saved


@pytest.fixture(scope="module")
def in_bf16(trained, tmp_path_factory):
    """A run that was trained in bf16, and what it said."""
    folder, run = trained
    place, said = tmp_path_factory.mktemp("bf16") / "run", io.StringIO()
    with contextlib.redirect_stderr(said):
        words = (
            "train.precision=bf16",
            "task.max_length=32",
            "train.epochs=null",
            "train.steps=4",
            "train.eval_every=4",
            "train.threads=1",
        )
        assert _finetune(folder, place, f"checkpoint={run}", *words) == 0
    return place, said.getvalue()


def _probabilities(file):
    return [
        list(json.loads(line)["probabilities"].values()) for line in file.read_text().splitlines()
    ]


@pytest.mark.slow  # trains in two precisions
@torch.no_grad()
def test_predictions_are_those_of_fp32_whatever_trained_the_model(in_bf16, tmp_path):
    run, said = in_bf16
    assert "validation in bf16, as training; predictions/ and result.json in fp32" in " ".join(
        said.split()
    )
    assert _run("eval", f"checkpoint={run}", f"out={tmp_path}") == 0
    found = _probabilities(tmp_path / "dev.jsonl")
    assert found == _probabilities(run / "predictions" / "dev.jsonl")
    loaded = plmctl.load(run)
    texts = [
        line.split("\t")[0]
        for line in Path(loaded.config["task"]["path"], "dev.tsv").read_text().splitlines()[1:]
    ]
    for text, probabilities in zip(texts, found, strict=True):
        ids = [loaded.vocab.cls, *loaded.tokenizer.encode(text), loaded.vocab.sep]
        row = Batch(
            torch.zeros(1), {"text": Seq(torch.tensor([ids]), torch.tensor([len(ids)]), full=True)}
        )
        pooled = loaded.model.heads["pooler"](loaded.model(row).last[:, 0])
        wanted = loaded.model.heads["class"](pooled)[0].double().softmax(-1).tolist()
        assert probabilities == pytest.approx(wanted, rel=2e-5)


@pytest.mark.parametrize(("precision", "digits"), [("fp32", 6), ("bf16", 3)])
def test_numbers_have_as_many_digits_as_were_computed(in_bf16, tmp_path, precision, digits, capsys):
    assert (
        _run(
            "eval",
            f"checkpoint={in_bf16[0]}",
            f"out={tmp_path}",
            f"precision={precision}",
            json=True,
        )
        == 0
    )
    numbers = [number for row in _probabilities(tmp_path / "dev.jsonl") for number in row]
    assert numbers == [float(f"{number:.{digits}g}") for number in numbers]
    assert any(number != float(f"{number:.{digits - 1}g}") for number in numbers)
    told = json.loads(capsys.readouterr().out)["metrics"]["dev"]
    assert told == {name: float(f"{value:.6g}") for name, value in told.items()}


@pytest.mark.parametrize("verb", ["eval", "embed", "generate"])
def test_inference_is_in_fp32_unless_asked_otherwise(verb):
    assert find_command(verb)()["precision"] == "fp32"


def test_labels_new_lines(trained, tmp_path, capsys):
    _, run = trained
    (tmp_path / "new.txt").write_text("this is a superb film\nthis is a dull film\n")
    assert (
        _run(
            "eval",
            f"checkpoint={run}",
            f"input={tmp_path / 'new.txt'}",
            f"out={tmp_path / 'out'}",
            json=True,
        )
        == 0
    )
    found = [
        json.loads(line)["guess"]
        for line in (tmp_path / "out" / "new.jsonl").read_text().splitlines()
    ]
    assert found == ["good", "bad"]
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert (
        _run(
            "eval",
            f"checkpoint={run}",
            f"input={tmp_path / 'new.txt'}",
            f"out={tmp_path / 'labelled.csv'}",
        )
        == 0
    )
    rows = [line.split(",") for line in (tmp_path / "labelled.csv").read_text().splitlines()]
    assert rows[0] == ["text", "id", "guess", "probabilities.bad", "probabilities.good"]
    assert [row[:3] for row in rows[1:]] == [
        ["this is a superb film", "0", "good"],
        ["this is a dull film", "1", "bad"],
    ]
    capsys.readouterr()
    (tmp_path / "more.csv").write_text('text\na film\n""\n')
    assert _run("eval", f"checkpoint={run}", f"input={tmp_path / 'more.csv'}") == 0
    assert "1 of 2 texts is empty, the first" in "".join(capsys.readouterr())


@pytest.mark.parametrize("words", [["input=-"], ["input={new}", "out=-"]])
def test_labels_go_to_standard_output(trained, tmp_path, capsys, monkeypatch, words):
    _, run = trained
    lines = "this is a superb film\nthis is a dull film\n"
    (tmp_path / "new.txt").write_text(lines)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    monkeypatch.chdir(tmp_path)
    words = [word.format(new=tmp_path / "new.txt") for word in words]
    assert _run("eval", f"checkpoint={run}", *words) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["guess"] for row in rows] == ["good", "bad"]
    assert "\n".join(row["text"] for row in rows) + "\n" == lines
    assert "predictions: standard output" in err
    assert "rows: 2" in err
    assert [each.name for each in tmp_path.iterdir()] == ["new.txt"]
    with pytest.raises(ConfigError, match="a folder, with --submission"):
        _run("eval", f"checkpoint={run}", "out=-", submission=True)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
def test_a_file_in_pieces_is_answered_as_in_one(trained, tmp_path, capsys, monkeypatch, kind):
    _, run = trained
    texts = [f"this is a {w} film" for w in (*WORDS["good"], *WORDS["bad"])] + ["", "dull", "fine"]
    texts += ["this film is " + "very " * 40 + "long"]
    spell = {
        "csv": lambda n, text: f'"{text}",{n}',
        "jsonl": lambda n, text: json.dumps({"text": text, **({"id": f"x{n}"} if n > 8 else {})}),
        "txt": lambda n, text: text,
    }[kind]
    lines = [*(["text,guess"] if kind == "csv" else []), *map(spell, range(12), texts)]
    (tmp_path / f"new.{kind}").write_text("\n".join(lines) + "\n")
    found, told = [], []
    for size in (100, 4):
        monkeypatch.setattr(unlabelled, "PIECE", size)
        out = tmp_path / f"{size}.csv"
        words = [f"checkpoint={run}", f"input={tmp_path / f'new.{kind}'}", f"out={out}"]
        assert _run("predict", *words, json=True) == 0
        printed, err = capsys.readouterr()
        told.append((json.loads(printed) | {"predictions": ""}, err))
        found.append(list(csv.DictReader(out.open())))
    assert told[0] == told[1]
    assert told[1][0]["rows"] == 12
    assert told[1][0]["empty"] == 1
    assert told[1][0]["cut"] == 1
    numbers = ["probabilities.good", "probabilities.bad"]
    for whole, pieces in zip(*found, strict=True):
        assert list(whole) == list(pieces)
        for name in whole:
            same = pytest.approx(float(whole[name]), abs=1e-5) if name in numbers else whole[name]
            assert (float(pieces[name]) if name in numbers else pieces[name]) == same


def test_a_mistake_in_a_later_piece_leaves_no_file(trained, tmp_path, capsys, monkeypatch):
    _, run = trained
    monkeypatch.setattr(unlabelled, "PIECE", 2)
    (tmp_path / "new.jsonl").write_text('{"text": "fine"}\n' * 5 + '{"body": "dull"}\n')
    with pytest.raises(DataError, match=r"new\.jsonl:6: no field text"):
        _run(
            "eval", f"checkpoint={run}", f"input={tmp_path / 'new.jsonl'}", f"out={tmp_path}/o.csv"
        )
    assert [each.name for each in tmp_path.iterdir()] == ["new.jsonl"]


def test_starts_from_a_checkpoint_with_its_pooler_and_tokenizer(trained, tmp_path, capsys):
    folder, run = trained
    assert _finetune(folder, tmp_path / "second", f"checkpoint={run}", "train.epochs=1") == 0
    done = capsys.readouterr()
    said = done.err
    line = "".join(done.out.split("\n"))
    own = f"{tmp_path}/second"
    assert f"checkpoint=null tokenizer.path={own}/tokenizer run.dir={own}-random" in line
    assert "nothing is new" in said
    assert "task.max_length=32 instead of task.max_length=128: at most 32, the longest" in said
    assert "max_length: 32\n" in (tmp_path / "second/config.yaml").read_text()
    for name in ("model=encoder", "size=mini", "tokenizer=unigram"):
        with pytest.raises(ConfigError, match="checkpoint decides this"):
            _finetune(folder, tmp_path / "third", f"checkpoint={run}", name)
    with pytest.raises(ConfigError, match=r"task.max_length=64: at most 32"):
        _finetune(folder, tmp_path / "third", f"checkpoint={run}", "task.max_length=64")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "train.tsv").write_text("txt\tlabel\na\tb\n")
    words = [f"checkpoint={run}", "task.max_length=64"]
    with pytest.raises(ConfigErrors) as both:  # the files are looked at in any case
        _finetune(tmp_path / "wrong", tmp_path / "third", *words)
    assert "task.max_length=64: at most 32" in str(both.value)
    assert "train.tsv: expected column text" in str(both.value)
    assert not (tmp_path / "third").exists()


@pytest.mark.slow  # test_tuning.py repeats with other seeds
def test_head_seed_is_apart_from_the_seed(tmp_path, trained):
    folder, _ = trained
    losses = {}
    for name, words in {"a": ["head_seed=1"], "b": ["head_seed=2"], "c": ["head_seed=1"]}.items():
        _finetune(folder, tmp_path / name, *words, "train.epochs=null", "train.steps=1")
        losses[name] = json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[0])[
            "loss/class"
        ]
    assert losses["a"] == losses["c"] != losses["b"]


def test_resume_goes_on_bit_for_bit(tmp_path, trained):
    from plmctl.runs.resume import resume_spec

    folder, _ = trained
    _finetune(folder, tmp_path / "whole", "train.epochs=null", "train.steps=8", "schedule=constant")
    _finetune(folder, tmp_path / "parts", "train.epochs=null", "train.steps=5", "schedule=constant")
    changed = ("train.steps=8", f"run.dir={tmp_path / 'parts'}")
    cfg = resume_spec(Provenance("finetune", overrides=changed, resume=True))
    assert finetuning.finetune(cfg) == 0
    one, two = (
        (tmp_path / name / "checkpoints" / "step-8" / "model.safetensors").read_bytes()
        for name in ("whole", "parts")
    )
    assert one == two


def _resumed(run, *words):
    from plmctl.runs.resume import resume_spec

    cfg = resume_spec(Provenance("finetune", overrides=(f"run.dir={run}", *words), resume=True))
    return finetuning.finetune(cfg)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder of data, and a run of 2 updates over it."""
    folder = tmp_path_factory.mktemp("stopped")
    _finetune(
        _table(folder), folder / "run", "train.epochs=null", "train.steps=2", "schedule=constant"
    )
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:1], lines[1].replace("good", "bad"), *lines[2:]],
        lambda lines: lines[:-20],
    ],
)
def test_resume_refuses_other_examples(stopped, change):
    file = stopped / "train.tsv"
    before = file.read_text()
    file.write_text("\n".join(change(before.splitlines())) + "\n")
    try:
        with pytest.raises(
            DataError,
            match=(
                r"was reading other rows \(fingerprint differ\)\n  fix: # resume with the same"
                r" examples"
            ),
        ):
            _resumed(stopped / "run", "train.steps=3")
    finally:
        file.write_text(before)


def test_resume_refuses_a_config_that_was_edited_by_hand(stopped):
    file = stopped / "run" / "config.yaml"
    before = file.read_text()
    assert "lr: 0.001" in before
    file.write_text(before.replace("lr: 0.001", "lr: 0.5"))
    try:
        message = (
            r"optim.lr=0.5: \S+step-2 was trained with 0.001; --resume keeps it\n  fix: # optim.lr:"
            r" 0.001 in config.yaml"
        )
        with pytest.raises(ConfigError, match=message):
            _resumed(stopped / "run", "train.steps=3")
    finally:
        file.write_text(before)


@pytest.mark.slow  # test_resume_goes_on_bit_for_bit stays
def test_resume_says_that_other_micro_batches_are_not_bit_exact(stopped, tmp_path, capsys):
    from shutil import copytree

    copytree(stopped / "run", tmp_path / "run")
    # what null means
    assert _resumed(tmp_path / "run", "train.steps=3", "train.micro_batch_size=8") == 0
    assert "bit-exact" not in capsys.readouterr().err
    assert _resumed(tmp_path / "run", "train.steps=4", "train.micro_batch_size=4") == 0
    assert "not bit-exact from here on: train.micro_batch_size 8 -> 4\n" in capsys.readouterr().err


def test_a_metric_that_is_not_known_is_refused_with_those_that_are(trained, tmp_path):
    folder, _ = trained
    known = "of accuracy, macro_f1, matthews, exact, parity, mean"
    for words, message in {
        ("task.metrics=[accuracy,auc]",): rf"task.metrics=\['accuracy', 'auc'\]: {known}$",
        ("task.metrics=[acuracy]",): rf"{known} \(did you mean 'accuracy'\?\)$",
        (
            "task.metrics=[f1]",
        ): rf"{known}\n  fix: task.positive=CLASS  # CLASS: the class whose F1 counts",
        ("task.metrics=[]",): r"one at least, by which the best checkpoint is chosen",
    }.items():
        with pytest.raises(ConfigError, match=message):
            _finetune(folder, tmp_path / "run", *words)
    assert not (tmp_path / "run").exists()


def test_the_last_lines_name_the_checkpoint_of_the_scores(tmp_path, trained, capsys):
    folder, _ = trained
    words = [
        "train.epochs=null",
        "train.steps=6",
        "train.eval_every=1",
        "optim.lr=1e-2",
        "schedule=constant",
    ]
    assert _finetune(folder, tmp_path / "run", *words) == 0
    best = json.loads((tmp_path / "run" / "result.json").read_text())["checkpoint"]
    said = capsys.readouterr()
    assert f"\ncheckpoint: {best}\n" in said.err
    assert Path(best).name in said.out  # the title of the table


def test_without_a_dev_split_nothing_is_scored(tmp_path, capsys):
    (_table(tmp_path) / "dev.tsv").unlink()
    assert _finetune(tmp_path, tmp_path / "run", "train.epochs=null", "train.steps=2") == 0
    said = capsys.readouterr()
    assert "no dev split (it would be dev.*" in said.err
    assert "metric" not in said.out
    assert json.loads((tmp_path / "run" / "result.json").read_text())["metrics"] == {}
    assert not (tmp_path / "run" / "predictions").exists()
    assert f"  plmctl eval checkpoint={tmp_path / 'run'} split=train\n" in said.err


def test_the_fix_for_a_missing_split_promises_no_ending(tmp_path, capsys):
    (_table(tmp_path) / "dev.tsv").unlink()
    with pytest.raises(DataError, match=r"fix: .*task\.path=\[TRAIN,DEV,TEST\]"):
        files.need(tmp_path, "dev", ["dev.*"])


def test_the_fix_for_a_folder_with_one_table_names_it(tmp_path):
    (tmp_path / "tickets.csv").write_text("text,label\n")
    (tmp_path / "README.md").write_text("notes\n")
    with pytest.raises(DataError, match=r"fix: task\.path=.*/tickets\.csv$"):
        files.need(tmp_path, "train", ["train.*"])


def test_an_interrupted_run_without_dev_goes_on(tmp_path, monkeypatch):
    import signal

    from plmctl.runs.resume import resume_spec

    (_table(tmp_path) / "dev.tsv").unlink()
    record = Log.record

    def interrupt(log, entry, **also):
        monkeypatch.setattr(Log, "record", record)  # a second signal would end this process
        record(log, entry, **also)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Log, "record", interrupt)  # the first update is logged
    assert _finetune(tmp_path, tmp_path / "run", "train.epochs=null", "train.steps=100000") == 130
    monkeypatch.undo()
    done = max(
        int(path.name.removeprefix("step-"))
        for path in (tmp_path / "run" / "checkpoints").glob("step-*")
    )
    words = (f"run.dir={tmp_path / 'run'}", f"train.steps={done + 2}")
    cfg = resume_spec(Provenance("finetune", overrides=words, resume=True))
    assert finetuning.finetune(cfg) == 0
    assert (tmp_path / "run" / "checkpoints" / f"step-{done + 2}").is_dir()


def test_an_encoder_may_have_robertas_head(tmp_path, trained):
    folder, _ = trained
    head = ["model.classifier.pooler=false", "model.classifier.dense=true"]
    _finetune(folder, tmp_path / "run", *head, "train.epochs=null", "train.steps=1")
    from plmctl import load

    assert {name for name, _ in load(tmp_path / "run").model.heads.named_parameters()} == {
        f"class.{layer}.{kind}" for layer in ("dense", "linear") for kind in ("weight", "bias")
    }


def test_a_decoder_reads_its_last_token(tmp_path, trained):
    folder, _ = trained
    words = ["model=decoder", "pattern=causal", "train.epochs=null", "train.steps=2"]
    assert _finetune(folder, tmp_path / "run", *words) == 0
    saved = read_spec(tmp_path / "run" / "checkpoints" / "step-2")
    assert saved
    assert pooling(saved) == "last"
    assert list(saved.heads) == ["class"]
    assert saved.heads["class"]["bias"] is False  # as the published class
    assert list(saved.task["label_names"]) == ["bad", "good"]


@pytest.mark.slow  # what is learned is measured above
def test_shuffled_labels_give_the_majority_score(tmp_path):
    """Control: with nothing to learn, the guesses end at the most frequent label."""
    assert _finetune(_table(tmp_path, shuffled=True), tmp_path / "run", "optim.lr=1e-3") == 0
    metrics = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["dev"]
    assert metrics["accuracy"] == pytest.approx(metrics["majority"], abs=0.1)


def test_bad_files_are_found_before_a_run_directory_exists(tmp_path):
    _table(tmp_path)
    (tmp_path / "dev.tsv").write_text("text\tlabel\na film\tgod\n")
    with pytest.raises(
        DataError,
        match=r"dev.tsv:2: label 'god' was never seen in training \(did you mean 'good'\?\)",
    ):
        _finetune(tmp_path, tmp_path / "run")
    (tmp_path / "train.tsv").write_text("")
    with pytest.raises(DataError, match=r"train.tsv: the file is empty"):
        _finetune(tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises((ConfigError, ConfigErrors), match=r"task.path"):
        config.compose("finetune", None, ["task=classification", "checkpoint=null"])


def test_wrong_uses_of_eval(trained, tmp_path):
    folder, run = trained
    with pytest.raises(ConfigError, match="was fine-tuned on classification"):
        _run("eval", f"checkpoint={run}", "task=stsb", "task.path=x")
    with pytest.raises(
        UsageError,
        match=r"(?s)this checkpoint has pooler, class.*fix: # a checkpoint with such a head",
    ):
        _run("eval", f"checkpoint={run}", "task=lm", f"data.path={__file__}")
    with pytest.raises(UsageError, match="plmctl knows no leader board of classification"):
        _run("eval", f"checkpoint={run}", submission=True)
    words = ["task=classification", f"task.path={folder}", f"out={tmp_path / 'out'}"]
    with pytest.raises(ConfigError, match=r"^task.submission='../x.tsv': leads out of its folder"):
        _run(
            "eval", f"checkpoint={run}", *words, "task.submission={dev: ../x.tsv}", submission=True
        )
    assert not list(tmp_path.iterdir())
    with pytest.raises(
        ConfigError, match=r"split='devv': one of train, dev, test \(did you mean 'dev'\?\)"
    ):
        _run("eval", f"checkpoint={run}", "split=devv")
    with pytest.raises(DataError, match=r"none\.txt: no such file"):
        _run("eval", f"checkpoint={run}", f"input={tmp_path / 'none.txt'}")


def test_settings_of_a_task_are_those_of_the_checkpoint(trained, tmp_path, capsys):
    """Columns of another name in a table to be labelled, and the first words of a wrong one."""
    _, run = trained
    (tmp_path / "new.csv").write_text("body,who\nthis is a superb film,me\n")
    words = [f"input={tmp_path / 'new.csv'}", f"out={tmp_path / 'labelled.csv'}"]
    assert _run("eval", f"checkpoint={run}", *words, "task.columns.text=body") == 0
    header, line = (tmp_path / "labelled.csv").read_text().splitlines()
    assert header.startswith("body,who,id,guess")
    assert line.startswith("this is a superb film,me,0,good")
    with pytest.raises(
        DataError, match=r"(?s)expected column text; found body.*fix: task.columns.text=body$"
    ):
        _run("eval", f"checkpoint={run}", *words, "overwrite=true")


def test_valid_means_dev(trained, capsys):
    _, run = trained
    assert _run("eval", f"checkpoint={run}", "split=valid", json=True) == 0
    assert list(json.loads(capsys.readouterr().out)["metrics"]) == ["dev"]
    assert config.compose("eval", None, ["checkpoint=x"]).split == "dev"


def test_eval_elsewhere_keeps_the_settings_of_training(tmp_path, capsys):
    """Columns are named once: what eval is not told is as it was in training."""
    _table(tmp_path)
    for name in ("train", "dev"):
        content = (tmp_path / f"{name}.tsv").read_text().replace("text\tlabel", "正文\t类别", 1)
        (tmp_path / f"{name}.tsv").write_text(content, encoding="utf-8")
    columns = ["task.columns.text=正文", "task.columns.label=类别"]
    assert (
        _finetune(tmp_path, tmp_path / "run", *columns, "train.epochs=null", "train.steps=2") == 0
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "dev.tsv").rename(tmp_path / "other" / "dev.tsv")
    capsys.readouterr()
    words = ["task=classification", f"task.path={tmp_path / 'other'}"]
    assert _run("eval", f"checkpoint={tmp_path / 'run'}", *words, json=True) == 0
    first = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]
    assert json.loads(capsys.readouterr().out)["metrics"] == first


def test_a_published_classifier_is_evaluated(trained, tmp_path, capsys):
    from plmctl.artifacts.convert import convert

    folder, run = trained
    convert(run, tmp_path / "hf", to="hf")
    capsys.readouterr()
    words = ["task=classification", f"task.path={folder}", f"out={tmp_path / 'out'}"]
    assert _run("eval", f"checkpoint={tmp_path / 'hf'}", *words, json=True) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]["dev"]
    assert found == pytest.approx(
        json.loads((run / "result.json").read_text())["metrics"]["dev"], abs=1e-5
    )
    (tmp_path / "new.txt").write_text("this is a superb film\n")
    words = ["task=classification", f"input={tmp_path / 'new.txt'}", f"out={tmp_path / 'out'}"]
    assert _run("eval", f"checkpoint={tmp_path / 'hf'}", *words) == 0
    with pytest.raises(ConfigError, match="was not fine-tuned"):
        _run("eval", f"checkpoint={tmp_path / 'hf'}", "task=conll2003", f"task.path={folder}")


def test_a_bad_line_of_input_is_named(tmp_path):
    task = Classification(
        name="x", reader=Table(splits={}), columns={"text": 0, "text2": 1}, max_length=8, metrics=[]
    )
    (tmp_path / "in.txt").write_text("one\ttwo\nalone\n")
    with pytest.raises(DataError, match=r"in.txt:2: 1 column where a pair needs 2"):
        read_unlabelled(task, str(tmp_path / "in.txt"))


def test_submission_files_are_glues(tmp_path):
    task = Classification(
        name="x", reader=Table(splits={}), columns={}, max_length=8, metrics=["accuracy"]
    )
    found = [{"id": "0", "guess": "entailment"}, {"id": "1", "guess": "not_entailment"}]
    text = write_submission(tmp_path, "RTE.tsv", submit(task, found)).read_text()
    assert text == "index\tprediction\n0\tentailment\n1\tnot_entailment\n"
    assert submit(task, [{"id": "0", "guess": 2.34567}]) == "index\tprediction\n0\t2.346\n"


def test_a_submission_without_its_files_names_them(tmp_path):
    reader = Table(splits={"test_1": ["test1.json*"], "test_2": ["test2.json*", "test.json*"]})
    how = {"name": "x", "reader": reader, "columns": {}, "max_length": 8, "metrics": ["accuracy"]}
    boards = {"test_1": "a.json", "test_2": "b.json"}
    (tmp_path / "test_public.json").write_text("{}")
    with pytest.raises(UsageError) as error:
        read_boards(Classification(**how, path=str(tmp_path), submission=boards))
    assert "looked for test_1: test1.json*; test_2: test2.json*, test.json*" in str(error.value)
    assert "fix: 'task.path={test_1: <the test file>}'" in str(error.value)
    with pytest.raises(UsageError, match="plmctl knows no leader board of x"):
        read_boards(Classification(**how, path=str(tmp_path)))


def test_a_share_of_the_examples(trained, tmp_path, capsys):
    few = ["train.share=0.25", "train.epochs=null", "train.steps=1"]
    assert _finetune(trained[0], tmp_path / "run", *few, dry_run=True) == 0
    assert "24" in capsys.readouterr().out
    assert _finetune(trained[0], tmp_path / "run", *few) == 0
    said = capsys.readouterr().err
    assert "train: 24 examples" in said
    assert "dev: 32 examples" in said

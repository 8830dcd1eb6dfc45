"""`distill=` in the two commands that train: a few updates each, what they keep, and what they
refuse before any.
"""

from __future__ import annotations

import json

import pytest
from safetensors import safe_open

from plmctl.artifacts.loading import load
from plmctl.config import compose as config
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError
from plmctl.runs import finetuning, pretraining
from plmctl.runs.resume import resume_spec

SMALL = [
    "size=tiny",
    "size.width=16",
    "size.inner_width=32",
    "train.precision=fp32",
    "train.threads=1",
    "train.batch_size=8",
    "train.steps=2",
    "train.epochs=null",
    "train.save_every=0",
    "train.eval_every=0",
    "schedule=constant",
]


def tuned(folder, name, *words, **flags):
    """Fine-tune into folder/name; later words win."""
    given = {word.partition("=")[0] for word in words}
    own = (
        []
        if "checkpoint" in given
        else ["checkpoint=null", *([] if "teacher" in given else ["tokenizer=char"])]
    )
    small = [word for word in SMALL if not (word.startswith("size") and "checkpoint" in given)]
    words = [
        "task=classification",
        "task.max_length=16",
        *own,
        f"task.path={folder / 'data'}",
        f"run.dir={folder / name}",
        *small,
        *words,
    ]
    cfg = config.compose("finetune", None, words)
    done = finetuning.finetune(cfg.asked(**flags))
    assert done["seconds"] > 0 if flags.get("dry_run") else done == 0
    return folder / name


def trained(folder, name, *words, **flags):
    """Pretrain into folder/name."""
    small = [
        word
        for word in SMALL
        if "epochs" not in word and not (word.startswith("size") and "init=" in " ".join(words))
    ]
    words = [f"run.dir={folder / name}", "format.max_length=16", *small, *words]
    cfg = config.compose("pretrain", None, words)
    assert pretraining.pretrain(cfg.asked(**flags)) == 0
    return folder / name


def logged(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def table(folder, labels=("good", "bad")):
    folder.mkdir()
    for name in ("train", "dev"):
        rows = [
            f"a {word} film\t{label}" for word, label in zip(("fine", "dull"), labels, strict=True)
        ] * 8
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a task in data/ and a teacher of four layers in teacher/."""
    folder = tmp_path_factory.mktemp("lessons")
    table(folder / "data")
    tuned(folder, "teacher", "size.num_layers=4")
    return folder


def taught(place, name, method, *words, **flags):
    return tuned(place, name, f"distill={method}", f"teacher={place / 'teacher'}", *words, **flags)


def tensors(file):
    with safe_open(file, "pt") as opened:
        names = opened.keys()
        return {name: list(opened.get_slice(name).get_shape()) for name in names}


def test_the_student_is_an_ordinary_checkpoint_without_the_teacher(place):
    run = taught(place, "kd", "kd", "distill.signals.soft.temperature=4")
    assert {"loss/class", "loss/soft/class"} <= logged(run)[0].keys()
    assert not (run / "checkpoints" / "step-2" / "objective.safetensors").exists()
    loaded = load(run)
    assert loaded.model.backbone.num_layers == 2
    own = {name for name, _ in loaded.model.named_parameters()}
    assert set(tensors(run / "checkpoints" / "step-2" / "model.safetensors")) <= own
    assert loaded.tokenizer.fingerprint == load(place / "teacher").tokenizer.fingerprint


def test_layers_alone_keep_the_last_checkpoint_and_resume_to_the_bit_with_their_projection(place):
    words = [
        "size.width=8",
        "train.steps=4",
        "train.save_every=2",
        "train.keep_last=5",
        "train.eval_every=2",
    ]
    whole = taught(place, "whole", "tinybert", *words)
    assert {"loss/hidden", "loss/attention"} <= logged(whole)[0].keys()
    assert "loss/class" not in logged(whole)[0]
    assert json.loads((whole / "result.json").read_text())["checkpoint"].endswith("step-4")
    parts = taught(place, "parts", "tinybert", *words, "train.steps=2")
    assert tensors(parts / "checkpoints" / "step-2" / "objective.safetensors") == {
        "signals.hidden.maps.0.weight": [16, 8],
        "signals.hidden.maps.0.bias": [16],
    }
    cfg = resume_spec(
        Provenance("finetune", overrides=("train.steps=4", f"run.dir={parts}"), resume=True)
    )
    assert finetuning.finetune(cfg) == 0
    for name in ("model", "objective"):
        one, two = (
            (run / "checkpoints" / "step-4" / f"{name}.safetensors").read_bytes()
            for run in (whole, parts)
        )
        assert one == two


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "method",
    ["mse", "distilbert", "patient", "mobilebert", "tinybert_prediction", "minilm", "minilmv2"],
)
def test_every_method_fits_a_teacher_of_twice_the_layers(place, method):
    run = taught(place, method, method, dry_run=True)
    assert not run.exists()


@pytest.mark.slow  # one teacher stays
def test_several_teachers(place):
    both = f"teacher=[{place / 'teacher'},{place / 'teacher'}]"
    run = tuned(place, "several", "distill=kd", both, "teacher_weights=[1,3]", "train.steps=1")
    alone = taught(place, "alone", "kd", "train.steps=1")
    assert logged(run)[0]["loss/soft/class"] == pytest.approx(
        logged(alone)[0]["loss/soft/class"], rel=1e-4
    )


def assert_refused(place, said, *words, name="refused"):
    with pytest.raises(UsageError, match=f"(?s){said}"):
        tuned(place, name, *words)
    assert not (place / name).exists()


def test_what_does_not_meet_is_said_before_any_work(place, tmp_path):
    teacher = f"teacher={place / 'teacher'}"
    assert_refused(
        place,
        "teacher=null: a run, a checkpoint or a Hugging Face folder.*distill=none",
        "distill=kd",
    )
    assert_refused(
        place, "teacher=.*nothing is learnt of it with distill=none.*distill=kd", teacher
    )
    assert_refused(
        place,
        "distill.signals.hidden.layers='uniform': skip, last or a list.*3 layers do not divide the"
        " teacher's 4"
        r".*distill.signals.hidden.layers=\[1,3,4\]",
        "distill=tinybert",
        teacher,
        "size.num_layers=3",
    )
    assert_refused(
        place,
        "size.num_heads=4: the 2 heads of the teacher",
        "distill=minilm",
        teacher,
        "size.num_heads=4",
    )
    assert_refused(
        place,
        "size.width=8: the width 16 of the teacher",
        "distill=distilbert",
        teacher,
        "size.width=8",
    )
    assert_refused(
        place,
        "task.max_length=32: at most 16, the longest row",
        "distill=kd",
        teacher,
        "task.max_length=32",
    )
    assert_refused(
        place,
        "teacher_weights=.*only several teachers",
        "distill=kd",
        teacher,
        "teacher_weights=[1]",
    )
    assert_refused(
        place,
        "teacher=.*student's labels: bad, good; it has dull, fine",
        "distill=kd",
        f"teacher={other_labels(place)}",
    )


def test_a_teacher_of_another_task_is_named_and_taken(place, capsys):
    """The same labels mean the same to a program; whether they do is for people to say, so both
    tasks are named.
    """
    other = tuned(place, "paraphrases", "task.name=paraphrases", "train.steps=1")
    capsys.readouterr()
    tuned(place, "warned", "distill=kd", f"teacher={other}", dry_run=True)
    told = (
        f"plmctl: teacher={other} was fine-tuned on paraphrases, the student learns classification;"
        " where answers are"
    )
    assert (
        f"{told} compared, its labels stand for those of classification: bad, good\n"
        in capsys.readouterr().err
    )
    taught(place, "unwarned", "kd", dry_run=True)
    assert "was fine-tuned on" not in capsys.readouterr().err


def other_labels(place):
    table(place / "other", labels=("dull", "fine"))
    return tuned(place, "others", f"task.path={place / 'other'}", "train.steps=1")


@pytest.mark.slow  # test_what_does_not_meet_is_said_before_any_work stays
def test_other_tokenizers_and_missing_heads(place, tokens_of):
    """A teacher of the same kind but another vocabulary, and one that was pretrained and never
    fine-tuned.
    """
    data = f"data.path={tokens_of('wordpiece')}"
    run = trained(place, "pretrained", data, "size.num_layers=4")
    teacher = f"teacher={run}"
    with pytest.raises(
        UsageError,
        match=r"(?s)its own, char of .*, is another than the student's .*, wordpiece.*data.path=",
    ):
        trained(place, "x", data, "distill=kd", f"teacher={place / 'teacher'}")
    assert_refused(place, "teacher: a model with the head class.*has mlm", "distill=kd", teacher)
    assert_refused(
        place,
        "(?s)teacher=.*fix: checkpoint=MODEL  # MODEL: a model with that tokenizer; "
        "or checkpoint=null tokenizer.path=",
        "distill=kd",
        f"teacher={run}",
        f"checkpoint={place / 'teacher'}",
    )
    student = trained(place, "student", data, "distill=distilbert", teacher)
    assert {"loss/mlm", "loss/soft/mlm", "loss/cosine"} <= logged(student)[0].keys()
    assert {"valid/loss/mlm", "valid/loss/cosine"} <= {
        key for record in logged(student) for key in record
    }
    again = trained(
        place, "again", data, "distill=minilm", teacher, f"init={student}", "train.steps=1"
    )
    assert {"loss/relations/attention", "loss/relations/values"} <= logged(again)[0].keys()
    assert "loss/mlm" not in logged(again)[0]

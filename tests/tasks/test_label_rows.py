"""Rows of a trained head go with the names of their labels, wherever they meet labels in another
order; transformers wrote the published models.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from plmctl.artifacts.label_rows import arrange, find_order, follow_labels, name_rows, with_order
from plmctl.artifacts.loading import Source, load, load_source
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.biaffine import Biaffine
from plmctl.heads.classify import Classify
from plmctl.heads.tag import Tag
from plmctl.tasks.answers.label_ids import label_ids
from plmctl.tasks.readers.label_text import spell_names
from tests.command import plmctl

LABELS = ["first", "second", "third", "fourth"]
HEADS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "classify": (Classify, {"dense": True}),
    "tag": (Tag, {"chain": True}),
    "biaffine": (Biaffine, {"arc_width": 3, "relation_width": len(LABELS)}),
}


def answer(head: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """What a head says, with the labels on the last axis."""
    if isinstance(head, Biaffine):
        _, as_head, as_dependent = head(x)
        return [head.relate(as_head, as_dependent, torch.tensor([[0, 1], [2, 0]]))]
    said = [head(x)]
    if isinstance(head, Tag):
        assert head.chain is not None
        said += list(head.chain())
    return said


@pytest.mark.parametrize("kind", HEADS)
def test_the_rows_of_every_head_follow_its_labels(kind: str) -> None:
    """The width is the number of labels, so that shapes alone do not tell rows from columns."""
    make, settings = HEADS[kind]
    torch.manual_seed(0)
    head = make(width=4, num_classes=4, dropout=0.0, **settings)
    for weight in head.parameters():
        nn.init.normal_(weight)
    node = {"_target_": f"{make.__module__}.{make.__name__}", "num_classes": 4}
    config = {"heads": {"class": node}, "labels": LABELS}
    tensors = {f"heads.class.{name}": t.clone() for name, t in head.state_dict().items()}
    source = Source(Path("x"), config, tensors)
    x = torch.randn(2, 3, 4)
    before = answer(head, x)
    for order in list(permutations(range(4)))[::5]:
        moved = with_order(source, "class", [LABELS[place] for place in order])
        head.load_state_dict(
            {name.removeprefix("heads.class."): t for name, t in moved.tensors.items()}
        )
        for was, now in zip(before, answer(head, x), strict=True):
            wanted = was[..., list(order)]
            if was.shape == (4, 4):  # of a chain: both axes are labels
                wanted = wanted[list(order)]
            torch.testing.assert_close(now, wanted)
        head.load_state_dict({n.removeprefix("heads.class."): t for n, t in tensors.items()})


def test_labels_are_found_by_their_names() -> None:
    assert find_order(["b", "a"], ["a", "b"]) == [1, 0]
    assert find_order(["NOT_ENTAILMENT", "Entailment"], ["entailment", "not entailment"]) == [1, 0]
    assert find_order(["a", "A"], ["A", "a"]) == [1, 0]  # each is itself
    assert find_order(["a", "A"], ["a", "á"]) is None
    assert find_order(["PER-B", "O"], ["O", "B-PER"]) == [1, 0]
    assert find_order(["U-PER", "O"], ["O", "S-PER"]) == [1, 0]
    assert find_order(["a", "b", "c"], ["a", "b"]) is None
    assert find_order(None, ["1", "0"], rows=2) == [1, 0]  # LABEL_1, LABEL_0
    assert find_order(None, ["no", "yes"], rows=2) is None


def test_names_in_the_order_of_known_ones() -> None:
    assert arrange(["neg", "neu", "pos"], ["NEU", "POS", "NEG"]) == ["neu", "pos", "neg"]
    assert arrange(["O", "B-LOC", "B-PER"], ["PER_B", "O", "LOC_B"]) == ["B-PER", "O", "B-LOC"]
    assert arrange(["a", "b"], ["b", "c"]) == ["a", "b"]
    assert arrange(["a", "b"], None) == ["a", "b"]


def test_names_that_a_user_states() -> None:
    def name(stated: list[Any] | None, known: list[Any] | None, rows: int = 2) -> Any:
        return name_rows(stated, known, rows, place="m")

    assert name(None, ["b", "a"]) == (["b", "a"], "")
    assert name(["a", "b"], ["b", "a"]) == (["b", "a"], "")  # in any order
    assert name([0, 1], None) == (["0", "1"], "")
    assert name(["no", "yes"], ["NO", "YES"])[0] == ["no", "yes"]
    assert name(["yes", "no"], ["NO", "YES"])[0] == ["no", "yes"]
    assert name(["x", "y"], ["NO", "YES"]) == (
        ["x", "y"],
        "NO, YES are called x, y here (task.label_names)",
    )
    with pytest.raises(ConfigError, match=r"names of the 2 labels.*\n.*label_names=\[0,1\]"):
        name(None, None)
    with pytest.raises(ConfigError, match=r"2 names, one for each row"):
        name(["a", "b", "c"], ["NO", "YES"])
    assert spell_names(["a", "not a", "null"]) == "\"task.label_names=[a,'not a','null']\""


WORDS = [
    *[
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "a",
        "red",
        "cat",
        "dog",
        "sees",
        "anna",
        "went",
        "to",
        "rome",
    ]
]


def publish(folder: Path, kind: str, names: list[str] | None, bias: list[float]) -> Path:
    """A tiny BERT of transformers whose classifier always says the label with the largest bias."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        num_labels=len(bias),
    )
    if names:
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}
    model = getattr(transformers, f"BertFor{kind}Classification")(config)
    nn.init.normal_(model.classifier.weight, std=0.01)
    model.classifier.bias.data = torch.tensor(bias)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return folder


def write_texts(folder: Path, labels: list[str]) -> Path:
    folder.mkdir()
    for split in ("train", "dev"):
        rows = [f"{split} the red cat sees {n}\t{labels[n % len(labels)]}" for n in range(12)]
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return folder


def write_words(folder: Path) -> Path:
    folder.mkdir()
    for split in ("train", "dev"):
        block = "anna B-PER\nred I-PER\nwent O\nto O\nrome B-LOC\ndog I-LOC\n"
        (folder / f"{split}.txt").write_text("\n".join([block] * (4 if split == "train" else 3)))
    return folder


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`eval` writes into the folder that one is in."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `eval` of a published model writes."""
    monkeypatch.chdir(tmp_path)


STILL = ["train.epochs=null", "train.steps=1", "optim.lr=1e-12", "train.device=cpu"]
STILL += ["train.precision=fp32", "train.keep_best=true"]


def scores_of(run: Path) -> dict[str, float]:
    return cast(dict[str, float], json.loads((run / "result.json").read_text())["metrics"]["dev"])


def evaluated(*words: str) -> dict[str, float]:
    found = json.loads(plmctl("eval", "--json", "device=cpu", *words).splitlines()[-1])
    return cast(dict[str, float], found["metrics"]["dev"])


@pytest.mark.parametrize(
    ("task", "names", "bias"),
    [
        ("classification", ["positive", "negative"], [0.0, 3.0]),
        ("classification", ["POSITIVE", "NEGATIVE"], [0.0, 3.0]),
        ("tagging", ["B-LOC", "I-LOC", "B-PER", "I-PER", "O"], [3.0, 0.0, 0.0, 0.0, 0.0]),
        ("tagging", ["LOC_B", "LOC_I", "PER_B", "PER_I", "O"], [3.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_fine_tuning_begins_where_evaluation_is(
    task: str, names: list[str], bias: list[float], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tags = task == "tagging"
    model = publish(tmp_path / "model", "Token" if tags else "Sequence", names, bias)
    data = (
        write_words(tmp_path / "data")
        if tags
        else write_texts(tmp_path / "data", ["negative", "negative", "positive"])
    )
    words = [f"task={task}", f"task.path={data}", f"checkpoint={model}"]
    more = ["task.metrics=[accuracy,macro_f1]"] if tags else []
    renamed = ["task.label_names=[positive,negative]"] if names[0] == "POSITIVE" else []
    wanted = evaluated(*words, *more, *renamed)
    plmctl("finetune", *words, *more, *STILL, f"run.dir={tmp_path / 'run'}")
    found = scores_of(tmp_path / "run")
    assert "nothing is new in the model" in caplog.text
    turning = "its rows are put in the order of the labels here"
    assert turning not in caplog.text
    kept = load(tmp_path / "run").config["task"]["label_names"]
    assert find_order(names, kept) == sorted(range(len(names)))
    assert found["accuracy"] == pytest.approx(wanted["accuracy"])
    assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-4)
    # again in another order, from the run itself
    turned = "[negative,positive]" if not tags else "[I-PER,O,B-LOC,I-LOC,B-PER]"
    words[-1] = f"checkpoint={tmp_path / 'run'}"
    plmctl(
        *("finetune", *words, *more, *STILL, f"run.dir={tmp_path / 'again'}"),
        f"task.label_names={turned}",
    )
    assert turning in caplog.text
    assert scores_of(tmp_path / "again")["loss"] == pytest.approx(found["loss"], rel=1e-4)
    both = f"checkpoint=[{tmp_path / 'run'},{tmp_path / 'again'}]"
    shown = json.loads(
        plmctl("eval", "--json", "device=cpu", both, f"out={tmp_path / 'e'}").splitlines()[-1]
    )
    of_each = [own["accuracy"] for own in shown["metrics"].values()]
    assert of_each == pytest.approx([found["accuracy"]] * 3)


def test_a_head_of_other_labels_is_new_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = publish(tmp_path / "model", "Sequence", None, [0.0, 3.0])
    words = ["finetune", "task=classification", *STILL, f"checkpoint={model}"]
    data = write_texts(tmp_path / "data", ["no", "yes"])

    def run(name: str, *more: str) -> str:
        caplog.clear()
        plmctl(*words, f"task.path={data}", f"run.dir={tmp_path / name}", *more)
        return caplog.text

    out = run("a")
    assert "heads.class is new: its 2 rows have no names (LABEL_0, ...)" in out
    assert "'task.label_names=[no,yes]' takes it" in out
    assert "nothing is new in the model" in run("b", "task.label_names=[no,yes]")
    words[-1] = f"checkpoint={tmp_path / 'b'}"
    data = write_texts(tmp_path / "other", ["cat", "dog"])
    out = run("c")
    assert "heads.class is new: its labels are no, yes, and those here cat, dog" in out
    assert "new and random: heads.class" in out


def test_published_names_are_asked_for_in_evaluation(tmp_path: Path) -> None:
    plain = publish(tmp_path / "plain", "Sequence", None, [0.0, 3.0])
    data = write_texts(tmp_path / "data", ["0", "1"])
    ask = ["eval", "task=classification", f"task.path={data}", "device=cpu", "--json"]
    out = plmctl(*ask, f"checkpoint={plain}", code=2)
    assert "the names of the 2 labels of its head" in out
    assert "fix: 'task.label_names=[0,1]'" in out
    assert evaluated(*ask[1:3], f"checkpoint={plain}", "task.label_names=[0,1]")["accuracy"] == 0.5
    data = write_texts(tmp_path / "words", ["no", "yes"])
    out = plmctl(
        "eval", f"task.path={data}", ask[1], f"checkpoint={plain}", "task.label_names=[0,1]", code=3
    )
    assert "fix: 'task.label_names=[no,yes]'" in out
    upper = publish(tmp_path / "upper", "Sequence", ["NO", "YES"], [0.0, 3.0])
    out = plmctl("eval", f"task.path={data}", ask[1], f"checkpoint={upper}", code=3)
    assert "label 'no' differs from 'NO' in case" in out
    assert "fix: 'task.label_names=[no,yes]'" in out


def test_a_teacher_answers_in_the_order_of_the_student(tmp_path: Path) -> None:
    names = ["positive", "negative"]
    teacher = publish(tmp_path / "teacher", "Sequence", names, [0.0, 3.0])
    same = load(teacher)
    turned = load_source(with_order(same.source, "class", names[::-1]))
    features = torch.randn(3, 16)
    with torch.no_grad():
        a, b = (each.model.heads["class"](features) for each in (same, turned))
    torch.testing.assert_close(b, a.flip(-1))
    data = write_texts(tmp_path / "data", names)
    words = ["task=classification", f"task.path={data}", "distill=kd", f"teacher={teacher}"]
    words += ["task.max_length=32", "size=tiny", "size.width=16", "size.num_heads=2"]
    words += ["checkpoint=null", *STILL]
    plmctl("distill", *words, f"run.dir={tmp_path / 'run'}")
    found = json.loads((tmp_path / "run" / "result.json").read_text())["distillation"]
    theirs = evaluated(f"checkpoint={teacher}", *words[:2])
    of_teacher = found["teacher"]
    assert of_teacher["accuracy"] == pytest.approx(theirs["accuracy"])
    assert of_teacher["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    plain = publish(tmp_path / "plain", "Sequence", None, [0.0, 3.0])
    words[3] = f"teacher={plain}"
    out = plmctl("distill", *words, f"run.dir={tmp_path / 'b'}", code=2)
    assert "have no names (LABEL_0, ...)" in out
    assert "fix: 'task.label_names=[negative,positive]'" in out


def test_rows_of_unknown_parts_are_left_out() -> None:
    """A head that does not say which axes are labels is new where their order is another."""
    node = {"_target_": "plmctl.heads.pooler.Pooler"}
    config = {"heads": {"class": node}, "labels": ["a", "b"]}
    source = Source(Path("x"), config, {"heads.class.linear.weight": torch.ones(2, 2)})
    said: list[str] = []
    kept = follow_labels(source, {"class": ["c", "d"]}, stated=False, say=said.append)
    assert not kept.tensors
    assert said
    assert follow_labels(
        replace(source, config={**config, "labels": ["c", "d"]}),
        {"class": ["c", "d"]},
        stated=False,
        say=said.append,
    ).tensors


def test_a_proposed_order_of_names_says_that_it_is_one() -> None:
    with pytest.raises(DataError, match="if these stand for bad, good, mid in this order"):
        label_ids([("0", "a:1"), ("2", "a:2"), ("1", "a:3")], ["bad", "good", "mid"])

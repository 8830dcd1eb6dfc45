"""Tokens that stand for the entities of a task behind its words: their states and answers against
transformers' classes, cut rows, episodes, and runs that are saved, continued and read again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from plmctl import load
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.heads.classify import Classify
from plmctl.heads.features import ScalarMix
from plmctl.models.base import Model
from plmctl.nn.entity_tokens import FIRST, MASKED
from plmctl.tasks import batches
from plmctl.tasks.entity_typing import EntityTyping
from plmctl.tasks.few_shot import FewShot
from plmctl.tasks.readers.entity_types import TypingFiles
from plmctl.tasks.readers.relation import RelationFiles
from plmctl.tasks.record import Example
from plmctl.tasks.relation import RelationClassification
from tests.command import plmctl
from tests.commands.test_pretrain_command import same
from tests.models.test_luke import PLACES, V, W, ask, build, copy, published

TEXTS = ["the cat sat on one mat", "cat on a mat", "a big old dog or a cat sat all day by one mat"]
SPLITS = {"train": ["train.*"], "dev": ["dev.*"]}
LABELS = ["a", "b", "c"]


def make_task(count: int, **more: Any) -> Any:
    settings: dict[str, Any] = {
        "name": "toy",
        "max_length": PLACES,
        "label_names": LABELS,
        "states": "entities",
        **more,
    }
    if count == 1:
        return EntityTyping(reader=TypingFiles(splits=SPLITS), metrics=["f1"], **settings)
    reader = RelationFiles(splits=SPLITS)
    return RelationClassification(reader=reader, metrics=["accuracy"], **settings)


def make_example(text: str, words: list[str], label: Any = None) -> Example:
    places = [(text.index(word), text.index(word) + len(word)) for word in words]
    entities = [{"start": a, "end": b, "id": "", "type": ""} for a, b in places]
    return Example("0", {"text": text, "entities": entities}, label)


def make_batch(task: Any, toy: Any) -> Batch:
    """Rows of 8, 6 and 12 tokens, the last one cut; ids are those of a small table."""
    examples = [make_example(text, ["cat", "mat"][: task.layout.count]) for text in TEXTS]
    rows = task.encode(examples, toy)
    text = rows.seqs["text"]
    ids = np.where(text.ids < 5, text.ids, 5 + text.ids % (V - 5))
    rows = rows.with_seq("text", replace(text, ids=ids))
    return batches.collate(rows, np.arange(3))


@pytest.mark.parity
@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_answers_are_those_of_transformers(count: int, aware: bool, toy: Any) -> None:
    kind = {1: "LukeForEntityClassification", 2: "LukeForEntityPairClassification"}[count]
    theirs = published(aware, kind, num_labels=len(LABELS))
    task = make_task(count, marks="none")
    bone = build(aware, asked=2)
    copy(theirs, bone, aware)
    head = Classify(
        width=W, num_classes=3, dropout=0.0, bias=count == 1, vectors=task.requires.vectors
    )
    head.linear.load_state_dict(theirs.classifier.state_dict())
    state = theirs.state_dict()["luke.entity_embeddings.entity_embeddings.weight"]
    assert bone.entities.asked is not None
    with torch.no_grad():  # [HEAD] and [TAIL] are two of their entities
        bone.entities.asked.weight.copy_(state[FIRST : FIRST + 2])
    model = Model(backbone=bone, heads={task.facts.head: head}).eval()
    batch = make_batch(task, toy)
    wanted = ask(theirs, batch, torch.arange(FIRST, FIRST + count).expand(3, -1)).logits
    with torch.no_grad():
        (found,) = task.logits(model, batch).values()
    assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    assert (found[0] - found[1]).abs().max() > 1e-3


def test_entities_stand_where_they_are_marked(toy: Any) -> None:
    batch = make_batch(make_task(2, marks="symbols"), toy)
    entities, text = batch.seqs["entities"], batch.text
    assert entities.view
    assert entities.ids.tolist() == [[-1, -2]] * 3
    assert entities.length.tolist() == [2, 2, 2]
    # [CLS] the # cat # sat on one $ mat $ [SEP], with the mark before each
    start, size = entities.tracks["mention_start"], entities.tracks["mention_size"]
    assert (start[0].tolist(), size[0].tolist()) == ([2, 8], [2, 2])
    assert text.length.tolist() == [12, 10, 12]
    assert ((start + size)[2] <= 11).all()  # of a text that is cut, too
    assert (size > 0).all()


def test_one_far_away_is_cut_off(toy: Any) -> None:
    """It stands at the last token that is left, and the answer is a number."""
    task = make_task(2, marks="none")
    text = "cat " + "sat " * 30 + "mat"
    batch = batches.collate(task.encode([make_example(text, ["cat", "mat"])], toy), np.arange(1))
    tracks = batch.seqs["entities"].tracks
    assert batch.text.length.tolist() == [PLACES]
    assert tracks["mention_start"].tolist() == [[1, PLACES - 2]]
    assert tracks["mention_size"].tolist() == [[1, 1]]
    ids = replace(batch.text, ids=batch.text.ids % V)
    states = build(asked=2)(replace(batch, seqs={**batch.seqs, "text": ids})).streams["entities"]
    assert states.isfinite().all()


def test_what_is_asked_about_begins_as_the_hidden_entity(toy: Any) -> None:
    model, batch = build(asked=2), make_batch(make_task(2), toy)
    model.entities.fit_in()
    entities = batch.seqs["entities"]
    hidden = replace(entities, ids=torch.full_like(entities.ids, MASKED))
    same = replace(batch, seqs={**batch.seqs, "entities": hidden})
    assert torch.equal(model(batch).streams["entities"], model(same).streams["entities"])
    model(batch).streams["entities"].sum().backward()
    assert model.entities.asked is not None
    assert model.entities.asked.weight.grad is not None
    assert (model.entities.asked.weight.grad.abs().sum(-1) > 0).all()
    table = model.entities.table.weight.grad
    assert table is None or not table.any()


def test_a_model_without_them_is_refused() -> None:
    task, heads = make_task(2), {"features": ScalarMix(width=W, num_layers=2)}
    task.check_model(Model(backbone=build(), heads={}))
    with pytest.raises(
        ConfigError, match=r"no tokens of entities\n.*task.states=start  # or check"
    ):
        task.check_model(Model(backbone=build(read_entities=False), heads={}))
    with pytest.raises(ConfigError, match=r"heads.features: null: .* last states"):
        task.check_model(Model(backbone=build(), heads=heads))
    make_task(2, states="start").check_model(Model(backbone=build(), heads=heads))
    with pytest.raises(ConfigError, match="states of entities stand before"):
        make_task(1, sees_later=False)


def test_episodes(toy: Any) -> None:
    """The sentences of episodes keep the tokens of their entities."""
    task = FewShot(
        name="toy", reader=RelationFiles(splits=SPLITS), max_length=PLACES, metrics=["accuracy"],
        ways=2, shots=1, queries=1, episodes={"dev": 3}, states="entities",
    )  # fmt: skip
    sentences = [make_example(t, ["cat", "mat"], label) for t in TEXTS[:2] for label in "ab"]
    rows = task.encode(task.episodes.draw(sentences, "dev"), toy)
    starts = {len(text): rows.seqs["entities"].tracks["mention_start"] for text in TEXTS[:1]}
    (found,) = starts.values()
    assert found.shape == (12, 2)
    own = rows.values["mentions"].reshape(-1, 2, 2)[..., 0]
    assert (found == own).all()
    assert len({tuple(each) for each in found.tolist()}) == 2


TINY = [
    *("size.width=8", "size.num_layers=1", "size.num_heads=1", "size.inner_width=16"),
    *("train.batch_size=4", "train.device=cpu", "train.log_every=1", "train.threads=1"),
]
FINETUNE = ["finetune", "task=relation", "task.path=relations.json", "task.max_length=32"]
FINETUNE += ["task.states=entities", "task.dev_share=0", *TINY[4:]]

ASKED = "backbone.entities.asked.weight"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linked text, and relations that the order of two entities tells apart."""
    monkeypatch.chdir(tmp_path)
    marked = {"text": TEXTS[0], "entity": [{"start": 4, "end": 7, "id": 3}]}
    Path("text.jsonl").write_text(f"{json.dumps(marked)}\n" * 20)
    row = {"tokens": TEXTS[0].split(), "h": ["cat", "Q1", [[1]]], "t": ["mat", "Q2", [[5]]]}
    other = {**row, "h": row["t"], "t": row["h"]}
    Path("relations.json").write_text(json.dumps({"P1": [row] * 8, "P2": [other] * 8}))


def pretrain(*words: str) -> None:
    given = ["data.path=text.jsonl", "tokenizer.vocab_size=270", "format.max_length=32"]
    given += ["model.entities.count=5", "train.steps=1", "eval.rows=4", "run.dir=luke"]
    plmctl("pretrain", "luke", *given, *TINY, *words)


@pytest.mark.slow  # test_finetune_command.py resumes
def test_a_run_is_continued_and_read_again(files: None) -> None:
    pretrain()
    words = [*FINETUNE, "checkpoint=luke", "train.epochs=null", "train.steps=3"]
    plmctl(*words, "train.save_every=2", "train.keep_last=9", "run.dir=whole")
    shutil.copytree("whole", "part")
    shutil.rmtree("part/checkpoints/step-3")
    plmctl("finetune", "--resume", "run.dir=part")
    assert same(Path("whole/checkpoints/step-3"), Path("part/checkpoints/step-3"))
    plmctl("eval", "checkpoint=part", "split=train", "out=read.jsonl")
    plmctl("eval", "checkpoint=whole", "split=train", "out=once.jsonl")
    assert Path("read.jsonl").read_text() == Path("once.jsonl").read_text()
    again = [*FINETUNE, "checkpoint=part", "train.steps=1", "train.epochs=null"]
    plmctl(*again, "train.frozen=[backbone]", "run.dir=again")
    first, second = (load(run).model.get_parameter(ASKED) for run in ("part", "again"))
    assert torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_a_model_without_them_is_refused_before_work(files: None) -> None:
    pretrain("model.read_entities=false", "objective=[mlm]")
    told = plmctl(*FINETUNE, "checkpoint=luke", "run.dir=no", code=2)
    assert "task.states='entities': start, mean or row" in told
    told = plmctl(*FINETUNE, "checkpoint=null", "model=encoder", "run.dir=no", code=2)
    assert "fix: task.states=start  # or checkpoint=<a run of plmctl pretrain luke>" in told
    assert not Path("no").exists()


def test_longer_rows_than_in_training_where_positions_have_no_bound(files: None) -> None:
    pretrain("position=rotary")
    row = {"tokens": TEXTS[0].split() * 9, "h": ["cat", "Q1", [[1]]], "t": ["mat", "Q2", [[50]]]}
    Path("relations.json").write_text(json.dumps({"P1": [row] * 4, "P2": [row] * 4}))
    words = ["task.max_length=400", "train.steps=1", "train.epochs=null", "run.dir=long"]
    plmctl(*FINETUNE, "checkpoint=luke", *words)
    model = load("long").model
    assert len(model.get_parameter("backbone.entities.position.weight")) == 32

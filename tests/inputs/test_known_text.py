"""What knows nothing of a text is refused, what knows a part says how much, and files that are not
there are told with all that is wrong with the settings.
"""

from __future__ import annotations

import bz2
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.headers import header
from plmctl.config.recipes import find_recipe
from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.facts import FactTable
from plmctl.knowledge.known import TextSample, describe_known
from plmctl.knowledge.vectors import GraphVectors, find_vectors
from plmctl.nn.entities import EntityVectors
from plmctl.noise.entity_tokens import EntityTokenMask
from plmctl.tasks.layouts.marked_rows import MarkedRows
from plmctl.tasks.record import Example
from tests.config.test_every_problem import problems
from tests.knowledge.tables import write_knowledge
from tests.knowledge.wiki import export, page
from tests.noise.plain_rows import make_vocab

SHORT = [
    *("size.width=8", "size.num_layers=1", "size.num_heads=1", "size.inner_width=16"),
    *("train.steps=1", "train.batch_size=4", "format.max_length=32", "eval.rows=4"),
    *("tokenizer.vocab_size=600", "train.device=cpu", "run.dir=run"),
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def start(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(make_app(), [*words])
    return done.exit_code, done.output


def pretrain(recipe: str, text: Path, *words: str) -> tuple[int, str]:
    return start("pretrain", recipe, f"data.path={text}", *SHORT, *words)


VOCAB = make_vocab(
    6,
    specials=2,
    word_start=np.array([0, 1, 1, 1, 0, 1], bool),
    texts=("", "", "good", "dog", "ly", "."),
)


def sample(documents: list[int] = [], entities: list[int] = []) -> TextSample:  # noqa: B006
    ids = np.array([4, 2, 3, 2, 4, 5, 1, 3])  # ly | good dog goodly . ? dog
    return TextSample(VOCAB, ids, np.array(documents, int), np.array(entities, int))


def test_words_of_a_text() -> None:
    assert sample().words == {"good": 1, "dog": 2, "goodly": 1}
    assert sample().count_words({"dog": 1, "cat": 1}.get) == (2, 4)


def test_what_is_said_of_a_share() -> None:
    assert describe_known(1, 40, "words are known", fix="") == "1 of 40 words are known (2.5%)"
    assert describe_known(1, 400, "words are known", fix="").endswith(
        "a model learns little of them"
    )
    with pytest.raises(DataError, match=r"^x: none of 0 words are known\n  fix: others$"):
        describe_known(0, 0, "words are known", fix="others", file="x")


def test_pairs_with_a_fact_are_counted_in_each_document(tmp_path: Path) -> None:
    triples = [("Paris", "in", "France"), ("France", "has", "Paris"), ("Rome", "in", "Italy")]
    table = FactTable(knowledge=str(write_knowledge(tmp_path / "k", triples=triples)))
    # Paris, France, Paris, Ada | Rome, Italy | Ada, Seine: 3 + 1 + 1 pairs, of which 2 have a fact
    text = sample([0, 0, 0, 0, 1, 1, 2, 2], [0, 3, 0, 6, 2, 4, 6, 5])
    assert table.describe_known(text).startswith("2 of 5 pairs ")
    with pytest.raises(DataError, match="none of 1 pairs"):
        table.describe_known(sample([0, 0], [5, 6]))


def write_vectors(folder: Path, names: list[str]) -> Path:
    entity = np.eye(len(names), 8, dtype=np.float32)
    GraphVectors(tuple(names), ("r",), entity, entity[:1]).write(folder)
    return folder


def test_mentions_with_a_vector(tmp_path: Path) -> None:
    knowledge = write_knowledge(tmp_path / "k")
    path = write_vectors(tmp_path / "run" / "vectors", ["Rome", "Seine"]).parent
    assert find_vectors(path) == path / "vectors" == find_vectors(path / "vectors")
    table = EntityVectors(entity_width=8, path=str(path), knowledge=str(knowledge))
    assert table.describe_known(sample([0, 0, 0], [2, 5, 6])).startswith("2 of 3 mentions")
    with pytest.raises(DataError, match="none of 2 mentions"):
        table.describe_known(sample([0, 0], [0, 1]))
    random = EntityVectors(entity_width=8, count=2)
    told = random.describe_known(sample([0, 0], [1, 2]))
    assert told.startswith("1 of 2 mentions of entities have a random vector (50.0%): model.entit")


def test_entities_beyond_the_table_of_luke_are_said() -> None:
    text = sample([0, 0, 0, 1], [0, 2, 3, 7])
    told = EntityTokenMask(count=3).describe_known(text)
    assert told.startswith("2 of 4 mentions are of the first 3 entities (50.0%); the others are")
    assert ": model.entities.count=8, for all" in told
    all_known = EntityTokenMask(count=8).describe_known(text)
    assert all_known == "4 of 4 mentions are of the first 8 entities (100.0%)"
    with pytest.raises(DataError, match=r"none of 1 mentions .*\n  fix: model.entities.count=9"):
        EntityTokenMask(count=8).describe_known(sample([0], [8]))
    assert EntityTokenMask(count=1, control="random").describe_known(text) == ""


def test_vectors_of_a_second_base_send_to_its_own_settings(tmp_path: Path) -> None:
    home = "model.further.meaning.entities"
    path = str(write_vectors(tmp_path / "vectors", ["bank 1", "bank 2"]))
    table = EntityVectors(entity_width=8, path=path, marks="meaning")
    text = replace(sample(), others={"meaning": np.array([7, 8])})
    with pytest.raises(DataError) as unknown:
        table.describe_known(text)
    assert "none of 2 mentions marked 'meaning' have a vector" in str(unknown.value)
    assert f"fix: {home}.path=" in str(unknown.value)
    random = EntityVectors(entity_width=8, count=8, marks="meaning")
    assert f"(50.0%): {home}.path names" in random.describe_known(text)
    with pytest.raises(DataError, match=f"fix: {home}.path="):
        table.load_state_dict(random.state_dict())
    with pytest.raises(ConfigError, match=f"fix: {home}.entity_width=8"):
        EntityVectors(entity_width=4, path=path, marks="meaning")


@pytest.mark.parametrize(
    ("marks", "fix"),
    [
        ("entity", "dictionary=NAMES out=linked  # then data.path=linked/text.jsonl"),
        ("meaning", "'lexicons=[meaning:NAMES]' out=linked  # then data.path=linked/text.jsonl"),
    ],
)
def test_text_without_marks_is_sent_to_linking(marks: str, fix: str) -> None:
    table = EntityVectors(entity_width=8, count=8, marks=marks)
    with pytest.raises(DataError, match=f"no marks '{marks}'") as told:
        table.describe_known(sample())
    assert fix in str(told.value)
    assert ".entities.path" not in str(told.value)


CHINESE = "好\t1\n坏\t-1\n"
ENGLISH = "good\t1\nlist\t1\nvalue\t-1\n"


@pytest.mark.slow  # test_files_of_knowledge_are_told_with_the_settings stays
def test_a_lexicon_of_another_language(small_text: Path) -> None:
    Path("zh.tsv").write_text(CHINESE, "utf-8")
    Path("en.tsv").write_text(ENGLISH, "utf-8")
    code, told = pretrain("sentilare", small_text, "noise.sentiment_mask.lexicon.path=zh.tsv")
    assert code == 3
    assert "zh.tsv: none of " in told
    assert "fix: " in told
    assert not Path("run").exists()
    code, told = pretrain("sentilare", small_text, "noise.sentiment_mask.lexicon.path=en.tsv")
    assert code == 0, told
    assert " words of the text are in the lexicon (" in told


@pytest.mark.slow  # test_a_table_of_more_entities_than_there_are stays
def test_entities_of_no_common_type_and_other_vectors(linked_text: Path) -> None:
    lines = linked_text.with_name("entities.jsonl").read_text("utf-8").splitlines()
    alone = [{**json.loads(line), "types": []} for line in lines]
    alone += [{"name": f"new {n}", "types": ["kind"]} for n in range(2)]
    rows = map(json.loads, linked_text.read_text("utf-8").splitlines()[:40])
    text = write_knowledge(Path("alone"), alone, rows=rows) / "text.jsonl"
    code, told = pretrain("wklm", text)
    assert code == 3
    assert "none of " in told
    assert "mentions can be replaced" in told
    write_vectors(Path("vectors"), ["others 0", "others 1"])
    words = ["model.entities.path=vectors", "model.entities.entity_width=8"]
    code, told = pretrain("ernie_thu", text, *words, f"model.entities.knowledge={text.parent}")
    assert code == 3
    assert "none of its 32 entities has a vector in vectors" in told
    code, told = pretrain("ernie_thu", linked_text)
    assert code == 0, told
    assert " mentions of entities have a random vector (100.0%)" in told


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", ["ernie_thu", "luke"])
def test_a_table_of_more_entities_than_there_are(recipe: str, linked_text: Path) -> None:
    """It would need terabytes, and nothing is allocated to find that out."""
    words = [f"model.entities.count={10**11}", "model.entities.entity_width=100"]
    code, told = pretrain(recipe, linked_text, *words)
    assert code == 2
    assert "model.entities.count=100000000000: at most 30, the entities" in told
    assert "fix: model.entities.count=30" in told


@pytest.mark.parametrize(
    ("recipe", "words", "missing"),
    [
        ("sentilare", ["noise.sentiment_mask.lexicon.path=no/lexicon"], ["no/lexicon"]),
        ("sentilare", [], ["no lexicon of polarities"]),
        ("wklm", ["noise.entity_replace.knowledge=no/linked"], ["no/linked"]),
        (
            "erica",
            [f"{slot}.facts.knowledge=no/{slot[0]}" for slot in ("objective.relation_contrast",)],
            ["no/o"],
        ),
        (
            "ernie_thu",
            ["model.entities.path=no/vectors", "model.entities.knowledge=no/linked"],
            ["no/vectors", "no/linked"],
        ),
        (
            "knowbert",
            ["model.entities.path=no/vectors", "model.entities.knowledge=no/linked"],
            ["no/vectors", "no/linked"],
        ),
        ("libert", ["objective.lexical_relation.vectors=no/glove.txt"], ["no/glove.txt"]),
    ],
)
def test_files_of_knowledge_are_told_with_the_settings(
    recipe: str, words: list[str], missing: list[str]
) -> None:
    told = problems("pretrain", recipe, *words, "optim.lr=-1", "data.path=no/text")
    assert len(told) == len(missing) + 2
    for name in missing:
        assert sum(name in line for line in told) == 1


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["task=tree_classification", "task.lexicon.path=no/triples"], "no/triples"),
        (["task=relation", "task.entities=no/entities"], "no/entities"),
        (["task=entity_typing", "task.entities=no/entities"], "no/entities"),
    ],
)
def test_files_of_knowledge_of_tasks(words: list[str], missing: str) -> None:
    told = problems("finetune", *words, "task.path=no/data", "optim.lr=-1")
    assert sum(missing in line for line in told) == 1
    assert len(told) == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", ["ernie_thu", "knowbert"])
def test_the_commands_of_a_recipe_work_one_after_the_other(recipe: str) -> None:
    """What its header says of data, then its launch line, as they are typed."""
    stated = header(find_recipe(recipe))
    commands = re.findall(r"plmctl (data link|graph) (.*?)(?:;| Published)", stated.text("Data"))
    link, graph = ([*verb.split(), *words.split()] for verb, words in commands)
    names = ["Rome", "Oslo", "Bonn"]
    text = " ".join(f"The [[{name}]] of the old land." for name in names * 20)
    with bz2.open("wiki.xml.bz2", "wt", encoding="utf-8") as stream:
        stream.write(export(page(name, text) for name in names))
    Path("triples.tsv").write_text("Rome\tnear\tBonn\nBonn\tnear\tOslo\n", "utf-8")
    assert start(*link)[0] == 0
    code, told = start(*graph, "train.epochs=1", "train.device=cpu")
    assert code == 0, told
    words = [word for word in SHORT if not word.startswith("tokenizer")]
    code, told = start(*stated.command()[1:], *words, "tokenizer.vocab_size=34")
    assert code == 0, told
    assert "mentions of entities have a vector (100.0%)" in told


def test_triples_of_another_language() -> None:
    Path("data").mkdir()
    for split in ("train", "dev"):
        lines = [f"Paris is good {n}.\t{n % 2}\n" for n in range(8)]
        Path(f"data/{split}.tsv").write_text("".join(["text\tlabel\n", *lines]), "utf-8")
    words = ["finetune", "task=tree_classification", "task.path=data", "task.max_length=32", *SHORT]
    words = [word for word in words if not word.startswith(("format.", "eval."))]
    words += ["checkpoint=null", "train.epochs=null", "tokenizer.vocab_size=25"]
    Path("zh.spo").write_text("北京\t在\t中国\n", "utf-8")
    Path("en.spo").write_text("Paris\tin\tFrance\n", "utf-8")
    code, told = start(*words, "task.lexicon.path=zh.spo")
    assert code == 3, told
    assert "zh.spo: none of 8 texts" in told
    code, told = start(*words, "task.lexicon.path=en.spo")
    assert code == 0, told
    assert "8 of 8 texts of train have a word of the lexicon (100.0%)" in told


def test_entities_of_a_task_that_the_table_lacks() -> None:
    fields = {"text": "Paris in Rome", "entities": [mark(0, 5), mark(9, 13, "Q220")]}
    examples = [Example("0", fields)]
    rows = MarkedRows(count=2, entities="k")
    rows.numbers = {"Paris": 0, "Q90": 1}
    (line,) = rows.describe_known(examples, "data")
    assert line == "1 of 2 entities of train are in task.entities (50.0%)"
    rows.numbers = {"Oslo": 0}
    with pytest.raises(DataError, match=r"^k: none of 2 entities"):
        rows.describe_known(examples, "data")
    assert MarkedRows(count=2).describe_known(examples, "data") == []


def mark(start: int, end: int, name: str = "") -> dict[str, object]:
    return {"start": start, "end": end, "id": name, "type": ""}

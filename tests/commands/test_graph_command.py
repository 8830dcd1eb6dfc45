"""`plmctl graph`: trained, ranked, written, resumed bit for bit, and ranked again by `eval`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from plmctl.cli.app import make_app
from plmctl.config.recipes import recipes_dir
from plmctl.core.progress import Took
from plmctl.knowledge.graph import KnowledgeGraph
from plmctl.knowledge.triples import read_graph
from plmctl.knowledge.vectors import read_vectors
from plmctl.use import graph_evaluation
from plmctl.use.graph_evaluation import load_tables
from tests.commands.test_pretrain_command import same

SMALL = ["width=8", "train.batch_size=16", "train.threads=1", "train.precision=fp32"]


def plmctl(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(make_app(), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ring of 30 entities: `next` goes one on, `back` one back, `third` three on."""
    folder = tmp_path_factory.mktemp("ring")
    rows = [
        f"e{n}\t{name}\te{(n + step) % 30}"
        for n in range(30)
        for name, step in (("next", 1), ("back", -1), ("third", 3))
    ]
    for split, part in (("train", rows[12:]), ("valid", rows[:6]), ("test", rows[6:12])):
        (folder / f"{split}.tsv").write_text("\n".join(part) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ring"
    plmctl("graph", f"data.path={data}", *SMALL, "train.epochs=6", f"run.dir={folder}")
    return folder


def scores_of(output: str) -> dict[str, Any]:
    return json.loads(output)["metrics"]  # type: ignore[no-any-return]


def test_a_run_leaves_vectors_and_scores(run: Path, data: Path) -> None:
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert set(result["metrics"]) == {"valid", "test"}
    vectors, graph = read_vectors(run / "vectors"), read_graph(data)
    assert (vectors.entities, vectors.relations) == (graph.entities, graph.relations)
    assert vectors.entity.shape == (30, 8)
    assert vectors.relation.shape == (3, 8)
    assert vectors.inverse is not None
    assert vectors.record["metrics"] == result["metrics"]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"loss/link", "triples_per_second", "triples"} <= records[0].keys()
    assert max(record.get("triples", 0) for record in records) == 6 * 78
    assert any("valid/mrr" in record for record in records)
    assert list(run.glob("events.out.tfevents.*"))
    assert not (run / "vectors/valid.tsv").exists()  # the graph has one


def test_the_best_vectors_are_those_that_are_written(run: Path) -> None:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = max(record["valid/mrr"] for record in records if "valid/mrr" in record)
    vectors = read_vectors(run / "vectors")
    assert vectors.record["metrics"]["valid"]["mrr"] == pytest.approx(best, rel=1e-4)
    step = vectors.record["updates"]
    assert (run / f"checkpoints/step-{step}").is_dir()


@pytest.mark.parametrize("without", ["test", "valid"])
def test_a_graph_without_a_split_says_what_its_ranks_leave_out(
    without: str, run: Path, data: Path, tmp_path: Path
) -> None:
    """In a run, in a dry run and in `plmctl eval`; nothing where all three are there."""
    some = tmp_path / "some"
    shutil.copytree(data, some)
    (some / f"{without}.tsv").unlink()
    other = "valid" if without == "test" else "test"
    told = f"ranks leave out the known answers of train and {other} alone: there are no {without}"
    words = ["graph", f"data.path={some}", "data.valid_share=0", *SMALL, "train.epochs=1"]
    trained = plmctl(*words, f"run.dir={tmp_path / 'r'}").output
    assert told in trained
    assert told in plmctl(*words, "--dry-run").output
    asked = ["eval", f"checkpoint={run}", f"split={other}"]
    assert told in plmctl(*asked, f"data.path={some}").output
    assert "ranks leave out" not in plmctl(*asked, f"data.path={data}").output
    whole = ["graph", f"data.path={data}", *SMALL, "--dry-run"]
    assert "ranks leave out" not in plmctl(*whole).output


def test_eval_ranks_again(run: Path, data: Path, tmp_path: Path) -> None:
    known = json.loads((run / "result.json").read_text(encoding="utf-8"))["metrics"]
    for checkpoint in (run, run / "vectors"):
        for split in ("dev", "valid", "test"):
            output = plmctl("eval", f"checkpoint={checkpoint}", f"split={split}", "--json").stdout
            name = {"dev": "valid"}.get(split, split)
            assert scores_of(output) == {name: known[name]}
    other = tmp_path / "other"
    shutil.copytree(data, other)
    (other / "test.tsv").write_text("e0\tnext\te1\ne0\tnext\tnobody\n", encoding="utf-8")
    words = [f"checkpoint={run}", f"data.path={other}", "split=test"]
    output = plmctl("eval", *words, "--json", f"out={tmp_path / 'out.json'}").stdout
    assert json.loads(output)["remarks"]["left out"].startswith("1 triples")
    assert json.loads(output)["triples"] == 1
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert written["metrics"]["test"]["mrr"] == pytest.approx(
        scores_of(output)["test"]["mrr"], rel=1e-4
    )


def test_one_side_of_one_file_is_ranked_alone_and_can_be_ranked_by_hand(
    data: Path, tmp_path: Path
) -> None:
    run, file = tmp_path / "run", tmp_path / "all.tsv"
    file.write_text((data / "train.tsv").read_text(encoding="utf-8"), encoding="utf-8")
    words = [f"data.path={file}", "sides=[tail]", "train.epochs=2", *SMALL, f"run.dir={run}"]
    said = plmctl("graph", *words)
    assert said.output.count("tails alone are ranked") == 2  # as it begins, beside the scores
    vectors = read_vectors(run / "vectors")
    entity, relation = map(list, (vectors.entities, vectors.relations))
    known = {tuple(line.split("\t")) for line in file.read_text(encoding="utf-8").splitlines()}
    text = (run / "vectors/valid.tsv").read_text(encoding="utf-8")
    valid = [tuple(line.split("\t")) for line in text.splitlines()]
    assert len(valid) == 4  # 0.05 of 78
    assert known > {*valid}
    ranks = []
    for head, name, tail in valid:
        # ComplEx (Trouillon et al., 2016, eq. 9): the real part of <h, r, conj(t)>
        h, r, everything = (
            part[..., :4] + 1j * part[..., 4:]
            for part in (
                vectors.entity[entity.index(head)],
                vectors.relation[relation.index(name)],
                vectors.entity,
            )
        )
        scores = dict(zip(entity, ((h * r) * everything.conj()).sum(-1).real, strict=True))
        others = [scores[e] for e in entity if (head, name, e) not in known]
        ranks.append(1 + sum(score > scores[tail] for score in others))
    (scores,) = vectors.record["metrics"].values()
    assert scores["mrr"] == scores["tail/mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), 1e-3)
    assert not [name for name in scores if "head" in name]
    assert vectors.inverse is None  # no head was asked for, and reciprocal=true is the default
    again = json.loads(plmctl("eval", f"checkpoint={run}", "--json").stdout)
    assert again["remarks"]["sides"].startswith("tails alone")
    assert again["metrics"]["valid"] == scores


def test_eval_answers_mistakes(run: Path, data: Path, tmp_path: Path) -> None:
    said = plmctl("eval", f"checkpoint={run}", "split=dev_matched", code=2).output
    assert "train, valid, test" in said
    assert "fix: split=" in said
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.tsv").write_text("a\tr\tb\n", encoding="utf-8")
    (other / "test.tsv").write_text("b\tr\ta\n", encoding="utf-8")
    words = ["eval", f"checkpoint={run}", f"data.path={other}", "split=test"]
    assert "no triple of test has vectors" in plmctl(*words, code=3).output
    said = plmctl("eval", f"checkpoint={run}", "out=scores.csv", code=2).output
    assert "fix: out=scores.json" in said


def test_vectors_have_no_other_task(run: Path) -> None:
    words = ["eval", f"checkpoint={run}", "task=sst2"]
    assert "predict its links, and no other task" in plmctl(*words, code=2).output


def test_a_run_without_vectors_goes_on_first(data: Path, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "stopped"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "vectors")
    output = plmctl("eval", f"checkpoint={copy}", code=2).output
    assert f"fix: plmctl graph --resume run.dir={copy}" in output.replace("\n", "")


DRAWN = ["graph_loss=self_adversarial", "graph_loss.negatives=4", "optim=adamw"]


@pytest.mark.parametrize("loss", [DRAWN, ["graph_loss.grouped=true"]], ids=["drawn", "grouped"])
def test_a_run_goes_on_bit_for_bit(loss: list[str], data: Path, tmp_path: Path) -> None:
    words = [f"data.path={data}", *SMALL, "dropout=0.2", "train.steps=7", "train.log_every=1"]
    words += [*loss, "train.save_every=3", "train.eval_every=3", "train.keep_last=9"]
    whole, part = tmp_path / "whole", tmp_path / "part"
    plmctl("graph", *words, f"run.dir={whole}")
    shutil.copytree(whole, part)
    shutil.rmtree(part / "checkpoints/step-7")
    shutil.rmtree(part / "checkpoints/step-6")
    shutil.rmtree(part / "vectors")
    said = plmctl("graph", "--resume", f"run.dir={part}").output
    assert "step-3" in said
    assert "bit-exact" not in said
    assert same(whole / "checkpoints/step-7", part / "checkpoints/step-7")
    for name in ("entity", "relation"):
        found = (getattr(read_vectors(each / "vectors"), name) for each in (whole, part))
        assert np.array_equal(*found)


def test_dry_run(data: Path, tmp_path: Path) -> None:
    words = ["graph", f"data.path={data}", *SMALL, f"run.dir={tmp_path / 'run'}", "--dry-run"]
    report = json.loads(plmctl(*words, "--json").stdout)
    assert report["parameters"] == 30 * 8 + 2 * 3 * 8
    assert report["updates of an epoch"] == 5
    assert report["FLOPs of a triple"] == 2 * 3 * 2 * 30 * 8  # two questions, three products
    assert report["length"] == "100 updates"
    assert re.match(r"\d+:\d\d(:\d\d)?(, or |$)", report["time, without ranking"])
    assert 0 < report["seconds of an update"] < 1
    assert report["costs"]["flops"] == 100 / 5 * report["FLOPs of an epoch"]
    assert not (tmp_path / "run").exists()
    shown = plmctl(*words, "train.steps=null", "train.minutes=2").stdout
    assert "parameters: 288" in shown
    assert "time, without ranking: 2:00\n" in shown


def test_the_time_of_a_busy_machine() -> None:
    assert Took(0.1, 0.12).describe(1200) == "2:00"
    told = "2:00, or 20:00 while the machine is as busy as now"
    assert Took(0.1, 1.0).describe(1200) == told


def test_grouped_questions_are_fewer(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"a\tto\te{n}\n" for n in range(9)))
    words = ["graph", f"data.path={tmp_path}", "graph_loss.grouped=true", *SMALL]
    report = json.loads(plmctl(*words, "--dry-run", "--json").stdout)
    # one question for a tail, nine for a head, three products with ten entities
    assert report["FLOPs of an epoch"] == 2 * 3 * (1 + 9) * 10 * 8


MISTAKES = {
    "width=7": "fix: width=8",
    "graph_loss.negatives=3": (
        "fix: graph_loss=log_sigmoid graph_loss.negatives=3  # or margin or self_adversarial"
    ),
    "graph_loss=one_vs_al": "fix: graph_loss=one_vs_all",
    "graph_score=transe graph_score.norm=3": "must be one of 1, 2",
    "sides=[]": "fix: 'sides=[head,tail]'",
    "sides=[head]": "reciprocal=True: false where only heads",
    "sides=[up]": "must be one of head, tail",
    "dropout=1": "less than 1",
    "train.stream=bf16 train.precision=bf16": "fix: train.stream=fp32",
    "train.checkpoint_activations=true": "fix: train.checkpoint_activations=false",
    "train.parallel=sharded": "fix: train.processes=2",
    "data.path=nowhere": "no such file",
}


@pytest.mark.parametrize("words", sorted(MISTAKES))
def test_mistakes_are_answered_before_the_run(words: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = CliRunner().invoke(make_app(), ["graph", *words.split(), f"run.dir={folder}"])
    assert result.exit_code in (2, 3)
    assert MISTAKES[words] in result.output
    assert not folder.exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        "graph_score=transe graph_loss=margin reciprocal=false optim=adamw",
        "graph_score=rotate graph_loss=self_adversarial graph_loss.gamma=2 reciprocal=false"
        " optim=adamw",
        "graph_score=transe graph_score.norm=2 graph_loss=log_sigmoid optim=adamw",
        "graph_score=distmult graph_loss=k_vs_all graph_penalty=l2",
        "graph_score=complex graph_penalty=n3 sides=[tail]",
    ],
)
def test_every_part_learns(words: str, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    more = ["optim.lr=0.02"] if "adamw" in words else []
    plmctl(
        *("graph", f"data.path={data}", *SMALL, *words.split(), *more, "train.epochs=40"),
        *("train.eval_every=100", "train.save_every=0", f"run.dir={folder}"),
    )
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss/link"] for record in records if "loss/link" in record]
    assert losses[-1] < losses[0]
    vectors = read_vectors(folder / "vectors")
    tables, graph = load_tables(vectors), read_graph(data)
    assert len(tables.relation) == (3 if vectors.inverse is None else 6)
    trained = KnowledgeGraph(graph.entities, graph.relations, {"train": graph.splits["train"]})
    ranks = graph_evaluation.rank(tables, graph.splits["train"], trained)
    chance = np.mean([1 / n for n in range(1, 31)])
    assert (1 / ranks.filtered["tail"]).mean() > 1.4 * chance


def test_json_of_a_run(data: Path, tmp_path: Path) -> None:
    words = ["graph", f"data.path={data}", *SMALL, "train.steps=1", f"run.dir={tmp_path / 'run'}"]
    assert set(scores_of(plmctl(*words, "--json").stdout)) == {"valid", "test"}


@pytest.mark.parametrize("name", sorted(p.stem for p in (recipes_dir() / "graph").glob("*.yaml")))
def test_recipes(name: str, data: Path) -> None:
    output = plmctl("graph", name, f"data.path={data}", "--dry-run", "--json").stdout
    assert json.loads(output)["entities"] == 30


def test_a_recipe_of_another_command() -> None:
    assert "there are" in plmctl("graph", "bert", code=2).output


def test_it_is_no_language_model(run: Path, tmp_path: Path) -> None:
    said = plmctl("embed", f"checkpoint={run}", "input=x", f"out={tmp_path / 'y.npz'}", code=2)
    assert f"fix: plmctl eval checkpoint={run}" in said.output


def test_a_sweep_shows_the_ranks_of_its_jobs(data: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    words = [f"data.path={data}", *SMALL[1:], "train.epochs=1", f"run.dir={sweep}"]
    plmctl("graph", "-m", "width=8,16", *words, "hydra/launcher=basic")
    assert "valid/mrr" in (sweep / "sweep.csv").read_text(encoding="utf-8")
    record = json.loads((sweep / "width=16" / "job.json").read_text(encoding="utf-8"))
    result = json.loads((sweep / "width=16" / "result.json").read_text(encoding="utf-8"))
    assert record["metrics"]["valid/mrr"] == result["metrics"]["valid"]["mrr"]

"""task=link_prediction: vectors of descriptions against the model itself, ranks against a loop,
and the command beside its control.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.loading import load
from plmctl.core.errors import DataError
from plmctl.data.shards import Shards
from plmctl.knowledge.triples import read_graph
from plmctl.probes.described_links import Described, DescribedLinks
from plmctl.training.checkpoint import read
from plmctl.use.graph_evaluation import remark_on_few
from tests.command import plmctl

FORMAT = "{_target_:plmctl.data.formats.triples.Triples,graph:builtin,max_length:64}"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("entities")
    plmctl("data", "triples", "kind=descriptions", f"out={folder / 'text'}")
    words = ["data.spans=[entity]", "tokenizer.vocab_size=300", "data.valid_share=0.2"]
    plmctl("tokenize", f"data.path={folder}/text/descriptions.jsonl", *words, f"out={folder / 'x'}")
    return folder / "x"


@pytest.fixture(scope="module")
def run(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "kepler"
    sources = f"{{text:{{path:{tokens}}},triples:{{path:{tokens},noise:[],format:{FORMAT}}}}}"
    plmctl(
        *("pretrain", "roberta", "size=tiny", "size.width=32", "size.inner_width=64"),
        *("objective=[mlm,kepler]", "+objective.mlm.on=text", "objective.kepler.on=triples"),
        *("objective.kepler.relations=4", f"data.sources={sources}", "format.max_length=64"),
        *("train.steps=4", "train.batch_size=4", "eval.rows=8", f"run.dir={folder}"),
    )
    return folder


def evaluate(run: Path, tokens: Path, *words: str) -> dict[str, Any]:
    more = ["task=link_prediction", "task.graph=builtin", f"data.path={tokens}", *words]
    scores: dict[str, Any] = json.loads(plmctl("eval", f"checkpoint={run}", *more, "--json"))
    return scores


def test_both_losses_are_trained_and_logged(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    names = {name for line in lines for name in json.loads(line)}
    assert {"loss/mlm", "loss/kepler", "acc/kepler", "mrr"} <= names
    assert {"valid/loss/kepler", "valid/triples/acc/kepler", "valid/text/loss/mlm"} <= names


def test_the_command_ranks_held_out_entities(run: Path, tokens: Path) -> None:
    said = evaluate(run, tokens)
    shards = Shards.open(tokens, "valid")
    assert said["entities"] == len(shards.documents) - 1
    assert said["relations"] == "trained"
    scores = said["metrics"]["valid"]
    assert 0 < scores["mrr"] <= 1
    assert "remark" not in said
    assert scores["chance/hits@10"] == pytest.approx(10 / said["entities"], rel=1e-4)
    control = evaluate(run, tokens, "task.relations=fitted")
    assert control["relations"] == "fitted"
    assert control["triples"] == said["triples"] > 30  # of the text of this Python
    assert control["metrics"]["valid"]["mrr"] != scores["mrr"]
    assert evaluate(run, tokens, "split=train")["entities"] > said["entities"]


def test_the_ranks_are_those_of_a_loop(run: Path, tokens: Path) -> None:
    loaded, task = load(run), DescribedLinks(graph="builtin")
    shards = Shards.open(tokens, "valid")
    with torch.no_grad():
        found = task.describe(
            loaded.model, shards, loaded.vocab, batch_size=7, device=torch.device("cpu")
        )
        whole = task.describe(
            loaded.model, shards, loaded.vocab, batch_size=100, device=torch.device("cpu")
        )
    np.testing.assert_allclose(found.vectors, whole.vectors, atol=1e-5)
    marks, graph = shards.spans["entity"], read_graph("builtin")
    described = sorted(set(np.asarray(marks.id).tolist()))
    between = [
        (h, r, t) for h, r, t in graph.splits["train"].tolist() if h in described and t in described
    ]
    renamed = [(described[h], r, described[t]) for h, r, t in found.triples.tolist()]
    assert renamed == between
    table = read(loaded.source.folder).objective["parts.kepler.relation.weight"]
    scores = task.score(found, table, batch_size=16)
    known, reciprocal = set(map(tuple, found.triples.tolist())), []
    for h, r, t in found.triples.tolist():
        for side in (0, 2):
            right = (h, r, t)
            distances = []
            for other in range(len(found.vectors)):
                triple = (other, r, t) if side == 0 else (h, r, other)
                if triple == right or triple not in known:
                    a, b = found.vectors[triple[0]], found.vectors[triple[2]]
                    distances.append((triple == right, np.linalg.norm(a + table[r].numpy() - b)))
            own = next(distance for is_right, distance in distances if is_right)
            reciprocal.append(1 / (1 + sum(distance < own for _, distance in distances)))
    assert scores["mrr"] == pytest.approx(np.mean(reciprocal), rel=1e-3)


def test_fitted_relations_are_means(run: Path) -> None:
    vectors = np.array([[0.0, 0], [1, 2], [5, 5]], np.float32)
    train = Described(vectors, np.array([[0, 2, 1], [0, 2, 2], [1, 0, 2]]))
    fitted = DescribedLinks(graph="builtin").fit_relations(train)
    assert fitted[2].tolist() == [3, 3.5]
    assert fitted[0].tolist() == [4, 3]
    assert fitted[1].tolist() == pytest.approx([10 / 3, 10 / 3])  # of all
    with pytest.raises(DataError, match="no training triple"):
        DescribedLinks(graph="builtin").fit_relations(Described(vectors, train.triples[:0]))


def test_mistakes(run: Path, tokens: Path) -> None:
    words = ["eval", f"checkpoint={run}", "task=link_prediction", "task.graph=builtin"]
    assert "fix: data.path=TOKENS_OF_DESCRIPTIONS" in plmctl(*words, "data.path=README.md", code=2)
    said = plmctl(*words, f"data.path={tokens}", "split=test", code=2)
    assert "fix: split=valid" in said


@pytest.mark.parametrize(("triples", "said"), [(1, "of one triple"), (29, "29 triples"), (30, "")])
def test_ranks_of_few_triples_are_remarked(triples: int, said: str) -> None:
    assert said in "".join(map(str, remark_on_few(triples).values()))
    assert bool(remark_on_few(triples)) == bool(said)


@pytest.mark.slow  # a refusal; those of test_known_text.py stay
def test_descriptions_without_links_are_refused_before_the_first_update(tmp_path: Path) -> None:
    """The only held-out entity is linked to no other held-out one."""
    plmctl("data", "triples", "kind=descriptions", f"out={tmp_path / 'text'}")
    words = [f"run.dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path}", "train.steps=1"]
    words += ["tokenizer.vocab_size=300", "format.max_length=64", "size.width=32"]
    text = [f"data.path={tmp_path}/text/descriptions.jsonl"]
    lines = (tmp_path / "text/descriptions.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "one.jsonl").write_text(f"{lines[0]}\n", encoding="utf-8")
    marked = [*text, "data.spans=[entity]", f"data.valid_path={tmp_path / 'one.jsonl'}"]
    said = plmctl("pretrain", "kepler", *words, *marked, code=3)
    assert "a larger data.valid_share" in said
    assert "step 1" not in said
    words[0] = f"run.dir={tmp_path / 'other'}"
    said = plmctl("pretrain", "kepler", *words, *text, code=3)
    assert "fix: data.sources.triples.path=TEXT  # TEXT: a text for each entity" in said


def test_a_file_where_a_folder_is_to_be(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    said = plmctl("data", "triples", "kind=descriptions", f"out={tmp_path / 'x'}", code=2)
    assert "there is a file of this name" in said

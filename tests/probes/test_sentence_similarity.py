"""Similarity of sentences: correlations against scipy's, vectors of a text alone, and the published
layouts of pairs.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr
from typer.testing import CliRunner

from plmctl.artifacts.loading import Loaded, load
from plmctl.cli.app import make_app
from plmctl.config.build import build, plain
from plmctl.config.compose import compose
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.classify import Classify
from plmctl.heads.features import HIDDEN
from plmctl.models.base import Model
from plmctl.probes.base import Opened
from plmctl.probes.ranking import score_pairs
from plmctl.probes.reranking import Reranking
from plmctl.probes.retrieval import Retrieval
from plmctl.probes.sentence_similarity import ScoredPair, SentenceSimilarity, average
from plmctl.tasks.intervals import wilson
from plmctl.training.device.precision import choose
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.sentence_vectors import SentencePooling, choose_pooling, embed_texts
from plmctl.use.vectors import make_batch
from tests.tasks.test_ranking import make_task, trec, write_corpus

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
PAIRS = [
    ("a list of values", "values in a list", 4.5),
    ("a class", "the name of a file", 0.5),
    ("return the string", "return a string", 4.0),
    ("an object", "the value of an object", 2.5),
    ("import the module", "call the function", 1.0),
]


def write_sets(folder: Path) -> Path:
    """One set in each of the known layouts."""
    (folder / "STS-B").mkdir(parents=True)
    glue = ["index\tsource1\tsentence1\tsentence2\tscore"]
    glue += [f"{n}\tnone\t{a}\t{b}\t{score}" for n, (a, b, score) in enumerate(PAIRS)]
    (folder / "STS-B" / "dev.tsv").write_text("\n".join(glue) + "\n")
    (folder / "SICK").mkdir()
    sick = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
    sick += [f"{n}\t{a}\t{b}\t{score}\tNEUTRAL" for n, (a, b, score) in enumerate(PAIRS[:4])]
    (folder / "SICK" / "SICK_trial.txt").write_text("\n".join(sick) + "\n")
    (folder / "STS12-en-test").mkdir()
    for name, some in {"MSRpar": PAIRS[:2], "SMTnews": PAIRS[2:]}.items():
        texts = "".join(f"{a}\t{b}\n" for a, b, _ in some)
        scores = "".join("\n" if a == "an object" else f"{score}\n" for a, _, score in some)
        (folder / "STS12-en-test" / f"STS.input.{name}.txt").write_text(texts)
        (folder / "STS12-en-test" / f"STS.gs.{name}.txt").write_text(scores)
    own = [{"text": a, "text2": b, "label": score} for a, b, score in PAIRS]
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    return folder


@pytest.fixture(scope="module")
def run(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "bert"
    words = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=48"]
    words += ["tokenizer.vocab_size=400", "train.steps=1", f"data.path={small_text}"]
    words += [f"run.dir={folder}", "eval.rows=8"]
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *words])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def simcse(run: Path, small_text: Path) -> Path:
    folder = run.with_name("simcse")
    words = [f"init={run}", "train.steps=1", f"data.path={small_text}", f"run.dir={folder}"]
    done = CliRunner().invoke(make_app(), ["pretrain", "simcse", *words, "eval.rows=8"])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def loaded(run: Path) -> Loaded:
    return load(run)


def test_scores_are_correlations_of_cosines() -> None:
    rng = np.random.default_rng(0)
    pairs = [ScoredPair("a", "b", round(score, 1)) for score in rng.random(30) * 5]
    first, second = rng.normal(size=(2, 30, 7))
    found = SentenceSimilarity.score(pairs, first, second)
    guess = [1 - cosine(a, b) for a, b in zip(first, second, strict=True)]
    gold = [pair.score for pair in pairs]
    assert found["spearman"] == pytest.approx(spearmanr(gold, guess).statistic, abs=1e-12)
    assert found["pearson"] == pytest.approx(pearsonr(gold, guess).statistic, abs=1e-12)
    assert found["pairs"] == 30
    other = {"spearman": 0.5, "pearson": 0.25}
    assert average({"a": found, "b": other})["spearman"] == (found["spearman"] + 0.5) / 2


def test_a_text_without_a_vector_is_like_nothing() -> None:
    pairs = [ScoredPair("a", "b", score) for score in (1.0, 2.0, 3.0)]
    first = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    found = SentenceSimilarity.score(pairs, first, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    assert np.isfinite(list(found.values())).all()


def test_published_layouts(tmp_path: Path) -> None:
    place = write_sets(tmp_path / "sets")
    sets = SentenceSimilarity(path=[str(place), str(place / "own.jsonl")]).read("dev")
    wanted = [ScoredPair(*pair) for pair in PAIRS]
    assert sets == {
        "SICK": wanted[:4],
        "STS-B": wanted,
        "STS12-en-test": [*wanted[:3], wanted[4]],  # one pair has no score
        "own": wanted,
    }


def test_columns_of_any_table(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text('0.5,"a, b",c\n1.5,d,e\n')
    columns = {"text": 1, "text2": 2, "label": 0}
    task = SentenceSimilarity(path=str(tmp_path / "mine.csv"), columns=columns)
    assert task.read("dev") == {"mine": [ScoredPair("a, b", "c", 0.5), ScoredPair("d", "e", 1.5)]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "s1\ts2\tscore\nx\ty\t1\n", r"a\.tsv:1: which columns are .*found s1, s2, score"),
        ("a.tsv", "text\ttext2\tlabel\nx\ty\thigh\n", r"a\.tsv:2: the score 'high' is not a numb"),
        ("a.tsv", "text\ttext2\tlabel\nx\ty\tnan\n", r"a\.tsv:2: the score 'nan' is not a number"),
        ("a.tsv", "text\ttext2\tlabel\nx\ty\t1e295\n", r"a\.tsv:2: the score '1e295' is too la"),
        ("a.tsv", "text\ttext2\tlabel\nx\ty\n", r"a\.tsv:2: 2 columns where 3 are needed"),
        ("a.tsv", "text\ttext2\tlabel\n", r"a\.tsv: no rows"),
        ("a.tsv", "\n", r"a\.tsv: the file is empty"),
        ("a.jsonl", '{"text": "x", "text2": "y"}\n', r"a\.jsonl:1: which columns"),
        ("a.jsonl", '["x"]\n', r"a\.jsonl:1: a JSON object is needed"),
        ("a.jsonl", '{"text": "x"\n', r"a\.jsonl:1: not JSON"),
        ("STS.input.a.txt", "x\ty\n", r"STS\.input\.a\.txt: no scores: STS\.gs\.a\.txt is not"),
    ],
)
def test_damaged_files(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    path = tmp_path if name.startswith("STS") else tmp_path / name
    with pytest.raises(DataError, match=message):
        SentenceSimilarity(path=str(path)).read("dev")


def test_the_share_of_unknown_tokens_is_told(loaded: Loaded, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    opened = Opened(loaded, choose("fp32", torch.device("cpu")), "x")

    def write(*pairs: tuple[str, str, float]) -> SentenceSimilarity:
        rows = [{"text": a, "text2": b, "label": score} for a, b, score in pairs]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return SentenceSimilarity(path=str(file))

    assert "unknown" not in write(*PAIRS).measure(opened).extra
    told = write(*PAIRS, ("一個字", "an object", 1.0)).measure(opened).extra["unknown"]
    assert "of the tokens are unknown" in told.text
    with pytest.raises(DataError, match="of its tokens are unknown"):
        write(("一個字", "一隻貓", 1.0), ("an object", "貓貓", 2.0)).measure(opened)


def test_damaged_parts_of_a_year(tmp_path: Path) -> None:
    texts, scores = tmp_path / "STS.input.a.txt", tmp_path / "STS.gs.a.txt"
    texts.write_text("x\ty\nz\tw\n")
    scores.write_text("1\n")
    with pytest.raises(DataError, match=r"STS\.gs\.a\.txt: 1 lines, where STS\.input\.a\.txt has"):
        SentenceSimilarity(path=str(tmp_path)).read("dev")
    scores.write_text("1\nx\n")
    with pytest.raises(DataError, match=r"STS\.gs\.a\.txt:2: the score 'x' is not a number"):
        SentenceSimilarity(path=str(tmp_path)).read("dev")
    texts.write_text("x\ty\nz w\n")
    with pytest.raises(DataError, match=r"STS\.input\.a\.txt:2: two texts with a tab between"):
        SentenceSimilarity(path=str(tmp_path)).read("dev")


def test_two_sets_of_one_name_and_none(tmp_path: Path) -> None:
    sets = write_sets(tmp_path / "sets")
    path = [str(sets / "STS-B"), str(sets / "STS-B")]
    with pytest.raises(DataError, match="two sets are called 'STS-B'"):
        SentenceSimilarity(path=path).read("dev")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no pairs of the split 'dev'; there is nothing"):
        SentenceSimilarity(path=str(tmp_path / "empty")).read("dev")


def test_vectors_of_texts_are_those_of_rows_alone(loaded: Loaded) -> None:
    texts = ["return the string", "", "a list of values in the class " * 3]
    precision = choose("fp32", torch.device("cpu"))
    pooling = SentencePooling("mean")
    found = embed_texts(loaded, texts, pooling, batch_size=2, precision=precision, max_length=12)
    vocab = loaded.vocab
    for text, vector in zip(texts, found, strict=True):
        ids = [vocab.id("cls"), *loaded.tokenizer.encode(text)[:10], vocab.id("sep")]
        with torch.no_grad():
            states = loaded.model(make_batch([EmbeddingLine(ids)]), record=HIDDEN).last[0]
        wanted = sum(states) / len(ids) if text else torch.zeros(32)
        np.testing.assert_allclose(vector, wanted.numpy(), atol=1e-5)
    shorter = embed_texts(
        loaded, texts, pooling, batch_size=9, precision=precision, max_length=12, normalize=True
    )
    np.testing.assert_allclose(np.linalg.norm(shorter, axis=1), [1, 0, 1], atol=1e-6)


def test_which_pooling_is_taken(loaded: Loaded, simcse: Path) -> None:
    assert choose_pooling(loaded, None, path="pooling") == SentencePooling("mean")
    with pytest.raises(ConfigError, match=r"was not trained on whole texts\n  fix: pooling=mean"):
        choose_pooling(loaded, "trained", path="pooling")
    with pytest.raises(ConfigError, match=r"task\.pooling='frist': .*did you mean 'first'"):
        choose_pooling(loaded, "frist", path="task.pooling")
    trained = choose_pooling(load(simcse), None, path="pooling")
    assert trained == SentencePooling("first", with_head=True)


def test_command(run: Path, simcse: Path, tmp_path: Path) -> None:
    write_sets(tmp_path / "sets")
    words = ["eval", "task=sts", f"task.path={tmp_path / 'sets'}", "--json"]
    done = CliRunner().invoke(make_app(), [*words, f"checkpoint={run}", "task.pooling=first_last"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert list(result["metrics"]) == ["SICK", "STS-B", "STS12-en-test", "mean"]
    assert result["pooling"] == "first_last"
    done = CliRunner().invoke(make_app(), [*words, f"checkpoint={simcse}"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["pooling"] == "first, as it was trained"


def test_embed_writes_what_is_compared(simcse: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("return the string\n\na list\n")
    words = ["embed", f"checkpoint={simcse}", f"input={tmp_path / 'lines.txt'}", "pooling=trained"]
    words += [f"out={tmp_path / 'x.npz'}", "normalize=true"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    assert "pooling first, as it was trained" in done.output
    counts = json.loads(CliRunner().invoke(make_app(), [*words, "overwrite=true", "--json"]).stdout)
    assert (counts["lines"], counts["cut"]) == (3, 0)
    assert counts["of"] == "pooling first, as it was trained"
    precision = choose("fp32", torch.device("cpu"))
    wanted = embed_texts(
        load(simcse),
        ["return the string", "", "a list"],
        SentencePooling("first"),
        batch_size=4,
        precision=precision,
        normalize=True,
    )
    with np.load(tmp_path / "x.npz") as found:
        for number, vector in enumerate(wanted):
            np.testing.assert_allclose(found[f"hidden_{number}"], vector[None], atol=1e-6)


def test_rare_tokens_weigh_more(run: Path, tmp_path: Path) -> None:
    """The weights are counted in the lines themselves or in another file, are kept beside the
    vectors for a search among them, and are those of `eval task=sts`.
    """
    corpus = ["return the string", "", "a list of the values", "the class"]
    (tmp_path / "corpus.txt").write_text("\n".join(corpus) + "\n")
    (tmp_path / "asked.txt").write_text("the class\n")
    loaded = load(run)
    rows = [loaded.tokenizer.encode(text) for text in corpus if text]
    weights = {t: math.log(4 / (1 + sum(t in row for row in rows))) for t in range(400)}

    def embed(*words: str) -> str:
        done = CliRunner().invoke(make_app(), ["embed", f"checkpoint={run}", *words])
        assert done.exit_code == 0, done.output
        return done.output

    embed(f"input={tmp_path / 'corpus.txt'}", f"out={tmp_path / 'x.npz'}", "pooling=idf")
    source = [f"input={tmp_path / 'asked.txt'}", f"weights_from={tmp_path / 'corpus.txt'}"]
    embed(*source, f"out={tmp_path / 'y.npz'}", "pooling=idf")
    vocab = loaded.vocab
    with np.load(tmp_path / "x.npz") as found, np.load(tmp_path / "y.npz") as asked:
        assert not found["hidden_1"].any()
        for number, text in ((0, corpus[0]), (2, corpus[2]), (3, corpus[3])):
            ids = [vocab.id("cls"), *loaded.tokenizer.encode(text), vocab.id("sep")]
            own = torch.tensor([0, *(weights[t] for t in ids[1:-1]), 0])  # of special tokens, too
            with torch.no_grad():
                states = loaded.model(make_batch([EmbeddingLine(ids)]), record=HIDDEN).last[0]
            wanted = (own[:, None] * states).sum(0) / own.sum()
            np.testing.assert_allclose(found[f"hidden_{number}"][0], wanted, atol=1e-5)
        np.testing.assert_allclose(asked["hidden_0"], found["hidden_3"], atol=1e-6)
    shown = embed(source[0], f"among={tmp_path / 'x.npz'}", f"out={tmp_path / 'found.jsonl'}")
    assert "line 4: the class" in shown
    answer = json.loads((tmp_path / "found.jsonl").read_text())
    assert answer["found"][0]["score"] == pytest.approx(
        max(each["score"] for each in answer["found"])
    )


def test_weights_of_tokens_that_cannot_be(run: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("return the string\n" * 2)
    words = ["embed", f"checkpoint={run}", f"input={tmp_path / 'one.txt'}"]
    words += [f"out={tmp_path / 'x.npz'}"]
    for more, message in (
        (["pooling=idf"], "each of its texts has the same tokens, which weigh 0"),
        (["pooling=mean", "weights_from=other.txt"], "tokens weigh the same but with pooling=idf"),
        (["pooling=sif", "layers=-1"], "pooling=sif chooses the layers itself"),
    ):
        done = CliRunner().invoke(make_app(), [*words, *more])
        assert done.exit_code != 0
        assert message in " ".join(done.output.split())


def test_similarity_by_weighted_tokens(run: Path, tmp_path: Path) -> None:
    own = write_sets(tmp_path / "sets") / "own.jsonl"
    texts = [text for pair in PAIRS for text in pair[:2]]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "other.txt").write_text("return return the string\na file\n")
    words = ["eval", "task=sts", f"task.path={own}", f"checkpoint={run}", "--json"]
    scores = []
    for more in ("null", tmp_path / "texts.txt", tmp_path / "other.txt"):
        asked = [*words, "task.pooling=sif", f"task.weights_from={more}"]
        done = CliRunner().invoke(make_app(), asked)
        assert done.exit_code == 0, done.output
        scores.append(json.loads(done.stdout.splitlines()[-1])["metrics"]["own"])
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]
    done = CliRunner().invoke(make_app(), [*words, "task.weights_from=corpus.txt"])
    assert "fix: task.pooling=idf" in done.output


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_reads_the_distributed_sets() -> None:
    paths = [str(SHARED / "glue" / "STS-B"), str(SHARED / "nli_sick")]
    sets = SentenceSimilarity(path=paths).read("dev")
    assert {name: len(pairs) for name, pairs in sets.items()} == {"STS-B": 1500, "nli_sick": 500}


def draw_interval(values: list[float]) -> Any:
    """Percentiles of the means of 1,000 draws of questions; None where all are equal."""
    if {*values} == {0.0, 1.0}:
        return pytest.approx(wilson(sum(values), len(values)))
    picks = np.random.default_rng(0).integers(len(values), size=(1000, len(values)))
    means = [np.mean([values[n] for n in row]) for row in picks]
    low, high = np.quantile(means, [0.025, 0.975])
    return pytest.approx((low, high)) if high > low + 1e-9 else None


@pytest.mark.parametrize("pooling", ["mean", "splade"])
def test_retrieval_is_that_of_loops(pooling: str, loaded: Loaded, tmp_path: Path) -> None:
    """Over a folder of two sets: by cosines of means, and by products of weights."""
    for name, beir in (("b", True), ("m", False)):
        write_corpus(tmp_path / name, beir=beir)
    precision = choose("fp32", torch.device("cpu"))
    opened = Opened(loaded, precision, "x", out=str(tmp_path / "out.jsonl"))
    names = ["ndcg@2", "map", "recall@1"]
    probe = Retrieval(path=str(tmp_path), pooling=pooling, metrics=names, beside=["bm25"])
    table = probe.measure(opened)
    assert list(table.metrics) == ["b", "m", "mean", "b bm25", "m bm25", "mean bm25"]
    assert table.extra["likeness"] == ("dot" if pooling == "splade" else "cosine")
    whole = {"b": ("a cat", "T a dog", "T a bird"), "m": ("a cat", "a dog", "a bird")}
    for name, texts in whole.items():
        found = embed_texts(
            loaded, ["Q1", "Q2", *texts], SentencePooling(pooling), batch_size=9,
            precision=precision,
        )  # fmt: skip
        likeness = (lambda a, b: 1 - cosine(a, b)) if pooling == "mean" else np.dot
        scores: dict[str, list[float]] = {each: [] for each in names}
        for query, grades in zip(found[:2], ([2, 0, 0], [0, 0, 1]), strict=True):
            order = sorted(range(3), key=lambda n, q=query: -likeness(q, found[2 + n]))
            for each, own in scores.items():
                ranked = [grades[n] for n in order]
                own.append(trec(each, ranked, [grade for grade in grades if grade]))
        for each, own in scores.items():
            assert table.metrics[name][each] == pytest.approx(np.mean(own)), (name, each)
            assert table.intervals[name].get(each) == draw_interval(own), (name, each)
    both = [table.metrics[name]["map"] for name in whole]
    assert table.metrics["mean"]["map"] == pytest.approx(np.mean(both))
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["set"] for row in rows] == ["b", "b", "b", "b", "m", "m", "m", "m"]


def test_retrieval_takes_the_split_that_is_there(
    loaded: Loaded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Questions that it leaves out are counted."""
    folder = write_corpus(tmp_path / "a", beir=True)
    (folder / "qrels/dev.tsv").rename(folder / "qrels/test.tsv")
    with (folder / "queries.jsonl").open("a") as file:
        for name in ("q4", "q5"):
            file.write(json.dumps({"_id": name, "text": "return the string"}) + "\n")
    opened = Opened(loaded, choose("fp32", torch.device("cpu")), "x")
    table = Retrieval(path=str(folder)).measure(opened)
    assert table.title == "retrieval: test"
    assert "split=test: there are no grades of dev" in capsys.readouterr().err
    assert table.extra["ungraded"].value == 2
    assert table.extra["unanswered"].value == 1
    asked = replace(opened, given=Provenance("eval", overrides=("split=dev",)))
    with pytest.raises(DataError, match="fix: split=test"):
        Retrieval(path=str(folder)).measure(asked)


def test_sets_of_retrieval_that_cannot_be(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a", beir=True)
    with pytest.raises(DataError, match=r"no qrels/test\.tsv(.|\n)*fix: split=dev"):
        Retrieval(path=str(tmp_path)).find_sets("test")["a"].read("test")
    with pytest.raises(DataError, match="no corpus"):
        Retrieval(path=str(tmp_path / "a" / "qrels")).find_sets("dev")
    with pytest.raises(DataError, match="two sets are called 'a'"):
        Retrieval(path=[str(tmp_path / "a"), str(tmp_path)]).find_sets("dev")
    with pytest.raises(ConfigError, match=r"task\.beside"):
        Retrieval(path="x", beside=["bm52"])


CANDIDATES: list[dict[str, Any]] = [
    {"query": "return the string", "candidates": ["a class", "a string", "a list", "a string"],
     "labels": [0, 1, 0, 0]},
    {"query": "a list of values", "candidates": ["import it", "values in a list"],
     "labels": [0, 1]},
    {"query": "an object", "candidates": ["no", "none"], "labels": [0, 0]},
    {"query": "a name", "candidates": ["the name"], "labels": [1]},
    {"id": "e", "query": "the file", "positive": ["a file"], "negative": ["a", "the class"]},
]  # fmt: skip


def write_candidates(file: Path) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in CANDIDATES))
    return file


@pytest.mark.parametrize("pooling", ["mean", "splade", None])
@pytest.mark.parametrize("questions", ["clean", "raw"])
def test_reranking_is_that_of_loops(
    pooling: str | None, questions: str, loaded: Loaded, tmp_path: Path
) -> None:
    """By vectors, and with None by a cross-encoder."""
    if pooling is None:
        node = plain(
            compose("finetune", None, ["task=cross_encoder", "task.path=x", "checkpoint=null"]).task
        )
        torch.manual_seed(0)
        head = Classify(width=loaded.model.backbone.width, num_classes=1, dropout=0.0)
        model = Model(backbone=loaded.model.backbone, heads={"score": head}).eval()
        source = replace(loaded.source, config={**loaded.config, "task": node})
        loaded = Loaded(model, source)
    precision = choose("fp32", torch.device("cpu"))
    opened = Opened(loaded, precision, "x", out=str(tmp_path / "out.jsonl"))
    file, names = write_candidates(tmp_path / "dev.jsonl"), ["map", "mrr", "ndcg@2"]
    probe = Reranking(path=str(file), questions=questions, metrics=names, pooling=pooling,
                      beside=["bm25"])  # type: ignore[arg-type]  # fmt: skip
    table = probe.measure(opened)
    kept = [0, 1, 4] if questions == "clean" else [0, 1, 2, 3, 4]
    wanted: dict[str, list[float]] = {name: [] for name in names}
    for row in (CANDIDATES[n] for n in kept):
        texts = row.get("candidates") or [*row["positive"], *row["negative"]]
        grades = row.get("labels") or [1, 0, 0]
        if pooling is None:
            task = build(node, {"pooling": "first"}, path="task")
            scores = [float(score_pairs(opened, task, [(row["query"], t)])[0]) for t in texts]
        else:
            q, *d = embed_texts(
                loaded, [row["query"], *texts], SentencePooling(pooling), batch_size=9,
                precision=precision,
            )  # fmt: skip
            scores = [float(q @ t) if pooling == "splade" else 1 - cosine(q, t) for t in d]
        # of equal scores the larger name first
        order = sorted(range(len(texts)), key=lambda n, s=scores: (-round(s[n], 5), -n))
        for name, own in wanted.items():
            ranked, relevant = [grades[n] for n in order], [g for g in grades if g]
            own.append(trec(name, ranked, relevant) if relevant else 0.0)
    assert table.metrics["model"] == pytest.approx({n: np.mean(own) for n, own in wanted.items()})
    for name, own in wanted.items():
        assert table.intervals["model"].get(name) == draw_interval(own)
    assert table.examples == dict.fromkeys(("model", "bm25"), len(kept))
    assert table.extra["ordered"].value == (9 if questions == "clean" else 12)
    assert ("left out" in table.extra) == (questions == "clean")
    assert table.metrics["bm25"]["map"] > 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows[: len(kept)]] == ["e" if n == 4 else str(n) for n in kept]


def test_candidates_that_cannot_be(tmp_path: Path, loaded: Loaded) -> None:
    file = tmp_path / "dev.jsonl"
    opened = Opened(loaded, choose("fp32", torch.device("cpu")), "x")
    file.write_text('{"query": "a", "candidates": ["b"], "labels": [1, 0]}\n')
    with pytest.raises(DataError, match=r"dev\.jsonl:1: 1 candidates and 2 labels"):
        Reranking(path=str(file)).measure(opened)
    file.write_text('{"query": "a", "candidates": ["b"], "labels": [1]}\n')
    with pytest.raises(DataError, match=r"right and wrong(.|\n)*fix: task\.questions=raw"):
        Reranking(path=str(file)).measure(opened)
    file.write_text('{"query": "a", "texts": ["b"]}\n')
    with pytest.raises(DataError, match=r'positive(.|\n)*"candidates"'):
        Reranking(path=str(file)).measure(opened)


def test_a_ranker_learns_from_candidates(tmp_path: Path) -> None:
    rows = CANDIDATES[:4]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = make_task("cross_encoder", file, "task.dev_share=0", "task.negatives=9")
    examples = task.read("train")
    assert [e.fields["query"] for e in examples] == [
        "return the string",
        "a list of values",
        "a name",
    ]
    texts = [[*e.fields["positives"].values()] for e in examples]
    assert texts == [["a string"], ["values in a list"], ["the name"]]
    # a candidate that is right as well is not wrong
    assert [*examples[0].fields["negatives"].values()] == ["a class", "a list"]
    assert task.splits.reader.why[str(file)] == "1 question without a right candidate"

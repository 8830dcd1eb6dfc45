"""The parts of examples/ keep their definitions, and models train with them."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.batch import IGNORE, Rows, Seq, Targets
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.nn.env import Streams

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOLDER, PARTS = EXAMPLES / "plugin", EXAMPLES / "parts"
OWN = ["--plugin", "own_parts", "--config-dir", str(PARTS / "conf")]
SMALL = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=32"]
SMALL += ["train.batch_size=8", "eval.rows=16", "train.log_every=1"]
SMALL += ["train.eval_every=0", "train.save_every=0"]
SPECIAL = 10  # ids below are special tokens


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(PARTS))
    yield
    packages = ("shuffled_tokens", "own_parts")
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


def test_tokens_change_places_and_labels_say_which() -> None:
    from shuffled_tokens.noise import TokenShuffling

    count, length = 500, 40
    ids = np.random.default_rng(0).integers(0, 30, (count, length))

    def cells_of(*numbers: int) -> Rows:
        text = Seq(ids[list(numbers)], np.full(len(numbers), length - 5))
        return Rows(key=np.array(numbers), source="test", seqs={"text": text})

    vocab = SimpleNamespace(special=np.arange(30) < SPECIAL)
    noise = TokenShuffling(vocab=vocab, rate=0.5)
    noised = noise(cells_of(*range(count)), Draws(0, 0))
    after, labels = noised.seqs["text"].ids, noised.targets["shuffled"]
    asked = moved = 0
    for row in range(count):
        assert sorted(after[row]) == sorted(ids[row])
        for position in range(length):
            if position >= length - 5 or ids[row, position] < SPECIAL:
                assert after[row, position] == ids[row, position]
                assert labels[row, position] == IGNORE
            else:
                assert labels[row, position] == (after[row, position] != ids[row, position])
                asked, moved = asked + 1, moved + int(labels[row, position])
    # half of the tokens are chosen; about 1/12 of these stay, and 1/20 meet an equal token
    assert 0.38 < moved / asked < 0.5
    alone = noise(cells_of(7), Draws(0, 0))
    assert np.array_equal(alone.seqs["text"].ids[0], after[7])
    with pytest.raises(ConfigError, match="rate"):
        TokenShuffling(vocab=vocab, rate=0)


def test_loss_is_the_formula_written_as_a_loop() -> None:
    from shuffled_tokens.objective import ShuffledTokens

    logits = torch.randn(6, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, 0, 0, IGNORE, 1, IGNORE])
    batch = SimpleNamespace(require=lambda name: Targets(torch.arange(6), labels, 4))

    def model(batch: object, state: object = None) -> SimpleNamespace:
        return SimpleNamespace(gather=lambda index: logits[index])

    model.heads = {"discriminator": lambda features: features}  # type: ignore[attr-defined]
    output = ShuffledTokens()(model, batch)
    loss, right = 0.0, 0
    for logit, label in zip(logits.double().tolist(), labels.tolist(), strict=True):
        if label != IGNORE:
            moved = 1 / (1 + np.exp(-logit))
            loss -= np.log(moved if label else 1 - moved)
            right += (moved > 0.5) == (label == 1)
    assert float(output.terms["shuffled_tokens"].total) == pytest.approx(loss, rel=1e-5)
    total, of = output.logs["acc/shuffled_tokens"]
    assert (int(total), of) == (right, 4)


def test_the_command_of_its_readme_trains(
    tmp_path: Path, tokens_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    readme = Path("README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    line = re.search(r"^plmctl (pretrain .*)$", readme, re.MULTILINE)
    assert line is not None
    words = [word for word in shlex.split(line[1]) if not word.startswith("train.minutes")]
    words += [*SMALL, "train.steps=40", "optim.lr=5e-3"]
    run(*words, f"data.path={tokens_of('wordpiece')}", f"run.dir={tmp_path}")
    losses = read_losses(tmp_path, "shuffled_tokens")
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < losses[0] - 0.1


def run(*words: str) -> str:
    """Run a command in this process; what it prints."""
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    return done.output


def read_losses(folder: Path, name: str) -> list[float]:
    """The logged training losses of a run."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [each[f"loss/{name}"] for each in records if f"loss/{name}" in each]


def test_focal_loss_is_the_formula_written_as_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test that the documentation shows; of another formula it fails."""
    shown = runpy.run_path(str(PARTS / "tests/test_focal_mlm.py"))
    shown["test_focal_loss_is_the_formula"]()
    monkeypatch.setattr(
        "own_parts.focal_mlm.F.cross_entropy", lambda logits, *_, **__: logits[:, 0]
    )
    with pytest.raises(AssertionError):
        shown["test_focal_loss_is_the_formula"]()


def test_tokens_see_their_own_block() -> None:
    from own_parts.blockwise import Blockwise

    pattern = Blockwise(size=3)
    seen = pattern.dense(Seq(torch.zeros(1, 8, dtype=torch.long), torch.tensor([8])))[0, 0]
    for query in range(8):
        for key in range(8):
            assert bool(seen[query, key]) == (query // 3 == key // 3)
    assert pattern.reach() == (2, 2)


def test_average_attention_is_the_mean_over_the_document() -> None:
    from own_parts.averaging import AverageAttention

    torch.manual_seed(0)
    cell, x = AverageAttention(width=4), torch.randn(2, 5, 4)
    documents = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, -1, -1]])
    y = cell(Streams({"text": x}), SimpleNamespace(documents=documents))
    for row in range(2):
        for token in range(5):
            number = documents[row, token]
            read = [x[row, other] for other in range(5) if documents[row, other] == number]
            wanted = cell.projection(torch.stack(read).mean(0))
            torch.testing.assert_close(y[row, token], wanted)
    whole = cell(Streams({"text": x}), SimpleNamespace(documents=None))
    torch.testing.assert_close(whole[1, 2], cell.projection(x[1].mean(0)))


def test_cosine_head_compares_directions() -> None:
    from own_parts.cosine import CosineHead

    torch.manual_seed(0)
    head = CosineHead(width=4, num_classes=3, dropout=0.0, scale=5.0)
    head.linear.bias.data.normal_()
    features = torch.randn(2, 4)
    logits = head(features).detach()
    for row in range(2):
        for k in range(3):
            h, w = features[row].tolist(), head.linear.weight[k].tolist()
            product = sum(a * b for a, b in zip(h, w, strict=True))
            wanted = 5 * product / float(np.linalg.norm(h) * np.linalg.norm(w))
            wanted += head.linear.bias[k].item()
            assert logits[row, k].item() == pytest.approx(wanted, rel=1e-4)
    torch.testing.assert_close(head(7 * features), logits)


def test_weighted_kappa_is_that_of_scikit_learn() -> None:
    cohen_kappa_score = pytest.importorskip("sklearn.metrics").cohen_kappa_score
    from own_parts.ratings import weighted_kappa

    rng = np.random.default_rng(0)
    gold, guess = rng.integers(0, 5, 60), rng.integers(0, 5, 60)
    wanted = cohen_kappa_score(gold, guess, weights="quadratic")
    assert weighted_kappa(gold.tolist(), guess.tolist()) == pytest.approx(wanted)
    assert weighted_kappa([1, 1], [1, 1]) == 0


def test_loss_of_counts_is_that_of_poisson_regression() -> None:
    from own_parts.votes import CountAnswer

    from plmctl.tasks.record import Example

    answer = CountAnswer()
    examples = [Example(str(n), {"text": "a"}, label) for n, label in enumerate(["0", "3", "12"])]
    numbers = answer.number(examples, None)["votes"]
    assert numbers.tolist() == [0, 3, 12]
    z = torch.tensor([-0.5, 1.0, 2.0, 9.0])
    labels = torch.tensor([*numbers.tolist(), IGNORE])
    batch = SimpleNamespace(require={"labels.votes": labels}.__getitem__)
    found = answer.loss(z, batch, None).terms["votes"].total
    wanted = torch.nn.functional.poisson_nll_loss(z[:3], labels[:3], reduction="sum")
    torch.testing.assert_close(found, wanted)
    rows = Rows(key=np.arange(4), source="", seqs={}, values={"example": np.array([0, 0, 1, 2])})
    guessed = answer.predict(np.log([1.0, 9.0, 2.0, 4.0]), rows, examples, None)
    assert [each["guess"] for each in guessed] == pytest.approx([1, 2, 4])
    assert [(each["id"], each["gold"]) for each in guessed] == [("0", 0), ("1", 3), ("2", 12)]
    with pytest.raises(DataError, match="'-1' is no count"):
        answer.gold(Example("0", {"text": "a"}, "-1"))


def test_tail_rows_keep_the_last_tokens(tokens_of: Callable[..., Path]) -> None:
    from own_parts.tails import TailRows

    from plmctl.tasks.layouts.base import RowSettings
    from plmctl.tasks.transform import Transform
    from plmctl.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(tokens_of("wordpiece"))
    layout = TailRows()
    texts = ["the house", "the old house and the new house of the old town"]
    examples = [layout.parse(text, number, {}) for number, text in enumerate(texts, 1)]
    settings = RowSettings(max_length=7, pooling="first", transform=Transform())
    made = layout.encode(examples, tokenizer, settings)
    vocab = tokenizer.vocab
    for row, text in enumerate(texts):
        ids = tokenizer.encode(text)
        length = int(made.seqs["text"].length[row])
        wanted = [vocab.cls, *ids[-5:], vocab.sep]
        assert made.seqs["text"].ids[row, :length].tolist() == wanted
        assert made.values["cut"][row] == max(len(ids) - 5, 0)


def test_words_of_a_segmenter_stand_in_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also words that come twice, and spaces that a segmenter leaves out."""
    from plmctl.text import segment

    listed = ["我们", "喜欢", "音乐", "和", "音乐"]
    monkeypatch.setattr("own_parts.words.cut", lambda text: listed)
    words = segment.find("own_parts.words.words", ["own_parts"])
    text = "我们喜欢音乐 和音乐"
    assert list(words(text)) == [(0, 2), (2, 4), (4, 6), (7, 8), (8, 10)]


def test_anisotropy_is_the_mean_cosine_of_all_pairs() -> None:
    from own_parts.anisotropy import mean_cosine

    vectors = np.random.default_rng(0).normal(1, 1, (6, 4))
    pairs = [(a, b) for n, a in enumerate(vectors) for b in vectors[:n]]
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]
    assert mean_cosine(vectors) == pytest.approx(float(np.mean(cosines)))


def test_models_train_with_parts_of_ones_own(
    tmp_path: Path, tokens_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, *OWN, f"data.path={tokens_of('wordpiece')}"]
    blocks = ["pattern=blockwise", "pattern.size=8", "objective=[focal_mlm]", "optim.lr=5e-3"]
    run("pretrain", "roberta", *blocks, "train.steps=30", "run.dir=blocks", *words)
    losses = read_losses(tmp_path / "blocks", "focal_mlm")
    assert np.mean(losses[-5:]) < losses[0] - 0.1
    run("pretrain", "roberta", "model=average", "train.steps=2", "run.dir=average", *words)
    assert len(read_losses(tmp_path / "average", "mlm")) == 2
    stars = [f"{'good ' * (n % 4)}text {n}\t{n % 4}" for n in range(32)]
    Path("stars.tsv").write_text("text\tlabel\n" + "\n".join(stars), encoding="utf-8")
    tuned = [
        "task.path=stars.tsv",
        "task.dev_share=0.3",
        "task.max_length=16",
        "checkpoint=blocks",
        *OWN,
    ]
    stated = [{"text": text.partition("\t")[0], "stars": n % 4} for n, text in enumerate(stars)]
    Path("shop").mkdir()
    for split, of_lamps, of_desks in (
        ("train", stated[:16], []),
        ("dev", stated[16:24], stated[24:]),
    ):
        Path(f"shop/{split}.json").write_text(
            json.dumps({"lamp": of_lamps, "desk": of_desks}), encoding="utf-8"
        )
    own_files = ["task=product_reviews", "task.path=shop", "run.dir=shop_run", "train.steps=1"]
    run("finetune", *own_files, "task.max_length=16", "checkpoint=blocks", *OWN)
    by_product = json.loads(Path("shop_run/result.json").read_text(encoding="utf-8"))
    assert "accuracy/desk" in by_product["metrics"]["dev"]
    for task in ("ratings", "cosine"):
        words = [f"task={task}", "checkpoint=blocks", f"run.dir={task}", "train.steps=2"]
        run("finetune", *words, *tuned)
    scores = json.loads(Path("ratings/result.json").read_text(encoding="utf-8"))
    assert -1 <= scores["metrics"]["dev"]["kappa"] <= 1
    Path("texts.txt").write_text("a b\nc d\ne f\n", encoding="utf-8")
    asked = ["task=anisotropy", "task.path=texts.txt", "checkpoint=blocks", *OWN, "--json"]
    found = json.loads(run("eval", *asked))
    assert -1 <= found["metrics"]["texts"]["cosine"] <= 1
    without = [word for word in asked if not word.startswith("task.path")]
    for words in (without, ["task=cloze", *without[1:]]):
        done = CliRunner().invoke(make_app(), ["eval", *words])
        assert (done.exit_code, "task.path: must be given" in done.output) == (2, True)


def test_own_answer_layout_and_table_are_fine_tuned(
    tmp_path: Path, tokens_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, f"data.path={tokens_of('wordpiece')}", "train.steps=1", "run.dir=first"]
    run("pretrain", "roberta", *words)
    stated = [(f"{'good ' * (n % 4)}text {n}", n % 4) for n in range(32)]
    for file, head in (("votes.csv", "text,label"), ("tickets.csv", "body,team")):
        lines = [head, *(f"{text},{number}" for text, number in stated)]
        Path(file).write_text("\n".join(lines), encoding="utf-8")
    tuned = ["checkpoint=first", "task.dev_share=0.3", "task.max_length=16", "train.steps=2", *OWN]
    run("finetune", "task=votes", "task.path=votes.csv", "run.dir=votes", *tuned)
    run("finetune", "task=tickets", "run.dir=tickets", *tuned)
    for folder, metric in (("votes", "spearman"), ("tickets", "macro_f1")):
        found = json.loads(Path(f"{folder}/result.json").read_text(encoding="utf-8"))
        assert metric in found["metrics"]["dev"]


def test_the_command_of_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("b a b\nb c", encoding="utf-8")
    plugin = ["--plugin", "shuffled_tokens"]
    done = CliRunner().invoke(make_app(), ["count", "a.txt", "top=1", "--json", *plugin])
    assert json.loads(done.stdout) == {"b": 3}
    shown = CliRunner().invoke(make_app(), ["count", "--help", *plugin]).stdout
    assert "words, the most frequent first" in " ".join(shown.split())
    done = CliRunner().invoke(make_app(), ["count", *plugin])
    assert (done.exit_code, "text: must be given" in done.output) == (2, True)
    named = CliRunner().invoke(make_app(), ["help", "count", "--schema", *plugin])
    assert {"text", "top"} <= json.loads(named.stdout)["properties"].keys()
    for words in (["--help", *plugin], [*plugin, "--help"]):
        assert "Count the words of a text." in CliRunner().invoke(make_app(), words).stdout
    done = CliRunner().invoke(make_app(), [*plugin, "count", "a.txt", "top=1", "--json"])
    assert json.loads(done.stdout) == {"b": 3}
    done = CliRunner().invoke(make_app(), ["count", "a.txt"])
    assert (done.exit_code, "needs --plugin <package>" in done.output) == (2, True)

"""Fine-tuning and evaluating a model that writes, from two parallel files to scores of its own
texts.
"""

import json

import pytest

from plmctl.artifacts.loading import load
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError, ConfigErrors, DataError
from plmctl.core.rounding import round_floats
from plmctl.tasks.scores import written
from plmctl.use.prompting import make_prompt_reader
from tests.tasks.writing import parallel

SMALL = [
    "checkpoint=null",
    "size=tiny",
    "size.num_layers=1",
    "tokenizer.vocab_size=39",
    "train.precision=fp32",
    "train.threads=1",
    "optim.lr=2e-3",
    "train.batch_size=8",
    "train.clip=1",
    "task.max_length=16",
    "task.max_target=16",
    "search@task.search=greedy",
]
SIDES = ["task.columns.source=en", "task.columns.target=de"]


def _run(verb, *words, **flags):
    """The exit code: of a command that returns what it measured, 0."""
    found = perform(config.compose(verb, None, list(words)).asked(**flags))
    return found if isinstance(found, int) else 0


def _finetune(path, run, *words, **flags):
    return _run(
        "finetune",
        "task=translation",
        f"task.path={path}",
        f"run.dir={run}",
        *SIDES,
        *SMALL,
        *words,
        **flags,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = parallel(tmp_path_factory.mktemp("data"))
    run = tmp_path_factory.mktemp("runs") / "first"
    words = [
        "model=encoder_decoder",
        "train.epochs=40",
        "train.eval_every=320",
        "task.metrics=[chrf,exact,bleu,perplexity]",
    ]
    assert _finetune(folder, run, *words) == 0
    return folder, run


def test_translates_word_by_word(trained):
    _, run = trained
    result = json.loads((run / "result.json").read_text())
    assert result["metrics"]["dev"]["exact"] > 80
    assert result["metrics"]["dev"]["perplexity"] < 1.5
    assert result["signatures"]["bleu"].startswith(
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    )


def test_saved_predictions_give_the_same_digits(trained, capsys):
    _, run = trained
    result = json.loads((run / "result.json").read_text())["metrics"]["dev"]
    saved = [
        json.loads(line) for line in (run / "predictions" / "dev.jsonl").read_text().splitlines()
    ]
    again, _ = written.score(
        saved, ["chrf", "exact", "bleu", "perplexity"], tokenize="13a", lowercase=False
    )
    assert round_floats(again) == {name: value for name, value in result.items() if name != "loss"}
    assert _run("eval", f"checkpoint={run}", json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["metrics"]["dev"] == result
    assert set(said["signatures"]) == {"bleu", "chrf"}
    assert [
        json.loads(line) for line in (run / "eval" / "dev.jsonl").read_text().splitlines()
    ] == saved


def test_writes_for_new_lines(trained, tmp_path, capsys):
    _, run = trained
    (tmp_path / "new.txt").write_text("red new\nsmall\n")
    words = [f"checkpoint={run}", f"input={tmp_path / 'new.txt'}", f"out={tmp_path}"]
    assert _run("eval", *words) == 0
    found = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert [p["guess"] for p in found] == ["rot neu", "klein"]
    assert "nll" not in found[0]
    capsys.readouterr()
    assert _run("generate", *words[:2]) == 0
    assert capsys.readouterr().out == "rot neu\nklein\n"


KINDS = {
    "encoder_decoder": ["model=encoder_decoder"],
    "decoder": ["model=decoder", "pattern=causal", "tokenizer=byte_bpe"],
    "unilm": ["model=encoder", "pattern=unilm", "model.embedding.segments=6"],
    "masked": ["model=encoder", "pattern=unilm", "model.embedding.segments=6", "task.masked=0.7"],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_generate_asks_as_the_task_does(kind, tmp_path, capsys):
    """The same texts as `eval input=`, with a prefix, sources that are cut, and no trigram
    twice.
    """
    size = ["tokenizer.vocab_size=300"] if kind == "decoder" else []
    search = ["search.no_repeat_ngram=2", "search.min_length=2"]
    task = [
        "task.prefix=go ",
        "task.max_length=8",
        "task.max_target=5",
        *(f"task.{word}" for word in search),
    ]
    words = [
        *KINDS[kind],
        *size,
        *task,
        "train.epochs=null",
        "train.steps=9",
        "task.metrics=[exact]",
    ]
    assert _finetune(parallel(tmp_path), tmp_path / "run", *words) == 0
    sources = ["red new", "small", "old cold big green blue red new small", "go red"]
    (tmp_path / "new.txt").write_text("\n".join(sources) + "\n")
    files = [f"checkpoint={tmp_path / 'run'}", f"input={tmp_path / 'new.txt'}"]
    assert _run("eval", *files, f"out={tmp_path}") == 0
    guesses = [
        json.loads(line)["guess"] for line in (tmp_path / "new.jsonl").read_text().splitlines()
    ]
    capsys.readouterr()
    assert _run("generate", *files, *search) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == guesses
    assert "cut at the end, to task.max_length=8" in said.err
    assert _run("generate", files[0], f"prompt={sources[0]}", *search) == 0  # token by token
    assert capsys.readouterr().out == guesses[0] + "\n"
    again = [
        "task=translation",
        f"task.path={tmp_path}",
        f"run.dir={tmp_path / 'more'}",
        *SIDES,
        files[0],
    ]
    longer = (
        r"fix: task.max_length=8 task.max_target=5$"
        if kind == "decoder"
        else "fix: task.max_length="
    )
    with pytest.raises(ConfigError, match=longer):
        _run("finetune", *again, "task.max_length=80", "task.max_target=50")
    reader = make_prompt_reader(loaded := load(tmp_path / "run"), "x")
    examples = [reader.task.parse(line, number) for number, line in enumerate(sources, 1)]
    asked = reader.task._prompts(collate(reader.task.encode(examples, loaded.tokenizer), {})).seqs[
        reader.kind
    ]
    given = reader.batch(list(reader.all(iter(sources)))).seqs[reader.kind]
    assert given.ids.tolist() == asked.ids.tolist()
    assert given.length.tolist() == asked.length.tolist()
    assert {name: track.tolist() for name, track in given.tracks.items()} == {
        name: track.tolist() for name, track in asked.tracks.items()
    }


def test_goes_on_from_a_checkpoint_with_its_head(trained, tmp_path, capsys):
    folder, run = trained
    words = [word for word in SMALL if not word.startswith(("size", "tokenizer", "checkpoint"))]
    again = [*words, f"checkpoint={run}", "train.epochs=null", "train.steps=1"]
    assert (
        _run(
            "finetune",
            "task=translation",
            f"task.path={folder}",
            f"run.dir={tmp_path / 'second'}",
            *SIDES,
            *again,
        )
        == 0
    )
    assert "nothing is new" in capsys.readouterr().err
    with pytest.raises(
        ConfigError,
        match=(
            r"(?s)task.max_length=16: at most 16.*task.max_target a row has 17.*fix:"
            r" task.max_target=16$"
        ),
    ):
        _run(
            "finetune",
            "task=translation",
            f"task.path={folder}",
            "run.dir=x",
            *SIDES,
            *again,
            "task.max_target=17",
        )


def test_what_cannot_be_is_refused_before_a_run_exists(trained, tmp_path):
    folder, _ = trained
    with pytest.raises(
        ConfigError, match=r"(?s)task=translation needs a model that writes.*model=encoder_decoder"
    ):
        _finetune(folder, tmp_path / "run", "model=encoder")
    with pytest.raises(DataError, match=r"there is no dev.fr next to dev.en"):
        _finetune(folder, tmp_path / "run", "model=encoder_decoder", "task.columns.target=fr")
    with pytest.raises((ConfigError, ConfigErrors), match=r"search"):
        _finetune(folder, tmp_path / "run", "model=encoder_decoder", "task.search.min_length=-1")
    with pytest.raises(ConfigError, match=r"task.columns.target='en': the source"):
        _finetune(folder, tmp_path / "run", "model=encoder_decoder", "task.columns.target=en")
    (tmp_path / "train.jsonl").write_text('{"en": 5, "de": ["b"]}\n')
    with pytest.raises(
        DataError,
        match=r"(?s)train.jsonl:1: field en is 5, not.*fix: task.columns.source=FIELD  # ",
    ):
        _finetune(tmp_path / "train.jsonl", tmp_path / "run", "model=encoder_decoder")
    with pytest.raises(ConfigError, match=r"fix: task.search.width=9"):
        _finetune(
            folder,
            tmp_path / "run",
            "model=encoder_decoder",
            "search@task.search=beam",
            "task.search.count=9",
        )
    with pytest.raises(
        ConfigError,
        match=r"(?s)task.search.width=40: at most 39, the size of.*fix: task.search.width=39$",
    ):
        _finetune(
            folder,
            tmp_path / "run",
            "model=encoder_decoder",
            "search@task.search=beam",
            "task.search.width=40",
        )
    assert not (tmp_path / "run").exists()

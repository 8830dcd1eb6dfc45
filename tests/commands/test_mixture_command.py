"""`data.mixture` and `--preview` as a user meets them: through the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.recipes import recipes_dir
from plmctl.runs import pretraining
from tests.test_recipes import tokenizer_of

TINY = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "format.max_length=48",
    "train.batch_size=8",
    "eval.rows=16",
]
QUICK = ["train.steps=2", "train.log_every=1", "train.precision=fp32"]


def plmctl(verb: str, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), [verb, *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def metrics(run: Path) -> list[dict]:
    return [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def weights(run: Path) -> dict[str, torch.Tensor]:
    files = sorted(
        max((run / "checkpoints").glob("step-*"), key=lambda folder: int(folder.name[5:])).glob(
            "*.safetensors"
        )
    )
    return {
        f"{file.stem}/{name}": tensor for file in files for name, tensor in load_file(file).items()
    }


@pytest.fixture(scope="module")
def texts(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An English text, and a smaller Chinese one."""
    folder = tmp_path_factory.mktemp("mixture")
    sentences = [
        f"第{i}只猫坐在{'垫子桌子椅子'[2 * (i % 3) :][:2]}上，看着窗外的{'花鸟鱼'[i % 3]}。"
        for i in range(400)
    ]
    (folder / "zh.txt").write_text(
        "\n\n".join("".join(sentences[i : i + 8]) for i in range(0, 400, 8)), encoding="utf-8"
    )
    shutil.copy(small_text, folder / "en.txt")
    return {"en": folder / "en.txt", "zh": folder / "zh.txt"}


@pytest.fixture(scope="module")
def tokens(texts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both texts as tokens of one tokenizer."""
    home = tmp_path_factory.mktemp("mixed")
    both = f"data.path=[{','.join(map(str, texts.values()))}]"
    plmctl(
        "tokenize",
        both,
        "tokenizer=wordpiece",
        "tokenizer.vocab_size=600",
        "processes=1",
        f"out={home / 'both'}",
    )
    for name, text in texts.items():
        given = [
            f"data.path={text}",
            f"tokenizer.path={home / 'both'}",
            "data.valid_share=0.1",
            "processes=1",
        ]
        plmctl("tokenize", *given, f"out={home / name}")
    return {name: home / name for name in texts}


def mixed(paths: dict[str, Path], *more: str) -> list[str]:
    return [*(f"data.mixture.{name}.path={path}" for name, path in paths.items()), *more]


def test_a_mixture_trains_resumes_and_reports_each_corpus(
    tokens: dict[str, Path], tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    words = [
        "bert",
        *TINY,
        *mixed(tokens, "data.temperature=2"),
        "train.precision=fp32",
        "train.log_every=1",
    ]
    output = plmctl(
        "pretrain",
        *words,
        "train.steps=6",
        "train.save_every=3",
        "train.keep_last=9",
        f"run.dir={whole}",
    )
    assert "% of the mixture's rows" in output
    assert "an epoch of the mixture is" in output
    state = json.loads((whole / "checkpoints/step-6/trainer.json").read_text())["reader"][
        "sources"
    ]["text"]
    assert state["row"] == 48
    assert sum(cursor for _, cursor in state["corpora"].values()) == 48
    shutil.copytree(whole, part)
    shutil.rmtree(part / "checkpoints/step-6")
    plmctl("pretrain", "--resume", f"run.dir={part}")
    one, other = weights(whole), weights(part)
    assert all(torch.equal(one[name], other[name]) for name in one)
    valid = next(record for record in reversed(metrics(part)) if "valid/loss" in record)
    for term in ("mlm", "nsp"):
        each = [valid[f"valid/{name}/loss/{term}"] for name in ("en", "zh")]
        assert min(each) <= valid[f"valid/loss/{term}"] <= max(each)
    assert valid["valid/en/loss"] == pytest.approx(
        valid["valid/en/loss/mlm"] + valid["valid/en/loss/nsp"], rel=1e-5
    )
    assert {
        "valid/bits_per_byte/mlm",
        "valid/en/bits_per_byte/mlm",
        "valid/zh/bits_per_byte/mlm",
    } <= set(valid)


def test_the_held_out_figures_of_a_corpus_do_not_depend_on_the_others(
    tokens: dict[str, Path], tmp_path: Path
) -> None:
    """Rate 0, so the weights are the same: the mixture says of each corpus what a run on it
    alone says.
    """
    words = ["roberta", *TINY, *QUICK, "optim.lr=0", "optim.weight_decay=0"]
    found = {}
    for name, data in {
        "both": mixed(tokens),
        **{name: [f"data.path={path}"] for name, path in tokens.items()},
    }.items():
        plmctl("pretrain", *words, *data, f"run.dir={tmp_path / name}")
        found[name] = next(record for record in metrics(tmp_path / name) if "valid/loss" in record)
    for name in tokens:
        for figure in ("loss/mlm", "bits_per_byte/mlm"):
            assert found["both"][f"valid/{name}/{figure}"] == found[name][f"valid/{figure}"]


def test_epochs_and_sources_with_a_mixture(tokens: dict[str, Path], tmp_path: Path) -> None:
    node = ",".join(f"{name}:{{path:{path}}}" for name, path in tokens.items())
    words = [
        f"data.sources={{both:{{mixture:{{{node}}}}},zh:{{path:{tokens['zh']}}}}}",
        "train.epochs=0.05",
    ]
    output = plmctl(
        "pretrain", "bert", *TINY, *words, "train.log_every=1", f"run.dir={tmp_path / 'run'}"
    )
    assert "both: an epoch of the mixture is" in output
    valid = next(record for record in metrics(tmp_path / "run") if "valid/loss" in record)
    assert {"valid/both.en/loss", "valid/both.zh/loss", "valid/zh/loss"} <= set(valid)


def test_raw_texts_share_a_tokenizer(
    texts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = [], pretraining.open_corpus
    monkeypatch.setattr(
        pretraining,
        "open_corpus",
        lambda *given, **more: opened.append(given) or real(*given, **more),
    )
    words = [
        "bert",
        *TINY,
        *QUICK,
        "tokenizer.vocab_size=400",
        *mixed(texts, "data.mixture.en.weight=3"),
    ]
    output = plmctl("pretrain", *words, f"run.dir={tmp_path / 'run'}")
    assert "75.0% of the mixture's rows" in output
    assert len(opened) == 1  # texts are hashed once
    vocabulary = (tmp_path / "run/checkpoints/step-2/tokenizer/tokenizer.json").read_text(
        encoding="utf-8"
    )
    assert '"猫"' in vocabulary
    assert '"the"' in vocabulary
    saved = tmp_path / "run/checkpoints/step-2/tokenizer"
    half = {"en": texts["en"], "zh": tmp_path / "zh"}
    plmctl(
        "tokenize", f"data.path={texts['zh']}", f"tokenizer.path={saved}", f"out={tmp_path / 'zh'}"
    )
    output = plmctl("pretrain", "bert", *TINY, *QUICK, *mixed(half), f"run.dir={tmp_path / 'half'}")
    assert "400 wordpiece tokens" in output  # that of the token directory


def test_other_tokenizers_are_refused(
    tokens: dict[str, Path], tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    other = tokens_of("wordpiece", "tokenizer.vocab_size=500")
    output = plmctl(
        "pretrain",
        "bert",
        *TINY,
        *mixed({"en": tokens["en"], "other": other}),
        f"run.dir={tmp_path / 'x'}",
        code=3,
    )
    prints = [
        json.loads((folder / "manifest.json").read_text())["tokenizer"]["fingerprint"]
        for folder in (tokens["en"], other)
    ]
    assert output.startswith(f"plmctl: {other}: ")
    assert all(fingerprint in output for fingerprint in prints)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.mixture.en.wieght=2"], "data.mixture.en.wieght=2: there is no such setting"),
        (["data.mixture.en.weight=-1"], "data.mixture.en.weight=-1: a number above 0"),
        (
            ["data.mixture.en.weight=0.3", "data.mixture.zh.weight=0.3"],
            "must add up to 1, these add up to 0.6",
        ),
        (["data.path=a.txt"], "data.path='a.txt': has no effect with data.mixture"),
        (["data.temperature=0"], "data.temperature=0: must be more than 0"),
        (
            ["data.temperature=2", "data.mixture.en.weight=2"],
            "data.temperature=2.0: has no effect on corpora with weights",
        ),
        (
            ["data.valid_path=v.txt"],
            "data.valid_path='v.txt': each corpus of data.mixture holds documents of its own out",
        ),
        (["data.sources.text.wieght=2"], "data.sources.text.wieght=2: there is no such setting"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_read(words: list[str], message: str) -> None:
    nowhere = {"en": Path("nowhere/en"), "zh": Path("nowhere/zh")}
    assert message in plmctl("pretrain", "bert", *mixed(nowhere, *words), code=2)


def test_streams_are_the_rows_of_an_update_and_are_not_mixed(tokens: dict[str, Path]) -> None:
    words = ["bert", *TINY, "format=segments", "objective=[mlm]", "--preview", "1"]
    output = plmctl("pretrain", *words, f"data.path={tokens['en']}", "format.streams=5", code=2)
    assert "format.streams=5: must be the 8 rows of an update" in output
    assert "reads one corpus" in plmctl("pretrain", *words, *mixed(tokens), code=2)


def test_temperature_needs_a_mixture_and_other_commands_take_none() -> None:
    assert "has no effect without data.mixture" in plmctl(
        "pretrain", "bert", "data.temperature=2", code=2
    )
    assert "there is no such setting" in plmctl("tokenize", "data.temperature=2", "out=x", code=2)


def test_dry_run_takes_the_vocabulary_of_a_mixture(tokens: dict[str, Path]) -> None:
    report = json.loads(plmctl("pretrain", "bert", *TINY, *mixed(tokens), "--dry-run", "--json"))
    alone = json.loads(
        plmctl("pretrain", "bert", *TINY, f"data.path={tokens['en']}", "--dry-run", "--json")
    )
    assert report["parameters"] == alone["parameters"]
    assert (
        report["parameters"]
        != json.loads(plmctl("pretrain", "bert", *TINY, "--dry-run", "--json"))["parameters"]
    )


def test_preview_of_a_mixture_shows_both(
    tokens: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    output = plmctl(
        "pretrain", "bert", *TINY, *mixed(tokens, "data.temperature=1e6"), "--preview", "12"
    )
    assert output.count("row ") == 12
    assert "猫" in output
    assert "the" in output
    assert "*[MASK]" in output
    assert "pair: 0 (" in output
    assert "marks: * hidden" in output
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 100


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("noise", "marks"),
    [
        ("[text_infill]", ["target  ", "source  ", "*<mask>", "- deleted"]),
        pytest.param(
            "[sentence_permute]",
            ["target  ", "source  ", "sentence", "> moved here"],
            marks=pytest.mark.slow,
        ),
        ("[token_mask,token_shuffle]", ["before   ", "mlm ", "shuffle ", ">"]),
        ("[factorization_order]", ["plm ", "order "]),
    ],
)
def test_preview_of_noises_that_no_objective_of_the_recipe_asks_for(
    noise: str, marks: list[str], tokens_of: Callable[..., Path]
) -> None:
    """Their rows are shown first; then it is said why a run would be refused."""
    words = [
        "roberta",
        f"data.path={tokens_of('byte_bpe')}",
        "format.max_length=96",
        f"noise={noise}",
        "--preview",
        "8",
    ]
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    assert all(mark in result.stdout for mark in marks)
    assert result.exit_code == (0 if "token_mask" in noise else 2)
    assert ("objective.mlm: needs 'targets.mlm'" in result.output) == (result.exit_code == 2)


@pytest.mark.parametrize(
    ("noise", "lack"),
    [
        ("[target_mask]", "'tracks.segment'"),
        ("[autoencode,sequence_span]", "'text', which noise.autoencode turns into"),
    ],
)
def test_preview_of_a_noise_that_is_not_given_what_it_reads(
    noise: str, lack: str, tokens_of: Callable[..., Path]
) -> None:
    """There are no rows to show: it is said why."""
    words = ["roberta", f"data.path={tokens_of('byte_bpe')}", f"noise={noise}", "--preview", "1"]
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    assert result.exit_code == 2
    assert f"needs {lack}" in result.output


SHOWN = {  # what a preview of a recipe must show
    "bert": ["  before   [CLS]", "*[MASK]", "mlm ", "segment  0", "pair: "],
    "roberta": ["*<mask>", "mlm "],
    "gpt": ["clm "],
    "gpt2": ["clm "],
}


@pytest.mark.sampled(11)
@pytest.mark.parametrize("recipe", sorted(file.stem for file in recipes_dir().glob("*.yaml")))
def test_preview_of_every_recipe(
    recipe: str, tokens_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plmctl.config.compose import compose

    monkeypatch.chdir(tmp_path)
    cfg = compose("pretrain", recipe)
    alone = ["distill=none", "kept_layers=null"] if cfg.get("distill") else []  # without a teacher
    code = 0 if cfg.objective else 2  # then it is said that nothing would be learnt
    output = plmctl(
        "pretrain",
        recipe,
        *tokenizer_of(recipe, tokens_of),
        "format.max_length=40",
        *alone,
        "--preview",
        "3",
        code=code,
    )
    assert output.count(" tokens") >= 3
    for words in SHOWN.get(recipe, ["row "]):
        assert words in output
    assert list(tmp_path.iterdir()) == []

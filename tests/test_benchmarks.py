"""The scripts of benchmarks/ without the extra that some of them need."""

from __future__ import annotations

import importlib
import json
import runpy
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_imports import ORDER

FOLDER = Path(__file__).parents[1] / "benchmarks"
SHARED = ("peers", "made_vocab", "faulty_store")  # modules of several scripts
PEERS = {
    "pretrain_cpu": "transformers, accelerate",
    "peer_trainer": "transformers, accelerate",
    "peer_loss": "transformers, accelerate",
    "generation": "transformers",
    "runtimes": "transformers",
}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As if only plmctl and what it needs were installed."""
    for name in ("transformers", "accelerate"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.syspath_prepend(str(FOLDER))
    return monkeypatch


@pytest.mark.parametrize("script", PEERS)
def test_the_extra_is_named_where_it_is_missing(
    script: str, bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setattr(sys, "argv", [str(FOLDER / f"{script}.py")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert ended.value.code == 2
    assert (
        capsys.readouterr().err
        == f"{script}.py needs {PEERS[script]}\n  fix: pip install 'plmctl[bench]'\n"
    )


@pytest.mark.parametrize(
    "script",
    sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in (*SHARED, *PEERS)),
)
def test_the_others_need_none(
    script: str, bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setattr(sys, "argv", [str(FOLDER / f"{script}.py"), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


# each script with the words of a run that takes seconds; {...} is made by `made`, below
TINY = {
    "attacks": "{run} attack_candidates=letters --rows 1 --rounds 1",
    "attention_kernels": "--lengths 32 --reach 4 --rounds 1",
    "cached_eval": "--lengths 32 --layers 1 --width 16 --heads 2 --window 8 --tokens 2",
    "config_path": "train.clip=0.4375",
    "dedup": "--data {text} --megabytes 0.05 --least 1 --files 2 --processes 1 --rounds 1",
    "disentangled": "--length 8 --width 8 --heads 2 --batch 1 --rounds 1",
    "formats": "--length 32 --only 'blocks, best'",
    "generation": "--shape tiny tiny-marian --rounds 1 --new 4 --prompt 4 --batch 1",
    "graph_embeddings": "--width 8 --batch 64 --epochs 1 --rounds 1 --ranked 20",
    "large_data": "--text {text} --megabytes 0.3 --parts 2 --shard-tokens 3000 --steps 9 --kills 1",
    "layer_costs": "--cells dense --lengths 32 --widths 16 --rounds 1 --most 0.1",
    "linking": "--export {wiki} --pages 2 --rounds 1",
    "loader": "--tokens 20000 --batch 512 --seconds 0.05",
    "long_rows": "reversible --width 16 --lengths 32 --rounds 1",
    "many_tasks": "--tasks 2 --size tiny --rows 4 --length 16 --batch 4 --rounds 1",
    "noise": "--rows 20 --length 32 --seconds 0.01 --only token_mask",
    "pretrain_cpu": "--sizes tiny --rounds 1 --steps 2 --words 6000 --vocab 500",
    "pretrain_gpu": "--smoke --only mini-128 --minutes 5",
    "recipes": "--recipes bert --tokens {tokens} --size tiny --length 32 --batch 4 --rounds 1",
    "regularisers": "--size tiny --batch 4 --length 16 --vocab 140 --rounds 1",
    "runtimes": "--path {labels} --size tiny --vocab 45 --rows 4 --rounds 1 --only torch",
    "saves": "--size tiny --steps 8 --every 2 --words train.batch_size=4",
    "search": "--individuals 3 --strategies random",
    "serve": "chaos --run {run} --texts {text} --minutes 0.05 --at-once 2 -- max_texts=200",
    "soak": "--minutes 1 --set train.threads=1",
    "spans": "--limit 32 --tokens 16 --spans 8 --rounds 1",
    "time_to_loss": "{tokens} --minutes 0.02 --ours 0.02 --size tiny --length 32",
    "tokenize_text": "--megabytes 1 --kinds wordpiece --vocab 200 --processes 1 --rounds 1",
    "two_trees": "{tree} {tree} --recipes bert --text {text} --updates 2 --tokens 2 --rounds 1",
    "word_vectors": "--data {text} --width 8 --rounds 1",
}
BY_OTHERS = (
    "peer_trainer",
    "peer_loss",
    "text_attack",
    "peer_dedup",
    "peer_minimal_pairs",
)  # other sides, which these start
NEED = {
    "rare_words": "a model that has read a corpus, and word pairs",
    "minimal_pairs": "a pretrained model, and pairs",
}
FEW = "--size tiny --vocab 45 --rows 4 --rounds 1 --only torch transformers"
ANSWERS = (f"--task squad --path {{spans}} {FEW}", f"--path {{labels}} --vectors {FEW}")
QUICK = ("formats", "linking", "noise")
WIKI = """<mediawiki><page><title>Cat</title><ns>0</ns><id>1</id><revision><id>2</id><text>A
'''cat''' is an [[animal]].</text></revision></page></mediawiki>"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A small text, its tokens, a run on them and the export of a wiki."""
    folder = tmp_path_factory.mktemp("made")
    lines = [
        " ".join(f"w{chr(97 + (7 * n + k * k) % 15)}" for k in range(9)) + "." for n in range(400)
    ]
    (folder / "text.txt").write_text("\n\n".join(lines), encoding="utf-8")
    (folder / "wiki.xml").write_text(WIKI, encoding="utf-8")
    (folder / "labels").mkdir()
    for name in ("train", "dev"):
        rows = (f"a {('dull', 'fine')[n % 2]} {name} {n}\t{n % 2}\n" for n in range(60))
        text = f"sentence\tlabel\n{''.join(rows)}"
        (folder / "labels" / f"{name}.tsv").write_text(text, encoding="utf-8")
    (folder / "spans").mkdir()
    answer = {"text": "fine film", "answer_start": 2}
    asked = [{"id": f"{n}", "question": f"what is it {n}", "answers": [answer]} for n in range(8)]
    passage = {"context": "a fine film of the year", "qas": asked}
    stored = json.dumps({"version": "1.1", "data": [{"title": "x", "paragraphs": [passage]}]})
    for name in ("train", "dev"):
        (folder / "spans" / f"{name}-v1.1.json").write_text(stored, encoding="utf-8")
    return {
        "text": str(folder / "text.txt"),
        "wiki": str(folder / "wiki.xml"),
        "tokens": str(folder / "tokens"),
        "run": str(folder / "run"),
        "labels": str(folder / "labels"),
        "spans": str(folder / "spans"),
        "tree": str(FOLDER.parent),
    }


def run_plmctl(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "plmctl", *words], check=True, capture_output=True)


def run_tiny(script: str, made: dict[str, str], folder: Path, given: str = "") -> str:
    """What a script prints, in a folder of its own."""
    if "{tokens}" in TINY[script] and not Path(made["tokens"]).exists():
        tokens = ["tokenizer=wordpiece", "tokenizer.vocab_size=40"]
        run_plmctl(
            "tokenize",
            f"data.path={made['text']}",
            "data.valid_share=0.2",
            *tokens,
            f"out={made['tokens']}",
        )
    if "{run}" in TINY[script] and not Path(made["run"]).exists():
        words = ["task=classification", "task.path=builtin", "train.epochs=null", "train.steps=1"]
        words += ["size=tiny", "size.width=16", "size.inner_width=32", "task.max_length=32"]
        run_plmctl(
            "finetune", "checkpoint=null", *words, "tokenizer=char", f"run.dir={made['run']}"
        )
    words = [word.format(**made) for word in shlex.split(given or TINY[script])]
    command = [sys.executable, str(FOLDER / f"{script}.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_script_has_a_tiny_run() -> None:
    scripts = {file.stem for file in FOLDER.glob("*.py")}
    assert scripts == {*TINY, *NEED, *BY_OTHERS, *SHARED}


@pytest.mark.parametrize("script", QUICK)
def test_a_quick_script_runs(script: str, made: dict[str, str], tmp_path: Path) -> None:
    assert any(character.isdigit() for character in run_tiny(script, made, tmp_path))


@pytest.mark.slow  # QUICK stay
@pytest.mark.parametrize("script", [name for name in TINY if name not in {*QUICK, *NEED}])
def test_every_script_runs(script: str, made: dict[str, str], tmp_path: Path) -> None:
    assert any(character.isdigit() for character in run_tiny(script, made, tmp_path))


@pytest.mark.slow  # the labels of "runtimes" stay
@pytest.mark.parametrize("given", ANSWERS)
def test_spans_and_vectors_are_measured(given: str, made: dict[str, str], tmp_path: Path) -> None:
    lines = run_tiny("runtimes", made, tmp_path, given).splitlines()
    assert [line.split("  ")[0] for line in lines[2:5]] == [
        "transformers",
        "transformers, sorted",
        "plmctl torch",
    ]


def test_the_rooms_of_config_path_are_those_of_the_package() -> None:
    rooms = runpy.run_path(str(FOLDER / "config_path.py"))["ROOMS"]
    assert rooms == ORDER


@pytest.mark.parametrize("native", [True, False])
def test_bf16_is_measured_where_the_processor_multiplies_it(
    native: bool, bare: pytest.MonkeyPatch
) -> None:
    """By default; elsewhere an update in bf16 takes minutes, also that of the other side."""
    script = runpy.run_path(str(FOLDER / "pretrain_cpu.py"))
    bare.setattr("plmctl.training.device.precision._cpu_multiplies_bf16", lambda: native)
    bare.setattr(sys, "argv", ["pretrain_cpu.py"])
    options = script["arguments"]()
    options.precision = script["find_precision"](options.precision)
    assert options.precision == ("bf16" if native else "fp32")
    assert any("bf16" in side for side in script["sides"](options)) == native


RATES = ["--rates", "--lengths", "64", "--reach", "4", "--heads", "1", "--rounds", "1"]


def test_rates_of_the_kernels_of_a_cpu(
    bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.setattr(sys, "argv", [str(FOLDER / "attention_kernels.py"), *RATES])
    runpy.run_path(sys.argv[0], run_name="__main__")
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    for kernel in ("dense", "banded"):
        (first, *others) = [row for row in rows if row[:1] == [kernel]]
        assert len(others) == 2  # windows, causal ones, documents
        assert float(first[2]) > 0
        assert all(float(row[-1]) < 1e-5 for row in (first, *others))
    assert "no:" not in printed


@pytest.mark.slow
def test_rates_need_torch_and_numpy_alone() -> None:
    """A machine with a GPU may have nothing else of what plmctl needs."""
    hidden = "hydra", "omegaconf", "typer", "rich", "yaml", "safetensors", "tensorboard"
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({hidden}))
sys.argv = {[str(FOLDER / "attention_kernels.py"), *RATES]}
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "documents of about 9" in done.stdout


_slow = partial(pytest.param, marks=pytest.mark.slow)  # pretrain stays


@pytest.mark.parametrize(
    ("command", "word", "acts", "most"),
    [
        ("pretrain", "train.clip=0.4375", "plmctl.training.update", 12),
        ("pretrain", "optim.lr=0.00048828125", "plmctl.training.optim.groups", 12),
        _slow("finetune", "optim.lr=0.00048828125", "plmctl.training.optim.groups", 12),
        _slow("finetune", "task.max_length=47", "plmctl.tasks.layouts.encode", 12),
        # the checkpoint has a task of its own, which the words change, and a part that answers
        _slow("eval", "task.dev_share=0.328125", "plmctl.tasks.splits", 14),
    ],
)
def test_a_setting_passes_few_modules(
    command: str, word: str, acts: str, most: int, bare: pytest.MonkeyPatch
) -> None:
    script = importlib.import_module("config_path")
    way = script.trace(word, command)
    assert acts in way.modules
    assert len(way.before()) <= most
    assert len(way.specs) <= script.FILES
    assert not way.climbs


def test_what_fails_on_a_gpu_is_listed_with_its_reason(
    bare: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run fails, one takes too long, one finds no time left; each result is written at once."""
    script = runpy.run_path(str(FOLDER / "pretrain_gpu.py"))
    out, skipped = tmp_path / "found.jsonl", script["Skipped"]

    def run_one(bench: Any, name: str, side: str) -> dict[str, Any]:
        if name == "mini-128":
            assert len(out.read_text().splitlines()) == 2  # those before it
            return {"tokens_per_second": 2000.0, "mfu": 0.25, "loss": 7.5}
        code = {"electra-128": "raise SystemExit('no card')", "t5-512": "input()"}[name]
        bench.run([sys.executable, "-c", f"import time; {code}; time.sleep(60)"], 0.5 + 5)
        raise AssertionError

    words = ["--smoke", "--only", "electra-128", "t5-512", "mini-128", "--out", str(out)]
    bare.setattr(sys, "argv", ["pretrain_gpu.py", *words, "--work", str(tmp_path / "work")])
    script["main"].__globals__.update(run_one=run_one, describe_card=lambda smoke: "a card")
    script["main"]()
    first, second, third = [json.loads(line) for line in out.read_text().splitlines()]
    assert first["skipped"].startswith("exit code 1: no card")
    assert second["skipped"].startswith("exit code 1")  # nobody types
    assert (third["tokens_per_second"], third["side"]) == (2000.0, "plmctl")
    table = out.with_suffix(".md").read_text()
    assert "| mini-128 | plmctl | 2,000 | 25.0% |  | 7.500 |" in table
    assert capsys.readouterr().out.count("\n| ") == 3
    bench = script["Bench"](tmp_path / "work", out, True, 0.0, 1, (), None, None, 0.0)
    with pytest.raises(skipped, match="no time left"):
        bench.run(["true"], bench.limit)
    script["main"].__globals__["LEAST"] = 0.0
    with pytest.raises(skipped, match="longer than 0 seconds"):
        bench.run(["sleep", "60"], 0.2)


@pytest.mark.parametrize(
    ("name", "column", "grown"),
    [("flat", 0, 0.0), ("memory", 0, 30.0), ("files", 1, 2.0), ("threads", 2, 2.0)],
)
def test_a_soak_finds_what_grows(
    name: str,
    column: int,
    grown: float,
    bare: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = runpy.run_path(str(FOLDER / "soak.py"))
    seen = [[500.0, 20.0, 4.0] for _ in range(30)]
    for look in seen[:10]:
        look[0] = 100.0  # warming up is no growth
    for look in seen[20:]:
        look[column] += grown
    bare.setattr(sys, "argv", ["soak.py", "--minutes", "1"])
    script["main"].__globals__["watch"] = lambda work, given: ([*map(tuple, seen)], "")
    assert script["main"]() == int(name != "flat")
    assert capsys.readouterr().out.count("grows") == int(name != "flat")


def test_the_queue_that_serve_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against requests that wait for each other one by one, with steps as short as the draws."""
    monkeypatch.syspath_prepend(str(FOLDER))
    script = importlib.import_module("serve")
    draws, share = np.random.default_rng(0), 0.5
    gaps, free, now, times = draws.exponential(1 / share, 200_000), 0.0, 0.0, []
    for gap in gaps.tolist():
        now += gap
        free = max(free, now) + 1
        times.append(free - now)
    p50, p99 = np.quantile(times, [0.5, 0.99])
    assert script.expect_ratio(share) == pytest.approx(p99 / p50, rel=0.05)
    assert script.expect_ratio(1e-6) == pytest.approx(1, abs=1e-3)

"""Parameter-efficient fine-tuning from the command line: what a checkpoint holds, and the model
that it was trained beside.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.artifacts.adapter_base import fold_methods
from plmctl.artifacts.loading import load, open_source
from plmctl.core.errors import DataError
from plmctl.storage.reading import read_tensors
from plmctl.training.checkpoint import BASE, read, write
from tests.command import plmctl

SMALL = [
    *("size=tiny", "tokenizer.vocab_size=20", "checkpoint=null", "optim.lr=1e-3"),
    *("train.precision=fp32", "train.threads=1", "train.epochs=null", "train.steps=2"),
    *("task.max_length=32", "task=classification"),
]
SHORT = [
    *("train.epochs=null", "train.steps=6", "train.eval_every=3", "train.save_every=3"),
    *("train.precision=fp32", "train.threads=1", "train.batch_size=8", "task.max_length=32"),
    *("task=classification", "optim.lr=1e-2"),
]
WORDS = {"good": ["fine", "great"], "bad": ["awful", "poor"]}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and a trained model."""
    folder = tmp_path_factory.mktemp("base")
    for name, count in (("train", 32), ("dev", 16)):
        labels = ["bad" if n % 2 else "good" for n in range(count)]
        lines = [f"a {WORDS[label][n % 3 % 2]} film\t{label}" for n, label in enumerate(labels)]
        text = "\n".join(["text\tlabel", *lines]) + "\n"
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / f"{name}.tsv").write_text(text)
    plmctl("finetune", *SMALL, f"task.path={folder}/data", f"run.dir={folder}/plain")
    return folder


def finetune(base: Path, run: Path, *words: str) -> Path:
    given = [f"task.path={base}/data", f"checkpoint={base}/plain", f"run.dir={run}"]
    plmctl("finetune", *SHORT, *given, *words)
    return run


@pytest.fixture(scope="module")
def tuned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "lora"
    ranks = ["peft.lora.rank=2", "peft.adalora.rank=3", "peft.adalora.final_rank=1"]
    return finetune(base, run, "peft=[lora,ia3,adalora]", *ranks, "peft.adalora.every=1")


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))


def predictions(run: Path, checkpoint: Path) -> list[dict[str, Any]]:
    out = run.parent / f"{checkpoint.name}.jsonl"
    words = [f"checkpoint={checkpoint}", f"out={out}", "overwrite=true"]
    plmctl("eval", *words)
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_checkpoint_holds_what_was_trained_and_names_the_rest(base: Path, tuned: Path) -> None:
    step = newest(tuned)
    own = read_tensors(step / "model.safetensors")
    plain = open_source(base / "plain").tensors
    marks = (".lora.", ".ia3.", ".adalora.", "heads.")
    assert all(any(mark in name for mark in marks) for name in own)
    record = json.loads((step / BASE).read_text())
    assert record["path"] == str(open_source(base / "plain").folder.resolve())
    whole = open_source(tuned).tensors
    for name in record["tensors"]:
        torch.testing.assert_close(whole[name], plain[name], rtol=0, atol=0)
    assert set(whole) == set(own) | set(plain)
    assert sum(x.numel() for x in own.values()) < 0.2 * sum(x.numel() for x in plain.values())


def test_the_result_says_what_it_took(base: Path, tuned: Path) -> None:
    taken = json.loads((tuned / "result.json").read_text())["footprint"]
    file = newest(tuned) / "model.safetensors"
    own, whole = read_tensors(file), open_source(tuned).tensors
    assert taken["trained"] == sum(x.numel() for x in own.values())
    assert taken["parameters"] == sum(x.numel() for x in whole.values())
    assert taken["saved"] == file.stat().st_size
    assert taken["memory"] > 4 * taken["parameters"]
    full = json.loads((base / "plain/result.json").read_text())["footprint"]
    assert full["trained"] == full["parameters"] < taken["parameters"]


def test_it_is_evaluated_and_folded_into_a_plain_model(
    base: Path, tuned: Path, tmp_path: Path
) -> None:
    saved = [
        json.loads(line) for line in (tuned / "predictions/dev.jsonl").read_text().splitlines()
    ]
    found = predictions(tmp_path / "x", tuned)
    assert [one["probabilities"] for one in found] == [one["probabilities"] for one in saved]
    folded = tmp_path / "folded"
    plmctl("convert", str(tuned), str(folded), "--to", "plmctl")
    assert open_source(folded).config["peft"] is None
    for one, other in zip(predictions(tmp_path / "y", folded), saved, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    assert "lora" not in "".join(open_source(folded).tensors)


def test_methods_that_no_weights_compute_are_evaluated_and_not_folded(
    base: Path, tmp_path: Path
) -> None:
    methods = "peft=[prefix,adapter_parallel,bitfit]"
    run = finetune(base, tmp_path / "run", methods, "peft.prefix.length=3", "train.steps=2")
    saved = [json.loads(line) for line in (run / "predictions/dev.jsonl").read_text().splitlines()]
    found = predictions(tmp_path / "x", run)
    assert [one["probabilities"] for one in found] == [one["probabilities"] for one in saved]
    said = plmctl("convert", str(run), str(tmp_path / "folded"), "--to", "plmctl", code=2)
    assert "what it has learned is keys and values that it puts before those of the tokens" in said
    assert "fix: # use it as it is: plmctl eval" in said


@pytest.mark.slow  # tests/nn/peft/test_prompt.py compares with the text before
def test_a_prompt_begins_with_tokens_and_is_evaluated(base: Path, tmp_path: Path) -> None:
    prompt = ["peft=[prompt,lora]", "peft.prompt.length=5", "peft.prompt.text='fine film'"]
    run = finetune(
        base, tmp_path / "run", *prompt, "train.steps=1", "optim.lr=1e-9", "task.max_length=27"
    )
    own = read_tensors(newest(run) / "model.safetensors")["backbone.prompt.vectors"]
    loaded = load(base / "plain")
    ids = loaded.tokenizer.encode("fine film")
    table: Any = loaded.model.backbone.token_embedding.weight
    wanted = table[torch.tensor((ids * 5)[:5])].detach()
    torch.testing.assert_close(own, wanted, atol=1e-6, rtol=0)
    saved = [json.loads(line) for line in (run / "predictions/dev.jsonl").read_text().splitlines()]
    found = predictions(tmp_path / "x", run)
    assert [one["probabilities"] for one in found] == [one["probabilities"] for one in saved]
    given = [f"task.path={base}/data", f"checkpoint={base}/plain", f"run.dir={tmp_path}/y"]
    said = plmctl("finetune", *SHORT, *given, "peft=[prompt]", "task.max_length=32", code=2)
    assert "at most 12: a prompt takes 20 of the 32 positions" in said


@pytest.mark.slow  # tests/nn/peft compares both with loops
def test_adapters_of_runs_are_fused_and_stacked(base: Path, tuned: Path, tmp_path: Path) -> None:
    small = "peft.adapter.inner_width=4"
    adapter = finetune(base, tmp_path / "one", "peft=[adapter_pfeiffer]", small, "train.steps=1")
    shutil.copytree(adapter, other := tmp_path / "two")
    runs = f"runs=[{adapter},{other}]"
    fused = finetune(
        base, tmp_path / "fused", "peft=[fusion]", f"peft.fusion.{runs}", "train.steps=1"
    )
    above = ["peft=[trained_adapters,adapter]", f"peft.trained_adapters.{runs}", small]
    stacked = finetune(base, tmp_path / "stacked", *above, "train.steps=1")
    for run, mark in ((fused, "fusion"), (stacked, "below")):
        own = read_tensors(newest(run) / "model.safetensors")
        for number in range(2):
            for name, tensor in read_tensors(newest(adapter) / "model.safetensors").items():
                if ".adapter." in name:
                    there = name.replace(".adapter.", f".{mark}.adapters.{number}.")
                    torch.testing.assert_close(own[there], tensor, rtol=0, atol=0)
        saved = (run / "predictions/dev.jsonl").read_text().splitlines()
        found = predictions(tmp_path / f"of-{mark}", run)
        probabilities = [json.loads(line)["probabilities"] for line in saved]
        assert [one["probabilities"] for one in found] == probabilities
    given = [f"task.path={base}/data", f"checkpoint={base}/plain", f"run.dir={tmp_path}/x"]
    words = [*SHORT, *given, "peft=[fusion]"]
    said = plmctl("finetune", *words, f"peft.fusion.runs=[{tuned}]", code=2)
    assert "a run with one adapter alone; this one has peft=[lora, ia3, adalora]" in said
    said = plmctl("finetune", *words, f"peft.fusion.runs=[{base}/plain]", code=2)
    assert "this one has no method" in said
    for again in (adapter, newest(adapter)):
        said = plmctl("finetune", *words, f"peft.fusion.runs=[{adapter},{again}]", code=2)
        assert "an adapter is there once" in said


def test_runs_of_one_base_are_merged(base: Path, tuned: Path, tmp_path: Path) -> None:
    """Two checkpoints of one run stand for two runs."""
    both = sorted((tuned / "checkpoints").glob("step-*"))
    assert len(both) == 2
    words = ["average", *map(str, both), "--weights", "0.25,0.5"]
    plmctl(*words, "--out", str(tmp_path / "sum"))
    merged, (one, two) = open_source(tmp_path / "sum"), (fold_methods(open_source(p)) for p in both)
    first = open_source(base / "plain").tensors
    assert merged.config["peft"] is None
    for name, tensor in merged.tensors.items():
        start, a, b = (own[name].double() for own in (first, one.tensors, two.tensors))
        wanted = start + 0.25 * (a - start) + 0.5 * (b - start)
        torch.testing.assert_close(tensor.double(), wanted, rtol=1e-6, atol=1e-7)
    predictions(tmp_path / "x", tmp_path / "sum")
    ways = ["--by", "dare_ties", "--density", "0.5", "--seed", "3"]
    plmctl(*words[:3], *ways, "--out", str(tmp_path / "dare"))
    made = json.loads((tmp_path / "dare/average.json").read_text())
    assert (made["by"], made["density"], made["seed"]) == ("dare_ties", 0.5, 3)
    said = plmctl("average", str(tuned), str(base / "plain"), "--out", str(tmp_path / "x"), code=2)
    assert "has all weights itself" in said
    assert "--base" in said
    said = plmctl(*words, "--last", "2", code=2)
    assert "--last is for the checkpoints of one run" in said
    said = plmctl(*words[:3], "--weights", "1", code=2)
    assert "fix: --weights 1,1" in said
    said = plmctl(*words, "--density", "0.2", code=2)
    assert "linear keeps every element" in said
    said = plmctl("average", str(tuned), "--by", "ties", code=2)
    assert "name two runs of one base" in said


@pytest.mark.slow  # tests/artifacts/test_merging.py compares the rules with loops
def test_a_run_of_all_weights_and_one_of_few_are_merged(
    base: Path, tuned: Path, tmp_path: Path
) -> None:
    full = finetune(base, tmp_path / "full", "train.steps=2", "train.eval_every=0")
    runs = [fold_methods(open_source(run)).tensors for run in (tuned, full)]
    first, name = open_source(base / "plain").tensors, "backbone.stack.blocks.a.0.cell.qkv.weight"
    words = ["average", str(tuned), str(full), "--base", str(base / "plain")]
    merged = {}
    for by in ("linear", "ties", "dare"):
        plmctl(*words, "--by", by, "--out", str(tmp_path / by))
        merged[by] = open_source(tmp_path / by).tensors[name].double()
        answers = predictions(tmp_path / f"of-{by}", tmp_path / by)
        sums = [sum(one["probabilities"].values()) for one in answers]
        assert sums == pytest.approx([1] * 16, abs=1e-3)
    start = first[name].double()
    a, b = ((own[name].double() - start).flatten().tolist() for own in runs)
    kept = [sorted(map(abs, own), reverse=True)[int(0.2 * len(own)) - 1] for own in (a, b)]
    wanted = []
    for pair in zip(a, b, strict=True):
        large = [t for t, least in zip(pair, kept, strict=True) if abs(t) >= least]
        same = [t for t in large if t * sum(large) > 0]
        wanted.append(sum(same) / max(len(same), 1))
    found = (merged["ties"] - start).flatten()
    torch.testing.assert_close(found, torch.tensor(wanted).double(), rtol=0, atol=1e-6)
    mean = start + (torch.tensor(a) + torch.tensor(b)).view_as(start) / 2
    torch.testing.assert_close(merged["linear"], mean, rtol=0, atol=1e-6)
    left_out = (merged["dare"] - start == 0).double().mean()
    assert 0.7 < left_out < 0.9  # 0.81 of two draws of a tenth


def test_resume_goes_on_bit_for_bit(base: Path, tuned: Path, tmp_path: Path) -> None:
    whole = newest(tuned)
    run = tmp_path / "half"
    shutil.copytree(tuned, run)
    for folder in (run / "checkpoints").glob("step-*"):
        if folder.name != "step-3":
            shutil.rmtree(folder)
    (run / "result.json").unlink()
    plmctl("finetune", "--resume", f"run.dir={run}")
    names = ("model.safetensors", "optimizer.safetensors")
    assert all((newest(run) / n).read_bytes() == (whole / n).read_bytes() for n in names)


def test_the_model_that_it_was_trained_beside_is_needed(
    base: Path, tuned: Path, tmp_path: Path
) -> None:
    plain = newest(base / "plain")
    plain.rename(tmp_path / "moved")
    try:
        with pytest.raises(
            DataError, match=r"(?s)lora/.*: its base model is missing: .*fix: # put it back"
        ):
            open_source(tuned)
        saved = read(tmp_path / "moved")
        changed = {name: tensor + 1 for name, tensor in saved.model.items()}
        shutil.copytree(tmp_path / "moved", plain)
        (plain / "manifest.json").unlink()
        write(replace(saved, model=changed), plain)
        with pytest.raises(
            DataError, match="is not the base model of its training: its weights differ"
        ):
            open_source(tuned)
        shutil.rmtree(plain)
        both = tmp_path / "both"  # both may move together
        shutil.copytree(tuned, both / "runs/lora")
        record = json.loads((newest(tuned) / BASE).read_text())
        place = (both / "runs/lora" / record["relative"]).resolve()
        shutil.copytree(tmp_path / "moved", place)
        assert open_source(both / "runs/lora").tensors
    finally:
        shutil.rmtree(plain, ignore_errors=True)
        (tmp_path / "moved").rename(plain)


def test_what_has_methods_is_no_plain_model(tuned: Path, base: Path, tmp_path: Path) -> None:
    words = [f"task.path={base}/data", f"checkpoint={tuned}", f"run.dir={tmp_path}/x"]
    said = plmctl("finetune", *SHORT, *words, code=2)
    assert "trained with peft=[lora, ia3, adalora]" in said
    assert "plmctl convert" in said
    said = plmctl("pretrain", "bert", f"init={tuned}", f"run.dir={tmp_path}/y", code=2)
    assert "trained with peft=[lora, ia3, adalora]" in said


def test_mistakes_name_the_setting(base: Path, tmp_path: Path) -> None:
    given = [f"task.path={base}/data", f"checkpoint={base}/plain", f"run.dir={tmp_path}/x"]
    said = plmctl("finetune", *SHORT, *given, "peft=[lora]", "peft.lora.maps=[qery]", code=2)
    assert "peft.lora.maps" in said
    assert "query" in said
    said = plmctl("finetune", *SHORT, *given, "peft=[lra]", code=2)
    assert "peft=[lora]" in said
    frozen = ["peft=[lora]", "train.frozen=[backbone]"]
    said = plmctl("finetune", *SHORT, *given, *frozen, code=2)
    assert "all that peft=lora trains is frozen" in said
    given[1] = "checkpoint=null"
    said = plmctl("finetune", *SHORT, *given, "size=tiny", "peft=[lora]", code=2)
    assert "peft=['lora']: trains few weights of a trained model, and none is set" in said
    assert "fix: checkpoint=RUN  # or leave peft out" in said
    assert not (tmp_path / "x").exists()


def test_a_dry_run_counts_what_is_trained(base: Path, tmp_path: Path) -> None:
    given = [f"task.path={base}/data", f"checkpoint={base}/plain", f"run.dir={tmp_path}/x"]
    lora = ["peft=[lora]", "peft.lora.rank=2"]
    said = plmctl("finetune", *SHORT, *given, *lora, "--dry-run", "--json")
    report = json.loads(said)
    heads = sum(p.numel() for p in load(base / "plain").model.heads.parameters())
    # 2 layers x 2 maps x (A, B) x 2 x 128
    assert report["run"]["parameters that are trained"] == heads + 2 * 2 * 2 * 2 * 128

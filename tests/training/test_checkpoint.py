"""Checkpoint folders: complete or absent, whatever kills the process."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from plmctl.core.errors import DataError, PlmctlError
from plmctl.training import checkpoint
from plmctl.training.checkpoint import Checkpoints, Snapshot, damage
from plmctl.training.log import cut_back
from tests.training.toy import ToyObjective, make_model, make_trainer


def snapshot(value: float) -> Snapshot:
    tensors = {"x": torch.full((4,), value)}
    return Snapshot(tensors, {}, tensors, tensors, {"progress": {"step": int(value)}})


def extras(folder):
    (folder / "config.yaml").write_text("a: 1\n")
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "vocab.txt").write_text("x\n")


def test_contents_of_a_trainers_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, steps=2)
    trainer.checkpoints.extras = extras
    folder = trainer.fit().checkpoint
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert names == {
        "model.safetensors",
        "objective.safetensors",
        "optimizer.safetensors",
        "random.safetensors",
        "trainer.json",
        "manifest.json",
        "config.yaml",
        "tokenizer/vocab.txt",
    }
    model = load_file(folder / "model.safetensors")
    assert "backbone.token_embedding.weight" in model
    assert "heads.mlm.weight" not in model  # tied: listed once
    assert set(load_file(folder / "objective.safetensors")) == {"scale"}
    assert checkpoint.progress_of(folder).step == 2


def kills(folder, at: int) -> bool:
    """Save step 2 in a forked process that dies by SIGKILL at its `at`-th change of the file
    system; True if it died.
    """
    pid = os.fork()
    if pid == 0:
        seen = 0

        def deadly(real):
            def call(*args, **kwargs):
                nonlocal seen
                seen += 1
                if seen == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            return call

        for name in ("replace", "fsync", "mkdir", "rmdir", "unlink", "open", "close"):
            setattr(os, name, deadly(getattr(os, name)))
        checkpoint.save_file = deadly(checkpoint.save_file)
        Checkpoints(folder, extras, keep_last=1, say=lambda _: None).save(snapshot(2), step=2)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("step_of_moments", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_kill_9_at_any_moment_of_a_save_leaves_a_loadable_newest_checkpoint(
    tmp_path, step_of_moments
):
    at, found = 1 - step_of_moments, set()
    while True:
        at += step_of_moments
        folder = tmp_path / str(at)
        Checkpoints(folder, extras).save(snapshot(1), step=1)
        died = kills(folder, at)
        newest = Checkpoints(folder).newest()
        assert newest is not None
        step = checkpoint.read(newest).trainer["progress"]["step"]
        assert torch.equal(checkpoint.read(newest).model["x"], torch.full((4,), float(step)))
        found.add(step)
        if not died:
            break
        Checkpoints(folder, extras).save(snapshot(3), step=3)  # and the next save clears up
        assert not list(folder.glob(".step-*"))
    assert at > 20
    assert found == {1, 2}


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_with_a_message(tmp_path, harm):
    said = []
    Checkpoints(tmp_path).save(snapshot(1), step=1)
    target = Checkpoints(tmp_path).save(snapshot(2), step=2)
    file = target / ("manifest.json" if harm == "manifest" else "model.safetensors")
    data = file.read_bytes()
    if harm == "remove":
        file.unlink()
    elif harm == "flip":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        file.write_bytes(data[: len(data) // 2])
    found = Checkpoints(tmp_path, say=said.append).newest()
    assert found is not None
    assert found.name == "step-1"
    word = {"truncate": "truncated", "flip": "hash", "remove": "missing", "manifest": "manifest"}[
        harm
    ]
    assert len(said) == 1
    assert word in said[0]
    assert "step-2" in said[0]
    with pytest.raises(DataError, match=word):
        checkpoint.read(target)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("width: 1024", "config.yaml was edited: it has 11 bytes, saved were 10"),
        ("width: 96", "config.yaml is truncated or was edited: 9 of 10 bytes"),
        ("width: 256", "config.yaml was edited or damaged: it does not match its hash"),
    ],
)
def test_an_edited_config_is_called_edited(tmp_path, text, problem):
    def extras(folder):
        (folder / "config.yaml").write_text("width: 128")

    folder = Checkpoints(tmp_path, extras).save(snapshot(1), step=1)
    assert damage(folder) == ""
    (folder / "config.yaml").write_text(text)
    assert damage(folder) == problem


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ("[]", "damaged: must be a mapping of names to values"),
        ("null", "damaged: must be a mapping of names to values"),
        ('{"files": {}}', "its manifest.json does not name model.safetensors"),
        (
            '{"files": {"model.safetensors": {"sha256": "0"}}}',
            "damaged: 'files.model.safetensors' must have 'size'",
        ),
        (
            '{"files": {"a.b": {"size": "x", "sha256": "0"}}}',
            "damaged: 'files.a.b.size' must be a whole number",
        ),
        ("[" * 100_000, "truncated or not JSON (nested too deeply)"),
    ],
)
def test_a_malformed_manifest_is_passed_over_with_a_message(tmp_path, manifest, problem):
    said = []
    Checkpoints(tmp_path).save(snapshot(1), step=1)
    target = Checkpoints(tmp_path).save(snapshot(2), step=2)
    (target / "manifest.json").write_text(manifest)
    found = Checkpoints(tmp_path, say=said.append).newest()
    assert found is not None
    assert (found.name, len(said)) == ("step-1", 1)
    assert said[0].startswith(f"skipping {target}: ")
    assert problem in said[0]


@pytest.mark.parametrize(
    ("every", "left"),
    [
        (20, {40, 42, 60}),  # as asked, and the best
        (0, {42, 60}),  # only at the end, and the best
        (None, {42, 60}),  # the last two, of which one is the best
    ],
)
def test_a_former_best_one_takes_no_place_of_those_that_are_due(
    tmp_path, every: int | None, left: set[int]
) -> None:
    """Validated best at 6, 12, 35 and 42; saved every 20 updates, and at the end."""
    kept, best = Checkpoints(tmp_path, keep_last=2, every=every), 0
    for step in (6, 12, *((20,) if every else ()), 35, *((40,) if every else ()), 42, 60):
        best = best if step % 20 == 0 else step
        (tmp_path / f"step-{step}").mkdir()
        kept.prune(best)
    assert set(kept.steps()) == left


def test_keeps_the_last_and_the_best(tmp_path):
    kept = Checkpoints(tmp_path, keep_last=2)
    for step in (10, 20, 100, 120):
        kept.save(snapshot(step), step=step, best_step=20)
    assert kept.steps() == [20, 100, 120]


def test_a_full_disk_names_the_last_good_checkpoint_and_leaves_no_rubbish(tmp_path, monkeypatch):
    kept = Checkpoints(tmp_path)
    kept.save(snapshot(1), step=1)

    def full(path):
        raise OSError(28, "No space left on device")

    kept.extras = full
    with pytest.raises(
        PlmctlError, match=r"No space left on device; the last good checkpoint is .*step-1"
    ):
        kept.save(snapshot(2), step=2)
    assert not list(tmp_path.glob(".step-*"))


def test_loading_names_what_does_not_fit(tmp_path):
    model = make_model()
    tensors = {k: v.clone() for k, v in checkpoint.tensors_of(model).items()}
    checkpoint.load_exactly(model, tensors, file=tmp_path)
    tensors["heads.extra"] = tensors.pop("heads.row.bias")
    tensors["heads.mlm.bias"] = torch.zeros(3)
    with pytest.raises(
        DataError,
        match=(
            r"missing: heads.row.bias; unexpected: heads.extra; reshaped: heads.mlm.bias \[3\] for"
            r" \[17\]"
        ),
    ):
        checkpoint.load_exactly(model, tensors, file=tmp_path)
    assert "backbone.token_embedding.weight" in checkpoint.load_tensors(model, tensors).taken


def test_objective_tensors_leave_out_what_the_model_holds():
    model, objective = make_model(), ToyObjective()
    objective.generator_embedding = model.backbone.token_embedding
    assert set(checkpoint.tensors_of(objective, without=model)) == {"scale"}


def test_trainer_json_has_no_secrets_of_pickle(tmp_path):
    folder = make_trainer(tmp_path, steps=1).fit().checkpoint
    assert json.loads((folder / "trainer.json").read_text())["processes"] == 1
    assert not [p for p in folder.rglob("*") if p.suffix in (".pt", ".pkl", ".bin")]


def test_lines_of_metrics_that_are_no_records_are_passed_over(tmp_path):
    lines = [
        b'{"step": 1, "loss": 2.0}',
        b"[1]",
        b'{"loss": 1.0}',
        b'{"step": "x"}',
        b"\xff",
        b"[" * 100_000,
        b'{"step": 3}',
    ]
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    cut_back(tmp_path, 2)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": 2.0}\n'

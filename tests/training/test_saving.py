"""Saves in parts and in the background: whole or absent, unchanged by training, waited for."""

import json
import mmap
import os
import random
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.staging import DefaultStager

from plmctl.core.errors import PlmctlError
from plmctl.storage.parts.blocks import TensorBlock
from plmctl.storage.parts.kinds import read_at_once
from plmctl.training import checkpoint
from plmctl.training.checkpoint import Checkpoints, damage
from plmctl.training.saving import saves, worker
from plmctl.training.saving.background import InThread, SaveOrder
from plmctl.training.saving.staging import Staging
from tests.training.test_resume import stop_at
from tests.training.toy import Recurrent, curve, make_trainer, same, weights

N, LONG = 9, 100
ASYNC = {"save_async": True, "save_every": 3, "log_every": 1}


@pytest.fixture
def threads(monkeypatch):
    """No process can be had."""

    def refuse(meeting):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(saves, "InProcess", refuse)


def straight(folder: Path, **more):
    trainer = make_trainer(folder, steps=N, settings={"log_every": 1}, **more)
    trainer.fit()
    return trainer


def test_a_process_saves_and_the_run_goes_on_bit_for_bit(tmp_path):
    """Also with carried states; the last save is there when the run is over."""
    whole = straight(tmp_path / "a", backbone=Recurrent, micro=4)
    trainer = make_trainer(tmp_path / "b", steps=N, settings=ASYNC, backbone=Recurrent, micro=4)
    result = stop_at(trainer, 5)
    assert (result.exit_code, result.checkpoint.name) == (143, "step-5")
    assert trainer.checkpoints.steps() == [3, 5]
    assert damage(result.checkpoint) == ""
    files = json.loads((result.checkpoint / "manifest.json").read_text())["files"]
    assert set(files) == {"shards/.metadata", "shards/__0_0.distcp", "trainer.json"}
    kept = read_at_once(result.checkpoint)
    assert same(kept, {name: t.clone() for name, t in checkpoint.tensors_of(trainer.model).items()})
    torch.manual_seed(99)
    # and in one file: a run may change how it saves
    settings = {"log_every": 1}
    again = make_trainer(tmp_path / "b", steps=N, settings=settings, backbone=Recurrent, micro=4)
    again.resume(again.checkpoints.newest())
    again.fit()
    assert same(weights(whole), weights(again))
    assert curve(tmp_path / "a") == curve(tmp_path / "b")
    assert (tmp_path / "b/checkpoints/step-9/model.safetensors").is_file()


@pytest.mark.slow  # the other tests of killed processes stay
def test_a_killed_process_ends_the_run_with_a_message(tmp_path):
    trainer = make_trainer(tmp_path, steps=400, settings={**ASYNC, "save_every": 5})
    real = trainer.objective.after_step

    def after_step(model, now):
        if now > 10:
            os.kill(trainer.saves._place._process.pid, signal.SIGKILL)
            time.sleep(0.1)
        real(model, now)

    trainer.objective.after_step = after_step
    with pytest.raises(PlmctlError) as error:
        trainer.fit()
    assert "the process that writes it was ended by SIGKILL" in str(error.value)
    assert str(error.value).endswith("fix: --resume")
    assert f"the last good checkpoint is {tmp_path}/checkpoints/step-5" in str(error.value)
    assert not list((tmp_path / "checkpoints").glob(".step-*"))


def test_without_a_process_a_thread_saves(tmp_path, threads):
    said, before = [], threading.active_count()
    trainer = make_trainer(tmp_path / "b", steps=N, settings=ASYNC)
    trainer.checkpoints.say = said.append
    trainer.fit()
    what = "checkpoints are saved by a thread: no process (Resource temporarily unavailable)"
    assert said == [what]
    assert trainer.checkpoints.steps() == [6, 9]
    assert same(weights(straight(tmp_path / "a")), weights(trainer))
    assert threading.active_count() == before


def test_training_changes_nothing_that_is_being_saved(tmp_path, threads, monkeypatch):
    """The file has the numbers of its update although training went on before it was written."""
    real, go = saves.save_order, threading.Event()

    def slow(order, blocks, savers):
        go.wait(10)
        real(order, blocks, savers)

    monkeypatch.setattr(saves, "save_order", slow)
    trainer = make_trainer(tmp_path, steps=N, settings={**ASYNC, "save_every": 4})
    seen = {}

    def after_step(model, now):
        if now == 4:
            seen.update({k: t.clone() for k, t in checkpoint.tensors_of(model).items()})
        if now == 7:
            go.set()

    trainer.objective.after_step = after_step
    trainer.checkpoints.keep_last = 9
    trainer.fit()
    saved = read_at_once(tmp_path / "checkpoints/step-4")
    assert same(saved, seen)
    assert not same(saved, read_at_once(tmp_path / "checkpoints/step-8"))


@pytest.mark.parametrize("copied", [True, False])
def test_the_copy_is_what_keeps_them(tmp_path, copied, monkeypatch):
    """The control: without the copy, the file has the numbers of later."""
    if not copied:

        class Live:
            def __init__(self, block):
                self.block = block

            def find(self, memory):
                return self.block

        def stage(self, blocks):
            self.memory = b""
            return {name: Live(block) for name, block in blocks.items()}

        monkeypatch.setattr(Staging, "stage", stage)
    go, written = threading.Event(), []

    def write(order, blocks):
        go.wait(10)
        written.append(blocks["model/x"].values.clone())

    x = torch.zeros(4)
    place = InThread(write)
    order = SaveOrder(tmp_path, tmp_path, 1, None, 1)
    place.start(order, {"model/x": TensorBlock(x, (4,), (0,))})
    x += 1
    go.set()
    assert place.poll(wait=10) == ""
    assert written[0].tolist() == ([0] * 4 if copied else [1] * 4)


class Stuck:
    """A save that waits for one that has ended."""

    busy = True

    def poll(self, *, wait=0.0):
        return None

    def close(self):
        pass


class Two:
    """This process and another one, whose save has ended early."""

    main, alone = False, False

    def exchange(self, value):
        return [(False, "the process that writes it has ended by signal 9"), value]


def test_nobody_waits_for_a_save_whose_other_half_has_ended(tmp_path):
    waits = saves.Saves(Checkpoints(tmp_path), Two(), background=True)
    waits._place, waits._order = Stuck(), SaveOrder(tmp_path, tmp_path, 7, None, 1)
    with pytest.raises(PlmctlError, match=r"step-7.*ended by signal 9"):
        waits.wait()


def test_a_save_that_loses_its_other_half_reports_it_without_a_traceback(tmp_path, monkeypatch):
    words = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"
    order = SaveOrder(tmp_path, tmp_path, 7, None, 1, staged={}, size=mmap.PAGESIZE)

    def save(error):
        def fail(*_):
            raise error

        monkeypatch.setattr(worker, "save_order", fail)
        with tempfile.TemporaryFile() as file:
            file.truncate(order.size)
            return worker._save(order, file.fileno(), None)

    assert save(RuntimeError(words)) == "another process that saves has ended"
    with pytest.raises(RuntimeError, match="shapes"):  # our own mistakes stay visible
        save(RuntimeError("shapes differ"))


def test_memory_is_used_again_and_grows():
    staging = Staging(shared=True)
    some = {
        "a": TensorBlock(torch.arange(5), (5,), (0,)),
        "b": TensorBlock(torch.ones(2), (2,), (0,)),
    }
    staged = staging.stage(some)
    first = staging.memory
    staged = staging.stage(some)
    assert staging.memory is first
    assert staged["a"].find(first).values.tolist() == [0, 1, 2, 3, 4]
    more = {**some, "c": TensorBlock(torch.arange(1000), (1000,), (0,))}
    staged = staging.stage(more)
    assert staged["c"].find(staging.memory).values.equal(torch.arange(1000))
    assert staged["b"].find(staging.memory).values.tolist() == [1, 1]
    staging.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="it works with an accelerator")
def test_torchs_own_stager_needs_an_accelerator():
    """Why the memory is our own."""
    with pytest.raises(AssertionError):
        DefaultStager()


@pytest.mark.parametrize("where", ["thread", "now"])
def test_a_full_disk_ends_the_run_at_the_next_update(tmp_path, threads, monkeypatch, where):
    real = saves.seal

    def full(folder, known):
        if "step-6" in str(folder):
            raise OSError(28, "No space left on device")
        real(folder, known)

    monkeypatch.setattr(saves, "seal", full)
    trainer = make_trainer(tmp_path, steps=N, settings=ASYNC)
    done = []

    def after_step(model, now):
        done.append(now)
        if now > 6 and trainer.saves._place is not None:
            trainer.saves._place._thread.join(10)

    trainer.objective.after_step = after_step
    if where == "now":
        trainer.saves.background = False
    with pytest.raises(PlmctlError) as error:
        trainer.fit()
    assert f"cannot save {tmp_path}/checkpoints/step-6: No space left on device" in str(error.value)
    assert f"the last good checkpoint is {tmp_path}/checkpoints/step-3" in str(error.value)
    assert done[-1] == (6 if where == "now" else 7)
    assert trainer.checkpoints.steps() == [3]
    assert not list((tmp_path / "checkpoints").glob(".step-*"))


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "list", "all"])
def test_a_damaged_part_is_named_and_the_one_before_is_taken(tmp_path, threads, harm):
    trainer = make_trainer(tmp_path, steps=6, settings=ASYNC)
    newest = trainer.fit().checkpoint
    name = "shards/.metadata" if harm == "list" else "shards/__0_0.distcp"
    data = (newest / name).read_bytes()
    if harm == "flip":
        (newest / name).write_bytes(data[:-300] + bytes([data[-300] ^ 1]) + data[-299:])
    elif harm in ("remove", "list"):
        (newest / name).unlink()
    elif harm == "truncate":
        (newest / name).write_bytes(data[: len(data) // 2])
    else:
        (newest / "manifest.json").write_text('{"files": {}}')
    said = []
    found = Checkpoints(tmp_path / "checkpoints", say=said.append).newest()
    assert found.name == "step-3"
    words = {"truncate": "is truncated", "flip": "hash", "remove": "is missing", "list": "missing"}
    assert words.get(harm, "does not name model.safetensors") in said[0]
    assert harm == "all" or name in said[0]


def test_a_number_type_that_differs_is_an_error(tmp_path, threads):
    """torch would cast it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    newest = make_trainer(tmp_path, steps=3, settings=ASYNC).fit().checkpoint
    model = checkpoint.read(newest).model
    name = "backbone.token_embedding.weight"
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        here = distribute_tensor(model[name], mesh, [Shard(0)])
        assert model.placed({name: here}, {})[name].to_local().equal(model[name])
        with pytest.raises(checkpoint.DataError, match=r"is torch.float32 there, and torch.bfl"):
            model.placed({name: here.bfloat16()}, {})[name]
        # spare rows of a padded table
        rows = len(model[name])
        padded = distribute_tensor(torch.ones(rows + 3, 8), mesh, [Shard(0)])
        found = model.placed({name: padded}, {f"model/{name}": rows})[name].to_local()
        assert torch.equal(found[:rows], model[name])
        assert not found[rows:].any()
    finally:
        torch.distributed.destroy_process_group()


def killed(folder: Path, seconds: float) -> None:
    """Train in a forked process that dies by SIGKILL some time after its first save began."""
    pid = os.fork()
    if pid == 0:
        trainer = make_trainer(folder, steps=LONG, settings={**ASYNC, "save_every": 10})
        trainer.checkpoints.say = lambda line: None
        newest = trainer.checkpoints.newest()
        if newest:
            trainer.resume(newest)
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        real = trainer.saves.save

        def save(*given, **named):
            if not timer.is_alive():
                timer.start()
            real(*given, **named)

        trainer.saves.save = save
        trainer.fit()
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.slow  # tests/training/test_checkpoint.py kills saves
def test_kills_at_any_moment_lose_one_interval_at_most(tmp_path, threads):
    """`tests/training/chaos.py` does it with processes that save, and several ranks."""
    moments, reached = random.Random(0), 0
    for _ in range(4):
        killed(tmp_path / "b", moments.uniform(0.0, 0.15))
        newest = Checkpoints(tmp_path / "b/checkpoints", say=pytest.fail).newest()
        step = 0 if newest is None else checkpoint.progress_of(newest).step
        assert step >= reached
        reached = step
    settings = {"log_every": 1}
    again = make_trainer(tmp_path / "b", steps=LONG, settings=settings)
    if reached:
        again.resume(again.checkpoints.newest())
        assert again.progress.step == reached
    again.fit()
    whole = make_trainer(tmp_path / "a", steps=LONG, settings=settings)
    whole.fit()
    assert same(weights(whole), weights(again))

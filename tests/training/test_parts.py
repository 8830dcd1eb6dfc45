"""Freezing, precision, compiling, logging, the run directory."""

import itertools
import json

import pytest
import torch
from torch import nn

from plmctl.config.groups import Train
from plmctl.config.speed import estimate_rate
from plmctl.core import graphs
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.progress import clock
from plmctl.models.base import Backbone
from plmctl.runs.device_speed import Speed
from plmctl.training import rundir
from plmctl.training.budget import Budget
from plmctl.training.device import compiling, peak, precision
from plmctl.training.device.peak import find_card_peak, find_peak
from plmctl.training.freezing import apply_freezing
from plmctl.training.log import Log, cut_back, format_line, read_metrics
from plmctl.training.processes.world import device_of, join
from plmctl.training.stages import Stage, check_shares, find_stage
from tests.training.toy import ToyBatches, make_batch, make_model, make_trainer

CPU = torch.device("cpu")


def test_frozen_has_no_gradient_and_eval_mode_that_survives_train():
    model = make_model(dropout=0.5)
    apply_freezing(model, frozen=["backbone.block.*"])
    model.train()
    assert model.training
    assert model.backbone.training
    assert not any(m.training for m in model.backbone.block.modules())
    assert {n for n, p in model.named_parameters() if not p.requires_grad} == {
        "backbone.block.0.weight",
        "backbone.block.0.bias",
        "backbone.block.3.weight",
        "backbone.block.3.bias",
    }
    x = torch.randn(2, 8)
    assert torch.equal(model.backbone.block(x), model.backbone.block(x))
    apply_freezing(model, trainable=["heads"])
    model.train()
    assert not model.backbone.training
    apply_freezing(model)
    model.train()
    assert all(m.training for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())


def test_a_pattern_that_matches_nothing_names_the_nearest():
    with pytest.raises(ConfigError, match=r"frozen='backbone.blok'.*did you mean 'backbone.block'"):
        apply_freezing(make_model(), frozen=["backbone.blok"])


def test_stages_split_the_budget(tmp_path):
    stages = [Stage(batches=ToyBatches, share=0.25), Stage(batches=ToyBatches, share=0.75)]
    assert [find_stage(stages, x / 8) for x in range(9)] == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    with pytest.raises(ConfigError, match="add up to 1"):
        check_shares([0.5])
    trainer = make_trainer(tmp_path, steps=8, stages=stages, settings={"log_every": 1})
    trainer.fit()
    assert [r["stage"] for r in read_metrics(tmp_path / "metrics.jsonl")] == [
        0,
        0,
        1,
        1,
        1,
        1,
        1,
        1,
    ]
    assert trainer.batches.place == 6


def test_precision():
    assert precision.choose("fp32", CPU).scaler is None
    with precision.choose("bf16", CPU).autocast():
        assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.bfloat16
    assert precision.choose("fp16", CPU).scaler is not None
    with pytest.raises(ConfigError, match="one of auto, fp32, bf16, fp16"):
        precision.choose("int4", CPU)


def test_auto_precision_probes_the_cpu(monkeypatch):
    for has, name in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda has=has: has)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert precision.choose("auto", CPU).name == name


def test_peak_of_this_cpu():
    assert find_peak(precision.choose("fp32", CPU)) > 1e9


def test_peak_of_a_card_is_that_of_its_number_type(monkeypatch):
    """Of a run, of the dry run's estimate, and of `train.minutes`: on an H200 NVIDIA's data sheet
    has 989 TFLOP/s in 16 bits and 67 in fp32; training reaches 0.3 of it.
    """
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, top in (("bf16", 989e12), ("fp16", 989e12), ("fp32", 67e12)):
        assert find_peak(precision.Precision(name, gpu)) == top
        assert Speed.find("cuda", name).count_seconds(0.3 * top, 0) == pytest.approx(1)
        assert Speed.find("cuda", name, 128).share == 0.3
        rate = estimate_rate(Train(device="cuda", precision=name))
        assert rate == pytest.approx(0.3 * top)


def test_peak_of_a_card_goes_by_the_longest_name():
    assert find_card_peak("NVIDIA H100 PCIe", "fp32") == 51e12
    assert find_card_peak("NVIDIA H100 80GB HBM3", "fp32") == 67e12
    assert find_card_peak("NVIDIA L40S", "bf16") == 362e12
    assert find_card_peak("GeForce RTX 4090", "bf16") is None


def test_compile_falls_back_without_a_compiler(monkeypatch):
    said = []
    monkeypatch.setattr(graphs.shutil, "which", lambda name: None)
    assert compiling.find_whether(True, CPU, say=said.append) is False
    assert "no C++ compiler" in said[0]
    assert compiling.find_whether("auto", CPU) is False
    with pytest.raises(ConfigError, match="auto, true or false"):
        compiling.find_whether("maybe", CPU)


@pytest.mark.slow
def test_compiled_gives_the_same_numbers_under_the_same_names(tmp_path):
    model, other = make_model(dropout=0.0), make_model(dropout=0.0)
    if not compiling.find_whether("true", CPU):
        pytest.skip("no C++ compiler")
    compiling.compile_parts([model], CPU)
    batch = make_batch([0, 1, 2])
    torch.testing.assert_close(model(batch).last, other(batch).last)
    assert model.state_dict().keys() == other.state_dict().keys()


def test_auto_compiles_where_it_pays_on_a_gpu(monkeypatch):
    said, gpu = [], torch.device("cuda")
    monkeypatch.setattr(compiling, "find_compiler", lambda: "g++")
    short = compiling.describe_waste(of_pass=0.1, of_run=59.0)
    small = compiling.describe_waste(of_pass=2e-3, of_run=1e6)
    for waste, compiled in [(short, False), (small, False), ("", True)]:
        assert compiling.find_whether("auto", gpu, waste=waste, say=said.append) is compiled
    assert "59 s of computing in this run" in said[0]
    assert "2 ms of computing a pass" in said[1]
    assert compiling.describe_waste(of_pass=0.1, of_run=None) == ""
    assert compiling.find_whether(True, gpu, waste=short)


def test_a_backbone_inside_another_is_compiled_with_it(monkeypatch):
    compiled = []
    monkeypatch.setattr(Backbone, "compile", lambda self: compiled.append(self))
    outer, other = make_model().backbone, make_model().backbone
    outer.inner = make_model().backbone
    compiling.compile_parts([outer, nn.ModuleList([other, outer])], CPU)
    assert compiled == [outer, other]


def test_waste_of_compiling_is_foreseen_from_weights_and_tokens():
    model = make_model()
    of_row = 6 * sum(p.numel() for p in model.parameters()) * 16
    rate = of_row * 8 / 4e-3  # a pass of 8 rows takes 4 ms, an update of 32 rows of a process 16 ms

    def foresee(rate=rate, **length):
        budget = Budget(**length)
        rows = (32, 8)  # of a process: an update, a pass
        return compiling.foresee_waste(budget, model, rows=rows, length=16, processes=2, rate=rate)

    assert foresee(steps=3751) == "" == foresee(minutes=1.1)
    assert "in this run" in foresee(steps=3749)
    assert foresee(tokens=2 * 32 * 16 * 3751) == ""
    assert "in this run" in foresee(tokens=2 * 32 * 16 * 3749)
    assert "in this run" in foresee(minutes=0.9)
    assert "a pass" in foresee(rate=2 * rate, steps=10**9)
    assert foresee(rate=0.0, steps=1) == ""  # of an unknown card


def test_rare_kinds_of_batches_are_not_compiled_for():
    """The first kind at once, another one when it has come up often."""
    ran = []
    call = compiling.PatientCall(
        lambda *given: ran.append("plain"), lambda *given: ran.append("compiled")
    )

    def run(*numbers):
        ran.clear()
        for number in numbers:
            call(make_batch(list(range(number))))
        return ran

    assert run(2, 2) == ["compiled"] * 2
    others = [3 + n % 5 for n in range(compiling.OFTEN)]  # rows: together one kind
    assert run(*others) == ["plain"] * compiling.OFTEN
    assert run(2, 4, 9) == ["compiled"] * 3
    with torch.no_grad():  # another graph
        assert run(2) == ["plain"]


def test_line_of_a_record():
    record = {
        "step": 20,
        "loss": 5.25,
        "acc/mlm": 0.182,
        "lr": 1e-4,
        "tokens_per_second": 12345.0,
        "mfu": 0.4,
        "tokens": 9,
    }
    record |= {"loss/mlm": 4.5, "data_wait": 0.004, "grad_norm": 1.234, "seconds": 3}
    expected = (
        "step 20 12%  lr 0.0001  12.3k tok/s  mfu 40%  mlm 4.500 (18.2% of train)  wait 0%"
        "  grad 1.23  3:20 left"
    )
    assert format_line(record, share=0.12, eta=200) == expected
    valid = {
        "step": 20,
        "valid/loss": 4.6,
        "valid/loss/mlm": 4.6,
        "valid/acc/mlm": 0.2,
        "valid/bits_per_byte/mlm": 2.3456,
    }
    assert format_line(valid) == "step 20  valid  mlm 4.600 (20.0%)  bits/byte 2.35"
    counted = {**valid, "valid/unigram/mlm": 6.9}  # 2.3456 * 6.9 / 4.6
    assert format_line(counted).endswith("bits/byte 2.35  unigram 6.9 (3.52 bits/byte)")
    few = {"step": 20, "valid/loss/rtd": 0.4, "valid/acc/rtd": 0.853}
    few |= {"valid/constant/rtd": 0.417, "valid/constant_acc/rtd": 0.853}
    assert format_line(few) == "step 20  valid  rtd 0.400 (85.3%)  one answer 0.417 (85.3%)"
    answers = {"step": 20, "valid/f1": 0.992, "valid/accuracy": 0.5}  # f1 from 0 to 100
    line = format_line(answers, is_percent={"f1"}.__contains__)
    assert line == "step 20  valid  f1 0.992%  accuracy 0.5"
    both = {"step": 20, "valid/bits_per_byte/forward": 2.3456, "valid/bits_per_byte/backward": 2.5}
    assert format_line(both) == "step 20  valid  bits/byte forward 2.35  bits/byte backward 2.5"
    ends = {"valid/acc/pairs": 0.5, "valid/low/pairs": 0.4, "valid/high/pairs": 0.6}
    line = format_line({"step": 20, **ends})
    assert line == "step 20  valid  acc/pairs 50.0% (95%: 40.0% to 60.0%)"
    assert (
        format_line({"step": 3, "loss": 0.5, "valid/accuracy": 0.75})
        == "step 3  valid  loss 0.5  accuracy 0.75"
    )
    assert clock(3723) == "1:02:03"
    assert clock(47 * 3600 + 60) == "47:01:00"
    assert clock(53 * 3600) == "2 days 5 h"
    assert clock(3600 * 455489 + 990) == "18,978 days"


def test_plain_lines_without_a_terminal(tmp_path, capsys):
    make_trainer(tmp_path, steps=2, log=Log(tmp_path, tensorboard=False)).fit()
    assert "step 2 100%" in capsys.readouterr().err


def test_tensorboard_agrees_with_metrics_and_is_cut_back_with_them(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def steps():
        events = EventAccumulator(str(tmp_path))
        events.Reload()
        return [(e.step, e.value) for e in events.Scalars("loss/mlm")]

    log = Log(tmp_path, quiet=True)
    make_trainer(tmp_path, steps=4, log=log, settings={"log_every": 1}).fit()
    log.close()
    logged = [(r["step"], r["loss/mlm"]) for r in read_metrics(tmp_path / "metrics.jsonl")]
    assert steps() == [(step, pytest.approx(value, rel=1e-6)) for step, value in logged]
    cut_back(tmp_path, 2)
    assert [step for step, _ in steps()] == [1, 2]


def test_mfu(tmp_path):
    stages = [Stage(batches=ToyBatches, flops_per_token=1e3)]
    make_trainer(tmp_path, steps=1, stages=stages, settings={"peak_flops": 1e9}).fit()
    record = next(read_metrics(tmp_path / "metrics.jsonl"))
    assert record["mfu"] == pytest.approx(record["tokens_per_second"] * 1e-6, rel=1e-3)
    assert 0 <= record["data_wait"] <= 1


def test_an_mfu_above_1_is_no_mfu(tmp_path):
    stages = [Stage(batches=ToyBatches, flops_per_token=1e3)]
    make_trainer(tmp_path, steps=1, stages=stages, settings={"peak_flops": 1.0}).fit()
    assert "mfu" not in next(read_metrics(tmp_path / "metrics.jsonl"))


def test_a_peak_is_that_of_the_processor_time(monkeypatch):
    """Products of 0.1, 0.02 and 0.05 s of the processor, each interrupted for a second."""
    times = itertools.accumulate(itertools.cycle([1.0, 0.1, 1.0, 0.02, 1.0, 0.05]))
    monkeypatch.setattr(peak.time, "thread_time", lambda: next(times))
    assert peak.measure_rate(CPU, "fp32") == pytest.approx(2 * 512**3 / 0.02)


def test_a_peak_is_kept_for_any_number_of_threads(tmp_path, monkeypatch):
    rates = iter([3e9])
    monkeypatch.setattr(peak, "measure_rate", lambda *_: next(rates))
    found = [find_peak(precision.choose("fp32", CPU), n, str(tmp_path)) for n in (1, 4)]
    assert found == [3e9, 12e9]


@pytest.mark.parametrize(("used", "own"), [(0.9, 1.0), (0.25, 0.25)])
def test_what_others_take_is_told(used, own, monkeypatch):
    monkeypatch.setattr(peak, "ALONE", 0.75)
    clocks, threads = itertools.count(), min(torch.get_num_threads(), peak.count_processors())
    spent = itertools.count(0, used * threads * 2)  # two readings of the clock lie between them
    monkeypatch.setattr(peak.time, "perf_counter", lambda: next(clocks) * 1.0)
    monkeypatch.setattr(peak.time, "process_time", lambda: next(spent))
    assert peak.find_own_share.__wrapped__(CPU) == pytest.approx(own)
    speed = Speed(4e9, 0.5, own)
    assert speed.count_seconds(2e9, 0) == 1  # alone
    assert speed.spell_time(60) == ("1:00" if own == 1 else "1:00 alone, about 4:00 now")
    narrow, plain = (precision.Precision(name, CPU) for name in ("bf16", "fp32"))
    assert peak.usual_share(narrow, 64) == peak.usual_share(narrow) / 2 == 0.25
    assert peak.usual_share(plain, 16) == peak.usual_share(plain) / 2 == 0.335
    assert peak.find_rate(plain, 16) == 0.335 * find_peak(plain)
    others = "" if own == 1 else ", alone; others take 75% of the processor now"
    assert speed.describe() == f"50% of this device's 4.00 GFLOP/s and 10 ms an update{others}"


def make_run(tmp_path):
    folder = tmp_path / "run"
    config = (
        "optim: {lr: 1.0e-4}\ntrain: {steps: 10, tokens: null, log_every: 5, device:"
        " cpu}\nseed: 1\n"
    )
    rundir.create(folder, config=config, overrides=["size=tiny", "optim.lr=1e-4"])
    return folder


def test_a_run_directory_that_is_not_empty_is_refused(tmp_path):
    folder = make_run(tmp_path)
    assert {p.name for p in folder.iterdir()} == {"config.yaml", "overrides.txt", "env.json"}
    with pytest.raises(UsageError, match=r"not empty\n  fix: --resume"):
        rundir.create(folder, config="", overrides=[])
    (tmp_path / "empty").mkdir()
    rundir.create(tmp_path / "empty", config="", overrides=[])


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write the run directory.*\n  fix: run.dir"):
        rundir.create(tmp_path / "file" / "run", config="", overrides=[])


def test_what_ends_bit_exactness_is_said_in_one_line(tmp_path):
    folder = make_run(tmp_path)
    said = []
    rundir.restore_environment(folder, said.append)
    assert said == []
    env = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(json.dumps({**env, "torch": "1.0"}))
    rundir.restore_environment(folder, said.append)
    assert said == [f"not bit-exact from here on: torch 1.0 -> {torch.__version__}"]


def test_device_without_a_gpu():
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(ConfigError, match="sees no GPU"):
        join("cuda")
    assert join("auto").device == CPU
    with pytest.raises(
        ConfigError, match=r"^device='cuda': this torch sees no GPU\n  fix: device=cpu"
    ):
        device_of("cuda", "device")

"""When the sums of gradients begin, in a group of one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from plmctl.training.strategy.buckets import Bucket, Buckets


@pytest.fixture
def group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def events(monkeypatch):
    """What happens, in order: "sent" for a bucket, and what a test adds."""
    seen: list[str] = []
    send = Bucket.send
    monkeypatch.setattr(Bucket, "send", lambda self: (seen.append("sent"), send(self)))
    return seen


def layers(number: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(number)))


def backward(model, buckets, *, last: bool) -> None:
    with buckets.sending() if last else buckets.holding():
        model(torch.ones(1, 4)).sum().backward()


def test_buckets_leave_while_the_backward_pass_runs(group, events):
    """Two layers a bucket, the last layers first; before the last micro-batch nothing leaves."""
    model = layers(6)
    for number, layer in enumerate(model):
        layer.weight.register_hook(lambda grad, number=number: events.append(f"layer {number}"))
    buckets = Buckets(list(model.parameters()), bucket_bytes=2 * 16 * 4)
    backward(model, buckets, last=False)
    assert "sent" not in events
    events.clear()
    backward(model, buckets, last=True)
    assert events == [
        *("layer 5", "layer 4", "sent", "layer 3", "layer 2", "sent", "layer 1", "layer 0", "sent")
    ]
    buckets.finish()
    assert events.count("sent") == 3


def test_a_layer_without_gradient_holds_others_up_once(group, events):
    model = layers(4)
    buckets = Buckets(list(model.parameters()), bucket_bytes=16 * 4)
    model[3].weight.requires_grad_(False)  # as a new stage may say
    backward(model, buckets, last=True)
    assert events == []
    buckets.finish()
    assert model[3].weight.grad is None
    events.clear()
    backward(model, buckets, last=True)
    assert events == ["sent"] * 3
    buckets.finish()
    model[3].weight.requires_grad_(True)
    backward(model, buckets, last=True)
    buckets.finish()
    assert model[3].weight.grad is not None
    events.clear()
    backward(model, buckets, last=True)
    assert events == ["sent"] * 4
    buckets.finish()

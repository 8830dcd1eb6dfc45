"""The other side of pretrain_cpu.py and pretrain_gpu.py: a run of `transformers`' Trainer with
its defaults; settings are JSON in argument 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import need
from tokenizers import Tokenizer, models

need("transformers", "accelerate")
from transformers import (  # noqa: E402
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Rows(torch.utils.data.Dataset):
    """The packed rows as the collator wants them."""

    def __init__(self, path: str) -> None:
        self.ids = np.load(path)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": self.ids[index].tolist()}


class Clock(TrainerCallback):
    """When each update ended, and its loss."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.ends: list[float] = []
        self.losses: list[float] = []
        self.graphs: list[int] = []  # compiled so far

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.ends.append(time.perf_counter() - self.start)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if "loss" in logs:
            self.losses.append(logs["loss"])
            self.graphs.append(count_graphs())


def count_graphs() -> int:
    """Graphs that torch has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def main(settings: dict[str, Any]) -> None:
    set_seed(settings["seed"])
    vocab = json.loads(Path(settings["vocab"]).read_text())
    width = settings["width"]
    model = {"bert": bert, "gpt": gpt}[settings["model"]](settings, vocab, width)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=settings["batch"],
            gradient_accumulation_steps=settings.get("passes", 1),
            dataloader_num_workers=settings.get("workers", 0),
            dataloader_persistent_workers=settings.get("workers", 0) > 0,
            torch_compile=settings.get("compile", False),
            max_steps=settings["warm"] + settings["updates"],
            learning_rate=settings["lr"],
            lr_scheduler_type="constant",
            weight_decay=0.01,
            bf16=settings["bf16"],
            use_cpu=settings.get("cpu", True),
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=settings["seed"],
        )
        masked = (
            {"mlm_probability": settings["rate"]} if settings["model"] == "bert" else {"mlm": False}
        )
        collator = DataCollatorForLanguageModeling(stand_in(vocab), **masked)
        Trainer(model, arguments, collator, Rows(settings["rows"]), callbacks=[clock]).train()
    seconds = clock.ends[-1] - clock.ends[settings["warm"] - 1]
    warm = clock.ends[settings["warm"] - 1] - settings["warm"] * seconds / settings["updates"]
    rows = settings["updates"] * settings["batch"] * settings.get("passes", 1)
    figures = {
        "tokens_per_second": rows * settings["length"] / seconds,
        "compile_seconds": warm,
        "losses": clock.losses,
        "graphs_while_timed": clock.graphs[-1] - clock.graphs[settings["warm"] - 1],
        "vocab_size": vocab["size"],
    }
    print(json.dumps(figures))


def bert(settings: dict[str, Any], vocab: dict[str, int], width: int) -> BertForMaskedLM:
    return BertForMaskedLM(
        BertConfig(
            vocab_size=vocab["size"],
            hidden_size=width,
            num_hidden_layers=settings["layers"],
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
            max_position_embeddings=settings["length"],
            hidden_dropout_prob=settings["dropout"],
            attention_probs_dropout_prob=settings["dropout"],
            pad_token_id=vocab["pad"],
        )
    )


def gpt(settings: dict[str, Any], vocab: dict[str, int], width: int) -> GPT2LMHeadModel:
    rate = settings["dropout"]
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocab["size"],
            n_embd=width,
            n_layer=settings["layers"],
            n_head=width // 64,
            n_positions=settings["length"],
            embd_pdrop=rate,
            attn_pdrop=rate,
            resid_pdrop=rate,
        )
    )


def stand_in(vocab: dict[str, int]) -> PreTrainedTokenizerFast:
    """A tokenizer with the right size, mask and padding ids: all that the collator asks of one."""
    names = {f"t{i}": i for i in range(vocab["size"]) if i not in (vocab["mask"], vocab["pad"])}
    names |= {"[MASK]": vocab["mask"], "[PAD]": vocab["pad"]}
    backend = Tokenizer(models.WordLevel(names, unk_token="[PAD]"))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, mask_token="[MASK]", pad_token="[PAD]", unk_token="[PAD]"
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

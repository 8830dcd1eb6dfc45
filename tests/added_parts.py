"""One new part for each slot, as somebody would add them to the repository: for each part its
class, its YAML file and its test, by their paths.
"""

from __future__ import annotations

HEAD = "from __future__ import annotations\n\n"

NOISE = '''"""Asks for every token what is left when its id is divided by three."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise


@part_of("noise")
class Thirds(Noise):
    """Writes `targets.third`, id mod 3; changes nothing."""

    writes, changes = frozenset({"targets.third"}), False
    fields = {"targets.third": Field("[n, T]", "int", "id of a token mod 3")}

    def __call__(self, rows: Rows, draws: Any) -> Rows:
        seq = rows.seqs["text"]
        return rows.with_targets(third=np.where(seq.real, (seq.ids % 3).astype(np.int64), IGNORE))

    def capacity(self, length: int) -> dict[str, int]:
        return {"third": length}
'''

OBJECTIVE = '''"""Asks what is left when the id of a token is divided by three."""

from __future__ import annotations

from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term


@part_of("objective")
class AskThirds(Objective):
    """Cross-entropy of `targets.third` under the head `third`."""

    facts = Facts(
        needs=frozenset({"text", "targets.third"}),
        heads=frozenset({"third"}),
        terms=frozenset({"third"}),
    )

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"third": batch.counts["third"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets = batch.require("targets.third")
        logits = model.heads["third"](model(batch, state).at(targets.index)).float()
        total = F.cross_entropy(logits, targets.ids, ignore_index=IGNORE, reduction="sum")
        return Output({"third": Term(total)})
'''

OWN_HEAD = '''"""A head of three classes for every token."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.heads.base import About, Head


@part_of("heads")
class ThirdsHead(Head):
    """One linear map, [..., W] -> [..., 3]."""

    about: About = "tokens"

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features)
'''

PATTERN = '''"""Every third token."""

from __future__ import annotations

from torch import Tensor

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of


@part_of("pattern")
class EveryThird(Pattern):
    """`(q - k) mod 3 = 0`."""

    def predicate(self, seq: Seq) -> MaskMod:
        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return (q - k) % 3 == 0

        return allowed
'''

SIMPLE = '''"""{about}."""

from __future__ import annotations

{imports}


@part_of("{slot}")
class {name}({base}):
    """{about}."""
{body}'''


def simple(slot: str, name: str, base: str, module: str, body: str = "", imports: str = "") -> str:
    lines = ["from plmctl.core.parts import part_of", f"from {module} import {base}"]
    lines = [*sorted(imports.split("\n")), "", *lines] if imports else lines
    return SIMPLE.format(
        about=f"A {name} that was added",
        imports="\n".join(lines),
        slot=slot,
        name=name,
        base=base,
        body=body,
    )


CELL = simple(
    "cells",
    "Doubled",
    "FeedForward",
    "plmctl.nn.cells.feedforward",
    """
    def forward(self, streams: Streams, env: Env) -> Tensor:
        return 2 * super().forward(streams, env)
""",
).replace("import FeedForward", "import FeedForward\nfrom plmctl.nn.env import Env, Streams")
CELL = CELL.replace("from plmctl.core", "from torch import Tensor\n\nfrom plmctl.core", 1)
POSITION = simple("position", "LearnedAnew", "Learned", "plmctl.nn.positions")
FORMAT = simple("format", "OtherBlocks", "Blocks", "plmctl.data.formats.blocks")
TASK = simple("task", "OtherClassification", "Classification", "plmctl.tasks.classification")
OPTIM = simple("optim", "OtherLamb", "Lamb", "plmctl.training.optim.lamb")
SCHEDULE = simple(
    "schedule",
    "Halved",
    "Schedule",
    "plmctl.training.optim.schedule",
    """
    def after(self, s: int, total: float, warmup: float) -> float:
        return 0.5
""",
)
SIGNAL = simple(
    "signals",
    "LogitL1",
    "LogitMSE",
    "plmctl.distill.logits",
    """
    def distance(self, student: Logits, teacher: Logits, positions: Tensor) -> Tensor:
        return (student.at(positions) - teacher.at(positions)).abs().mean(-1)
""",
).replace("import LogitMSE", "import LogitMSE, Logits")
SIGNAL = SIGNAL.replace("from plmctl.core", "from torch import Tensor\n\nfrom plmctl.core", 1)


def yaml_of(about: str, target: str, settings: str = "", package: str = "") -> str:
    package = f"# @package {package}\n" if package else ""
    return f"{package}# {about}\n_target_: {target}\n{settings}"


CODE = {
    "plmctl/noise/thirds.py": NOISE,
    "plmctl/objectives/thirds.py": OBJECTIVE,
    "plmctl/heads/thirds.py": OWN_HEAD,
    "plmctl/attention/patterns/every_third.py": PATTERN,
    "plmctl/nn/learned_anew.py": POSITION,
    "plmctl/nn/cells/doubled.py": CELL,
    "plmctl/data/formats/other_blocks.py": FORMAT,
    "plmctl/tasks/other_classification.py": TASK,
    "plmctl/training/optim/other_lamb.py": OPTIM,
    "plmctl/training/optim/halved.py": SCHEDULE,
    "plmctl/distill/logit_l1.py": SIGNAL,
}

SETTINGS = {
    "conf/noise/thirds.yaml": yaml_of(
        "ids mod 3", "plmctl.noise.thirds.Thirds", package="noise.thirds"
    ),
    "conf/objective/thirds.yaml": (
        "# @package _global_\n# asks for ids mod 3\nobjective:\n"
        "  thirds: {_target_: plmctl.objectives.thirds.AskThirds, weight: 1.0}\n"
        "heads:\n  third: {_target_: plmctl.heads.thirds.ThirdsHead}\n"
    ),
    "conf/pattern/every_third.yaml": yaml_of(
        "every third token", "plmctl.attention.patterns.every_third.EveryThird"
    ),
    "conf/position/learned_anew.yaml": yaml_of(
        "a vector for each position", "plmctl.nn.learned_anew.LearnedAnew"
    ),
    "conf/model/doubled.yaml": (
        "# BERT's encoder with feed-forward cells that count twice\n"
        "defaults: [encoder, _self_]\n"
        "stack:\n  cells:\n    f: {_target_: plmctl.nn.cells.doubled.Doubled}\n"
    ),
    "conf/format/other_blocks.yaml": yaml_of(
        "blocks of tokens once more",
        "plmctl.data.formats.other_blocks.OtherBlocks",
        "max_length: 128\ncrossing: false\nspecials: true\n",
    ),
    "conf/task/other_classification.yaml": (
        "# @package _global_\n# one class a text once more\n"
        "defaults: [parts/bert, parts/single, parts/table, _self_]\n"
        "task:\n  _target_: plmctl.tasks.other_classification.OtherClassification\n"
        "  name: other_classification\n  metrics: [accuracy]\n"
    ),
    "conf/optim/other_lamb.yaml": yaml_of(
        "LAMB once more",
        "plmctl.training.optim.other_lamb.OtherLamb",
        "_partial_: true\nlr: 1.0e-3\nbetas: [0.9, 0.999]\neps: 1.0e-6\nweight_decay: 0.01\n",
    ),
    "conf/schedule/halved.yaml": yaml_of(
        "half of the rate after warm-up",
        "plmctl.training.optim.halved.Halved",
        "warmup_steps: 10\nwarmup_share: 0.0\nwarmup_limit: 0.1\n",
    ),
    "conf/distill/l1.yaml": yaml_of(
        "the distance of logits beside the labels",
        "plmctl.distill.distillation.Distillation",
        "hard: 0.5\nplaces: predicted\nsignals:\n"
        "  l1: {_target_: plmctl.distill.logit_l1.LogitL1, weight: 0.5}\n",
    ),
}

TEST = '''"""{about}"""

from plmctl.core.parts import declared
from {module} import {name}
from tests.added_parts import CODE


def test_it_is_a_part() -> None:
    assert declared({name}) == "{slot}"
    assert CODE
'''


def tests() -> dict[str, str]:
    """A test beside those of the room of each part; two of them have one name."""
    found = {}
    for path, code in CODE.items():
        slot = code.partition('part_of("')[2].partition('"')[0]
        name = code.partition("\nclass ")[2].partition("(")[0]
        module = path.removesuffix(".py").replace("/", ".")
        folder, _, file = path.removeprefix("plmctl/").rpartition("/")
        found[f"tests/{folder.partition('/')[0]}/test_{file}"] = TEST.format(
            about=f"The part {name}.", module=module, name=name, slot=slot
        )
    return found

"""`plmctl tokenize`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.config.build import MISSING, plain
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import WARN, remark
from plmctl.core.values import Processes, Whole
from plmctl.storage.paths import refuse_file_name


@dataclass(frozen=True)
class Tokenize(Command):
    """Train a tokenizer, or take one, and write text as tokens."""

    about = About(
        "tokenize",
        place=10,
        examples=(
            "plmctl tokenize tokenizer.vocab_size=4096 out=tokens",
            "plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out=tokens-wordpiece",
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config multirun config_dir plugin",
        slots="tokenizer",
    )

    data: Data = Data()
    tokenizer: Any = MISSING
    out: str = MISSING  # folder of the tokens and their tokenizer
    processes: Processes | None = None  # null: one for each core
    seed: Whole = 0

    def perform(self) -> Result:
        """Write `out` and say what is in it."""
        from plmctl.config.texts import Texts
        from plmctl.data import tokenizing
        from plmctl.data.described import (
            describe_tokens,
            refuse_other_tokens,
            sum_up_tokens,
            warn_of_large_share,
            warn_of_poor_fit,
            warn_of_text,
        )
        from plmctl.data.shards import Shards, is_tokens
        from plmctl.inputs.tokenize import make_job, show_progress, spell_command
        from plmctl.text.tokenizer import Tokenizer

        path, given = plain(self.data.path), self.provenance
        if is_tokens(path):
            allowed = "holds tokens already; give the text they were made from"
            raise ConfigError("data.path", path, allowed)
        refuse_file_name(self.out)
        with show_progress("" if given.within else spell_command(given)) as say:
            work = make_job(Texts.of(self), path, say=say, processes=self.processes)
            refuse_other_tokens(work, Path(self.out).expanduser())
            manifest = tokenizing.tokenize(work, self.out)
        warnings = warn_of_poor_fit(Shards.open(self.out), Tokenizer.load(self.out).vocab)
        if given.json:
            for line in (*warn_of_large_share(manifest), *warn_of_text(manifest), *warnings):
                remark(line, WARN)
        lines = (*describe_tokens(manifest, self.out), *warnings)
        return self.report(sum_up_tokens(manifest, self.out), lines)

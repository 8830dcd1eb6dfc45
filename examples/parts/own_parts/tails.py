"""The end of a long text, which says more than its start ("tail-only": Sun et al., 2019, sec.
5.3.1, arXiv:1905.05583).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plmctl.core.batch import Rows
from plmctl.core.parts import part_of
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.base import RowLayout, RowSettings
from plmctl.tasks.record import Example


@part_of("layout")
class TailRows(RowLayout):
    """One row a text, with its last tokens."""

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        return Example(str(number - 1), {"text": line}, place=f"line {number}")

    def encode(self, examples: Sequence[Example], tokenizer: Any, rows: RowSettings) -> Rows:
        vocab = rows.transform.vocab(tokenizer.vocab)
        room = rows.max_length - encode.specials(vocab, pair=False)
        laid_out = []
        for ids in tokenizer.encode_batch([str(each.fields["text"]) for each in examples]):
            cut = max(len(ids) - room, 0)
            row = encode.lay_out(
                ids[cut:], None, vocab, max_length=rows.max_length, pooling=rows.pooling
            )
            laid_out.append(replace(row, cut=cut))
        made = encode.pad(laid_out, vocab, example=range(len(examples)))
        return rows.transform.add_targets(encode.mark_anchors(made))

"""What the program calls the thing that changed, read from the lines that made it and use it."""

from __future__ import annotations

import pytest

from xlaprof.analysis.model import Place
from xlaprof.analysis.recompiles.wording import expression, position_of, variable
from xlaprof.events import Change


@pytest.mark.parametrize(
    ("made", "used", "name"),
    [
        ("ids = ids.to(device)", "h = self.emb(ids)", "ids"),
        ("ids = pad(rows).to(device)", "h = self.emb(tokens)", "ids"),
        ("logits = model(x.to(device))", "logits = model(x.to(device))", "x"),
        ("out = model(xm.send_cpu_data_to_device(rows, device))", "", "rows"),
        ("batch = {k: v.to(device) for k, v in batch.items()}", 'logits = model(batch["x"])', "batch['x']"),
        ("batch = {k: v.to(device) for k, v in batch.items()}", "loss = F.mse_loss(model(a), b)", ""),
        ("x, y = x.to(device), y.to(device)", "h = self.first(x)", "x"),
        ("cache = tuple(c[rows] for c in cache)", "", ""),  # of several tensors
        ("", "h = self.emb(tokens)", "tokens"),
        ("", "m = table[edges[0]] + edges[1]", "edges"),
        ("", "return (self.head(f)[:, None] - boxes).abs()", "boxes"),
    ],
)
def test_a_tensor_has_the_name_of_what_is_moved_or_read_and_not_of_a_result(made: str, used: str, name: str) -> None:
    operation = {"edges": "select", "boxes": "sub"}.get(name, "addmm")
    subject = f"input of aten::{operation}"
    change = Change("shape", "f32[8,4]", "f32[3,4]", subject, made=1 if made else 0, moved=True)
    places = (Place("train.py", line, "main", code) for line, code in ((7 if made else 0, made), (9, used)))
    assert variable(change, *places) == name


@pytest.mark.parametrize(
    ("code", "subject", "name"),
    [
        ("h = h[:, -window:]", "start of aten::slice", "-window"),
        ("x = x[:, : prefix(step)]", "end of aten::slice", "prefix(step)"),
        ("return (q @ k / temperature).softmax(-1)", "other of aten::div", "temperature"),
        ("x = x[:4] + x[:n]", "end of aten::slice", "n"),
        ("x = x[:m] + x[:n]", "end of aten::slice", ""),
        ("p = x.topk(k, dim=1)", "k of aten::topk", "k"),
        ("self.rows[self.head] = row", "index of aten::select", "self.head"),
        ("return x[0] + y[:, best] / z[:, best]", "index of aten::select", "best"),
        ("return x[i] + x[j]", "index of aten::select", ""),
        ("noise = self.model(sample, t.to(self.device)).sample", "fill_value of aten::full", "t"),
        ("level = torch.full((rows,), turn, device=device)", "fill_value of aten::full", "turn"),
    ],
)
def test_a_number_has_the_name_of_the_expression_on_its_line(code: str, subject: str, name: str) -> None:
    assert expression(code, Change("argument", "4", "6", subject)) == name


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("self.keys[self.ptr:self.ptr + n] = k", ("self.keys", 0, "self.ptr", "self.ptr + n", "k")),
        ("y = x[:, at : at + 4].sum()", ("x", 1, "at", "at + 4", "")),
        ("h = h[:, -window:]", None),  # of another length
        ("y = x[0, at : at + 4]", None),
        ("clip[..., at : at + 4] = 0.0", ("clip", -1, "at", "at + 4", "0.0")),
        ("y = x[:, ..., at : at + 4, :]", ("x", -2, "at", "at + 4", "")),
        ("y = x[at : at + 4] + x[to : to + 4]", None),
        ("y = x[at : at + 8 : 2]", None),
    ],
)
def test_the_position_of_a_line_is_told_with_its_bounds_and_what_is_written(code: str, found: object) -> None:
    assert position_of(code, Change("argument", "0", "4", "start of aten::slice")) == found

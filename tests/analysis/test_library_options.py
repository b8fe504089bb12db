"""A line that is a library's: whose loop it is, and the option that decides."""

from __future__ import annotations

import pytest
from msgspec import structs
from story import Story

from xlaprof.analysis.evidence.library_options import advise
from xlaprof.analysis.model import Place
from xlaprof.vocabulary import STANDARD, Vocabulary

SITE = "/venv/lib/python3.11/site-packages/"


def place(*library: tuple[str, str, str], loop: int = 0) -> Place:
    lines = tuple(Place(SITE + file, 40, func, code, loop=loop) for file, func, code in library)
    return Place("train.py", 8, "main", "trainer.train()", library=lines)


def test_a_line_of_the_users_is_left_as_it_is() -> None:
    said = advise("transfer", Place("train.py", 8), "It reads.", "Read less.", "loss.detach()")
    assert said == ("It reads.", "Read less.", "loss.detach()", False)


def test_whose_loop_it_is_is_said() -> None:
    there = place(("somelib/loop.py", "Loop.run", "if loss.isnan():"), loop=31)
    cause, _, remedy, is_option = advise("transfer", there, "It reads.", "Read less.", "loss.detach()")
    assert cause == "It reads. The loop is somelib's own (somelib/loop.py:31)."
    assert (remedy, is_option) == ("", False), "code for a line that is not the user's"
    assert advise("recompile", there, "", "Pad it.").advice == "Pad it.", "what the user gives to the library"


@pytest.mark.parametrize(
    ("kind", "line", "said", "option"),
    [
        ("transfer", ("transformers/trainer.py", "Trainer._maybe_log_save_evaluate", "x.item()"), "", "logging_steps"),
        ("transfer", ("transformers/trainer.py", "Trainer._run_epoch", "torch.isnan(x)"), "", "logging_nan_inf_filter"),
        (
            "transfer",
            ("transformers/trainer.py", "Trainer.evaluation_loop", "x.cpu()"),
            "",
            "prediction_loss_only=True",
        ),
        ("idle_gap", ("transformers/trainer.py", "Trainer.log", "self.callback_handler.on_log()"), "", "report_to"),
        ("idle_gap", ("transformers/trainer.py", "Trainer._save", "self.model.save_pretrained()"), "", "save_steps"),
        (
            "idle_gap",
            ("transformers/trainer.py", "Trainer._maybe_log_save_evaluate", "self._save_checkpoint(model, trial)"),
            "",
            "save_steps",
        ),
        (
            "idle_gap",
            ("transformers/trainer.py", "Trainer._maybe_log_save_evaluate", "metrics = self._evaluate(trial)"),
            "",
            "eval_steps",
        ),
        (
            "idle_gap",
            (
                "lightning/pytorch/trainer/connectors/logger_connector/logger_connector.py",
                "_LoggerConnector.update_train_step_metrics",
                "self.log_metrics(self.metrics)",
            ),
            "",
            "log_every_n_steps",
        ),
        ("recompile", ("transformers/trainer.py", "Trainer._run_epoch", ""), "drop_last=True", "dataloader_drop_last"),
        (
            "recompile",
            ("transformers/trainer.py", "Trainer.evaluation_loop", ""),
            "last batch",
            "divides the evaluation",
        ),
        ("recompile", ("transformers/trainer.py", "Trainer._run_epoch", ""), "Pad it.", "max_length"),
        (
            "recompile",
            ("transformers/trainer.py", "Trainer.evaluation_loop", "all_preds.add(logits)"),
            "",
            "eval_accumulation_steps=1",
        ),
        ("transfer", ("transformers/masking_utils.py", "_ignore_causal_mask_sdpa", ""), "", '"eager"'),
        ("transfer", ("transformers/masking_utils.py", "find_packed_sequence_indices", ""), "", "Pass attention_mask"),
        (
            "transfer",
            ("transformers/masking_utils.py", "_ignore_bidirectional_mask_sdpa", "padding_mask.all()"),
            "",
            "four",
        ),
        ("fallback", ("torch_geometric/utils/loop.py", "remove_self_loops", "x[:, mask]"), "", "add_self_loops=False"),
        ("recompile", ("transformers/trainer_pt_utils.py", "nested_concat", ""), "", "eval_accumulation_steps=1"),
        ("transfer", ("torch_geometric/utils/_scatter.py", "scatter", "int(index.max()) + 1"), "", "data.num_graphs"),
        ("transfer", ("diffusers/schedulers/scheduling_ddim.py", "D.step", "x[timestep]"), "", "without device="),
        ("recompile", ("transformers/generation/utils.py", "G._sample", ""), "shape", "StaticCache"),
        ("missing_barrier", ("transformers/generation/utils.py", "G._sample", ""), "", "StaticCache"),
        ("transfer", ("transformers/generation/utils.py", "G._p", "if eos_token is not None"), "", "unset it in the"),
        ("transfer", ("transformers/generation/utils.py", "G._p", "isin(x, pad_token)"), "", "Pass attention_mask to"),
        ("transfer", ("accelerate/optimizer.py", "AcceleratedOptimizer.step", ""), "", 'mixed_precision="bf16"'),
        ("transfer", ("accelerate/utils/operations.py", "gather", ""), "", "gather_for_metrics"),
        ("transfer", ("diffusers/schedulers/e.py", "E.index_for_timestep", "x.nonzero()"), "", "set_begin_index"),
        ("transfer", ("diffusers/image_processor.py", "I.pt_to_numpy", "x.cpu()"), "", 'output_type="pt"'),
        ("transfer", ("pytorch_lightning/callbacks/progress/rich.py", "get_metrics", ""), "", "prog_bar=False"),
        ("transfer", ("lightning/pytorch/callbacks/progress/rich.py", "get_metrics", ""), "", "prog_bar=False"),
        (
            "graph_break",
            ("transformers/generation/utils.py", "GenerationMixin._sample", ""),
            "",
            "in place of generate()",
        ),
        ("graph_break", ("diffusers/schedulers/scheduling_euler.py", "E.step", ""), "", "compile the model alone"),
        ("recompile", ("peft/peft_model.py", "PeftModel.forward", ""), "self.active_adapter", "Keep one adapter"),
        ("transfer", ("lightning/pytorch/utilities/grads.py", "grad_norm", "torch.tensor(x)"), "", "get_total_norm"),
        ("recompile", ("torchmetrics/classification/auroc.py", "A.compute", ""), "nonzero", "after the last update()"),
    ],
)
def test_the_option_of_a_widespread_library_is_advised(
    kind: str, line: tuple[str, str, str], said: str, option: str
) -> None:
    inner = ("otherlib/deep.py", "deep", "")
    for there in (place(line), place(inner, line)):
        assert option in advise(kind, there, said, "Something general.").advice
    assert option not in advise("growth", place(line), said, "Something general.").advice


def test_a_number_that_a_library_computes_becomes_an_input_by_a_setting() -> None:
    there = place(("somelib/steps.py", "Steps.step", "x = x * self.rate"))
    said = advise(
        "recompile", there, "", "Pass it as a tensor (SETTING=1 makes every number an input).", words=STANDARD
    )
    assert said.advice == f"Set {STANDARD.scalars_as_inputs}, which makes every number an input of the graph."


def test_an_evaluation_within_what_also_logs_is_not_mended_by_logging_less() -> None:
    there = place(("transformers/trainer.py", "Trainer._maybe_log_save_evaluate", "metrics = self._evaluate(trial)"))
    assert advise("recompile", there, "Another path is taken.", "Take one path.").advice == "Take one path."


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (
            "The shape of input_ids changed from i64[2,9] to i64[2,5]: forward was compiled again twice.",
            "Pad the prompts",
        ),
        ("The shape of past_key_values[0] changed: forward was compiled again.", "Use a static cache."),
    ],
)
def test_without_a_device_of_barriers_generation_is_told_of_none(cause: str, words: str) -> None:
    there = place(("transformers/generation/utils.py", "GenerationMixin._prefill", "return self(**model_inputs)"))
    said = advise("recompile", there, cause, "Use a static cache.", barriers=False)
    assert said.advice.startswith(words)
    assert "barrier" not in said.advice
    assert said.remedy == ""
    steps = place(("diffusers/schedulers/scheduling_ddim.py", "D.step", "x[timestep]"))
    code = advise("recompile", steps, "", "", barriers=False).remedy
    assert "scheduler.step" in code
    assert STANDARD.barrier_code not in code


def test_the_same_function_of_another_library_has_no_such_option() -> None:
    there = place(("mylib/trainer.py", "Trainer._maybe_log_save_evaluate", "x.item()"))
    assert "logging_steps" not in advise("transfer", there, "", "Read less.").advice


def test_code_that_does_it_ends_a_graph_in_the_frameworks_words() -> None:
    there = place(("transformers/generation/utils.py", "GenerationMixin._sample", "while True:"))
    words = Vocabulary(barrier_code="step_done()")
    remedy = advise("growing_graph", there, "", "Call it.", words=words).remedy
    assert "\n    step_done()\n" in remedy
    compile(remedy, "remedy", "exec")


def test_a_loop_over_layers_is_not_what_repeats_a_line() -> None:
    there = place(("somelib/model.py", "Model.forward", "x = block(x)"), loop=31)
    assert advise("transfer", there, "It reads.", "Do not.").cause == "It reads."


def test_a_cache_that_grows_with_every_token_is_replaced_by_a_static_one() -> None:
    there = place(("transformers/cache_utils.py", "DynamicLayer.update", "self.keys = torch.cat([self.keys, keys])"))
    said = advise("recompile", there, "The shape changed.", "Dimension 2 grows from step to step: allocate it.")
    assert "static cache" in said.advice
    assert "StaticCache(" in said.remedy


def test_padding_goes_to_the_multiple_that_joins_the_sizes_seen() -> None:
    there = place(("transformers/trainer.py", "Trainer._run_epoch", ""))
    assert "with max_length=19" in advise("recompile", there, "", "pad it to 19.", largest=19).advice


def test_a_loop_of_the_users_may_as_well_be_what_repeats_a_line() -> None:
    there = structs.replace(place(("somelib/data.py", "Data.apply", "x.to(device)"), loop=31), loop=7)
    assert advise("recompile", there, "It changed.", "Pad it.").cause == "It changed."


def counted(user: str, *lines: str) -> str:
    """The advice on the first of these lines of ``to_grid``, which ``user`` calls, beside the others."""
    below = [("torch_geometric/utils/_grid.py", "to_grid", code) for code in lines]
    places = [structs.replace(place(one), code=user) for one in below]
    return advise("transfer", places[0], "", "", others=places[1:]).advice


def test_the_arguments_that_a_librarys_lines_compute_are_named_where_the_program_can_pass_them() -> None:
    width, height = "width = int(cells.max()) + 1", "height = int(rows.max())"
    assert counted("x = to_grid(h, cells)", width).startswith("Pass width= to to_grid(): ")
    assert counted("x = to_grid(h, cells)", height, width).startswith("Pass height= and width= to to_grid(): ")
    assert counted("x = pool(h, cells)", width).startswith("Pass the number that is counted here"), "by way of pool()"
    assert counted("x = to_grid(h, cells)", "return int(cells.max())").startswith("Pass the number that is counted")


def test_a_run_names_all_arguments_that_its_reads_below_one_line_compute() -> None:
    """Two lines of one function read what one call is not given; another call of the program counts by itself."""
    story = Story()
    path = SITE + "torch_geometric/utils/_grid.py"
    inner = [(path, n, "to_grid", code, 0) for n, code in ((12, "w = int(a.max())"), (19, "h = int(b.max())"))]
    reads = [story.line(41, "x = to_grid(h, cells)", loops=(40,), library=(one,)) for one in inner]
    other = story.line(47, "y = to_grid(h)", loops=(40,), library=((path, 25, "to_grid", "depth = int(c.max())", 0),))
    barrier = story.line(50, "torch_xla.sync()", loops=(40,))
    for _ in range(30):
        for read in (*reads, other):
            story.trace(3)
            story.execute("part", 4, read, "read")
            story.read(read)
        story.barrier(barrier, 20)
    found = {(one.place.line, one.place.acting.line): one.advice for one in story.findings("transfer")}
    assert found[41, 12] == found[41, 19]
    assert found[41, 12].startswith("Pass h= and w= to to_grid(): ")
    assert found[47, 25].startswith("Pass depth= to to_grid(): ")

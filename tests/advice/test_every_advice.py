"""Each sentence of advice in the sources is taken in a test, or stands below with the reason why it cannot be."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import xlaprof
from tests.advice import (
    test_fallbacks,
    test_idle,
    test_jax,
    test_optimizer_numbers,
    test_reads,
    test_recompiles,
    test_replacements,
    test_sizes,
    test_slices,
    test_steps,
    test_uploads,
)
from tests.sources import test_dynamo_advice, test_dynamo_break_advice

PACKAGE = Path(xlaprof.__file__).parent
SOURCES = sorted(
    path
    for folder in ("findings", "recompiles", "compiled", "evidence")
    for path in (PACKAGE / "analysis" / folder).rglob("*.py")
)
SOURCES.append(PACKAGE / "sources" / "dynamo" / "hints.py")
OPTIONS = PACKAGE / "analysis" / "evidence" / "library_options.toml"
#: how sentences begin that say what is, and texts of PyTorch's that are left out
_NO_ADVICE = re.compile(
    r"(The|That|A|An|No|One|Each|Nothing|Values|What|Steps|Dynamo|PyTorch|It|This|Please|If|File|Your|Avoid|Of) "
    r"(?!key/value|code (?:turns|asks|needs))"
)
_PAGES = "test_the_finding_is_on_the_marked_line_before_and_gone_after"
#: in a test of its own
ELSEWHERE = {
    "Make the object that {function} belongs to once": "test_an_object_of_a_library_that_jits_its_method_is_made_once",
    "Put what {hands} does with {} into one": "test_the_closure_that_such_a_loop_is_made_for_is_named",
    "Work on the lists of all tensors at once": "test_the_advised_average_is_that_of_tensor_by_tensor",
    "Make this call during warm-up": _PAGES,
    "Call what torch.compile returns": _PAGES,
    "to XLA for good": _PAGES,
    "Compute it once, before the loop that calls": _PAGES,
    "Write the loop with jax.lax.scan": _PAGES,
    "into one function under jax.jit: one dispatch for all": _PAGES,
    "Leave it out of the loop: what is dispatched": _PAGES,
    "Return the values from the jitted function": _PAGES,
    "Have all rows computed at once": "test_all_rows_take_one_backward_pass_with_it",
    "Write with jnp what Python computes": "test_what_python_looks_up_for_a_program_is_looked_up_by_jnp",
    "Compile what one turn computes": "test_compiling_what_one_turn_computes_makes_one_small_graph",
    "Leave jax_debug_nans (or jax_debug_infs) off": "test_without_the_check_for_nan_no_call_waits",
    "Do once, before the loop, what is computed of the data": "test_the_same_data_is_computed_with_once",
    "Put the whole loop at line {}": "test_a_loop_of_plain_functions_that_goes_on_by_a_value_becomes_one_while_loop",
    "Write it in a jitted function": "test_an_array_that_is_written_part_by_part_is_donated_to_a_jitted_write",
    "Decide with jnp.where at": "test_a_loop_in_which_python_decides_by_what_it_reads_becomes_one_scan",
    "Give the operator a fake": "test_a_function_whose_compilation_fails_silently",
    "in place of {}, which is traced": "test_what_is_advised_against_graph_breaks",
    "Convert {} once, where it is made": "test_an_argument_that_makes_a_state_wider_is_named_and_narrowed_once",
    "Call it under torch.no_grad() each time": "test_with_no_grad_in_the_thread_one_version_serves_all",
    "As for {}": "test_the_mistakes_are_named_and_nothing_else",
    "Keep {} in a tensor{} instead of a Python number": "test_what_is_advised_against_recompilations",
    "Call {} once for all that the comprehension": "test_one_call_of_vmap_for_all_that_a_comprehension_goes_through",
    "Pass {} as a tensor (torch.tensor({}))": "test_what_is_advised_against_recompilations",
    "Pass the tensor, {}, in place of {}": "test_what_is_advised_against_recompilations",
    "Draw NumPy's random numbers before it": "test_numpys_random_numbers_are_drawn_before_the_jitted_function",
    "Do without the reset": "test_without_the_reset_nothing_is_compiled_again",
    "Look for something that grows with the number of steps": "test_steps_that_go_through_all_earlier_ones_get_slower",
    "Put a barrier (sync()) between its parts": "test_two_graphs_of_half_the_size_are_no_finding",
    "Compute with the {tensor} itself": "test_a_step_size_that_stays_a_tensor_is_read_no_more",
    "Use the tensor itself in place of the number": "test_a_number_by_which_rows_are_turned_is_used_as_positions",
}
_LIGHTNING = "Lightning is no dependency of the tests: benchmarks/wild/lightning_fit.py"
_TRAINER = "a Trainer takes ten seconds: benchmarks/wild.py runs it"
_ACCELERATE = "accelerate takes seconds to import: benchmarks/wild.py runs it"
_PIPELINE = "a pipeline takes ten seconds: benchmarks/wild.py runs it"
_GPU = "CUDA graphs need a GPU: benchmarks/cuda_graphs.py takes it there"
#: advice that is not taken here, and why, or where else
NOT_TAKEN = {
    "Write into a parameter or buffer of the module": _GPU,
    "Do the copy to or from the host outside": _GPU,
    "Make this tensor on the GPU": _GPU,
    "Keep the size fixed: choose with torch.where": _GPU,
    "Pad the inputs to a few sizes": _GPU,
    "Let parameters and buffers stay where they are": _GPU,
    "Keep what is passed at one place": "PyTorch gives up after 128 recordings: no program is known that gets it",
    "Give each device a compiled function": "several GPUs",
    "Move this operation out of the compiled function": "PyTorch 2.13 splits the graph there by itself",
    "Look at what PyTorch says of it": "a reason that PyTorch 2.13 does not give",
    "Dimension {} grows from step to step": "the beginning of a sentence that is taken",
    "Write with index_copy_{} at": "the beginning of a sentence that is taken",
    "Make the model with attn_implementation": "PyTorch/XLA has no part in it: transformers' masks are made so",
    "Leave the timesteps on the host": "a diffusion takes ten seconds",
    "Make the layer with cached=True": "torch_geometric is no dependency of the tests",
    "Pass {given} to {called}()": "torch_geometric is no dependency of the tests",
    "Pass the number that is counted here": "torch_geometric is no dependency of the tests",
    "Read with index_select at": "the beginning of a sentence that is taken",
    "Pass persistent_workers=True": "processes take a second to start: tests/sources/test_data_loader.py sees them",
    "Write with index_fill_ at": "the beginning of a sentence that is taken",
    "Call {words.shard} on the tensor once": "four devices: tests/runtime/spmd/test_on_annotations.py",
    "Give {name} one sharding before the first call": "several devices",
    "Put all of {root} where": "several devices",
    "Make the tensors that a step starts from the same": "no program is known that gets it",
    "Keep a result of the largest size": "all operators of dynamic size that are known have words of their own",
    "Set {name} before the first call, and keep it.": "PyTorch 2.13 tells attributes by other guards",
    "Move {name} to one device": "two devices of one sort",
    "Something makes this size a constant": "PyTorch 2.13 says which line, unless it is the backend",
    "Keep {name} alive": "PyTorch 2.13 compiles again for none that was freed",
    "Return a list, or compile the function": "PyTorch 2.13 passes over generators without a word",
    "Check the tensor outside": "PyTorch 2.13 tells an assertion as a branch",
    "Call requires_grad_() before": "PyTorch 2.13 gives a hint of its own",
    "Change the deque outside": "PyTorch 2.13 tells a deque's length",
    "Call backward() outside": "a break by design, which no finding is made of",
    "Call {}() outside the compiled function": "a break by design, which no finding is made of",
    "or decorate it with torch._dynamo.dont_skip_tracing": "no program is known that gets it",
    "Set {words.scalars_as_inputs}": "a setting that is read when the process starts",
    "Call scheduler.set_begin_index(0)": _PIPELINE,
    "Call {words.barrier} before the loop{over_turns}": "its graph takes five seconds to compile",
    "Call torch.compile once, before the loop": "what a program does beside its graphs is its own",
    "Compile {}, too (torch.compile)": "what a program does beside its graphs is its own",
    "Where it only watches, do it in each tenth turn": "what a program does beside its graphs is its own",
    "Look in {} documentation for the option": "of a library of which no option is known",
    "Do it in each tenth turn, or more seldom": "what a program does beside its graphs is its own",
    "be filled outside the compiled function": "taken of a list that grows: Let {} grow outside",
    "takes these values by turns": "a limit that is raised is PyTorch's",
    "Define the function that scan is given once": "tests/runtime: a pure function is traced once",
    "Move what breaks the graph out of the loop": "PyTorch 2.13 tells what breaks it",
    "Use the torch function for it": "no program is known that gets it",
    "Leave attention_mask out": _TRAINER,
    "Give generate() many prompts": "a model that generates is compiled for half a minute",
    "Pass attention_mask": _TRAINER,
    "Pass prediction_loss_only": _TRAINER,
    "Pass eval_accumulation_steps": _TRAINER,
    "Pass logging_nan_inf_filter": _TRAINER,
    "Raise logging_steps": _TRAINER,
    'Leave debug="underflow_overflow" out': _TRAINER,
    "Pass dataloader_drop_last": _TRAINER,
    "Pass dataloader_num_workers": _TRAINER,
    "Use mixed_precision": _ACCELERATE,
    "Pass drop_last=True to the DataLoader": _ACCELERATE,
    "Gather once for many batches": _ACCELERATE,
    "Pass output_type": _PIPELINE,
    "Leave out callback_on_step_end": _PIPELINE,
    "Pass prog_bar=False": _LIGHTNING,
    "Raise log_every_n_steps": _LIGHTNING,
    "Leave detect_anomaly": _LIGHTNING,
    "Let the callback look after each epoch": _LIGHTNING,
    "Log the total norm alone": _LIGHTNING,
    "Keep one adapter, by one name": "peft is no dependency of the tests",
    "Compile what generate() calls": "a model that generates is compiled for half a minute",
    "Leave the scheduler's step() uncompiled": _PIPELINE,
    "Mend what the message says": "what cannot be compiled is the program's own mistake",
    "Unexpected recompilation": "PyTorch's words, which no advice is made of",
    "Call the metric's compute() once": "torchmetrics is no dependency of the tests",
    "Only a search that runs on the device": "another search than SciPy's is another program",
}


def sentences(path: Path) -> Iterator[str]:
    """Texts that tell somebody to do something, ``{...}`` where something is filled in."""
    tree = ast.parse(path.read_text())
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(one) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for one in node.values}
    for node in ast.walk(tree):
        if id(node) in documents | parts:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if re.match(r"[A-Z][a-z]+ ", text) and len(text.split()) >= 4 and not _NO_ADVICE.match(text):
            yield text


def taken() -> Iterator[str]:
    """Words of the advice that tests take."""
    cases = (
        test_reads.READS,
        test_fallbacks.FALLBACKS,
        test_jax.CASES,
        test_optimizer_numbers.CASES,
        test_recompiles.CASES,
        test_sizes.CASES,
        test_slices.CASES,
        test_steps.BARRIERS,
        test_steps.GROWING,
        test_idle.IDLE,
        test_uploads.AHEAD,
    )
    yield from (case.words for some in cases for case in some)
    yield from (one.words for one in test_replacements.REPLACED)
    yield from (one.words for one in (*test_dynamo_advice.RECOMPILATIONS, *test_dynamo_break_advice.BREAKS))
    yield from ELSEWHERE


def test_each_piece_of_advice_is_taken_in_a_test_or_says_why_not() -> None:
    known = [*taken(), *NOT_TAKEN]
    missing = [text for path in SOURCES for text in sentences(path) if not any(words in text for words in known)]
    assert missing == [], "\n".join(missing)


def test_what_is_not_taken_is_still_given() -> None:
    given = [text for path in SOURCES for text in sentences(path)]
    given += [option["advice"] for option in tomllib.loads(OPTIONS.read_text())["option"]]
    assert [words for words in (*ELSEWHERE, *NOT_TAKEN) if not any(words in text for text in given)] == []


def test_the_tests_of_their_own_are_there() -> None:
    there = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name in ELSEWHERE.values() if f"def {name}(" not in there] == []

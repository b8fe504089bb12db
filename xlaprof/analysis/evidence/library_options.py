"""What a program can do about a line that is a library's: an option of that library, where one decides.

A finding under a library's line says whose it is, and whose loop repeats it. One table has the options of libraries
that many programs are driven by, under the names that those libraries document. Where none of them decides, and the
line would have to be written otherwise, there is nothing that the program can do: no finding, but a part of an account.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from xlaprof.analysis.model import Place
from xlaprof.text.strings import package_path
from xlaprof.vocabulary import STANDARD, Vocabulary


class _Option(NamedTuple):
    """An option that decides whether, or how often, a library's function does what a finding is about."""

    library: str  # the package's name; empty: any
    function: str  # regular expression, found in "file: qualified name: code" of a library's line on the way
    kinds: str  # of findings, separated by blanks
    advice: str  # {advice}: the finding's own; {largest}: "=24", where padding goes to a size
    says: str = ""  # regular expression, found in the finding's own cause, advice or line; empty: any
    remedy: str = ""  # code; {barrier_code}: in the framework's words


_TRAINER = r"trainer.py: Trainer\."

_DECODE = """\
cache = StaticCache(config=model.config, max_cache_len=longest)
token = model(prompt, past_key_values=cache).logits[:, -1:].argmax(-1)
for position in range(prompt.shape[1], longest):
    {barrier_code}
    position_ids = torch.full_like(token, position)
    logits = model(token, past_key_values=cache, position_ids=position_ids).logits
    token = logits[:, -1:].argmax(-1)"""

_TIMESTEPS = """\
scheduler.set_timesteps(steps)  # without device=
for t in scheduler.timesteps.tolist():
    noise = model(sample, torch.tensor([t]).to(device))
    sample = scheduler.step(noise, t, sample).prev_sample
    {barrier_code}"""

#: the first that fits counts
_OPTIONS = (
    _Option(
        "transformers",
        r"masking_utils.py: \S*ignore_causal",
        "transfer",
        'Make the model with attn_implementation="eager": a causal mask is then made as it is, and not looked at. Else '
        "leave attention_mask out where no token is padding.",
    ),
    _Option(
        "transformers",
        r"masking_utils.py: ",
        "transfer recompile fallback",
        "Leave attention_mask out where no token is padding, or pass it with four dimensions, (batch, 1, queries, "
        "keys): it is then taken as it is, and not looked at.",
        r"_skip|_ignore|padding_mask\.all",
    ),
    _Option(
        "transformers",
        r"modeling_utils\.py: \S*warn_if_padding",
        "transfer",
        "Pass attention_mask: the input is looked at for padding only where there is none.",
    ),
    _Option(
        "transformers",
        r"trainer_pt_utils\.py: .*concat",
        "recompile growing_graph",
        "Pass eval_accumulation_steps=1 to TrainingArguments: the evaluation then brings predictions, losses and "
        "labels to the host after each batch, and puts them together there; on the device what it has grows, and each "
        "length is another graph. Where the loss is enough, prediction_loss_only=True keeps none of them.",
    ),
    _Option(
        "transformers",
        _TRAINER + "(evaluation_loop|prediction_loop|evaluate|predict)",
        "transfer",
        "Pass prediction_loss_only=True to TrainingArguments where the loss is enough; else a larger "
        "per_device_eval_batch_size: it is one read for each batch.",
    ),
    _Option(
        "transformers",
        _TRAINER,
        "transfer recompile",
        "Pass logging_nan_inf_filter=False to TrainingArguments: each step's loss is then not looked at.",
        r"isnan|isinf",
    ),
    _Option(
        "transformers",
        _TRAINER + r".*(_maybe_log_save_evaluate|\blog\b)",
        "transfer recompile idle_gap fallback",
        "Raise logging_steps of TrainingArguments: at each log the loss is read, and its sum started again.",
    ),
    _Option(
        "transformers",
        _TRAINER,
        "recompile",
        "Pass dataloader_drop_last=True to TrainingArguments, and a per_device_eval_batch_size that divides the "
        "evaluation set.",
        r"drop_last|last batch",
    ),
    _Option(
        "transformers",
        _TRAINER,
        "recompile",
        "{advice} Do that in the collate function that data_collator= gives to the Trainer: where it pads to the "
        "longest of its rows, let it pad to that size, and no further than the model has positions; a collator of "
        'transformers takes padding="max_length" with max_length{largest} (one that only takes pad_to_multiple_of: '
        "that size).",
        r"[Pp]ad ",
    ),
    _Option(
        "transformers",
        _TRAINER + "(get_train_dataloader|_get_dataloader|get_batch_samples)",
        "idle_gap",
        "Pass dataloader_num_workers=4 to TrainingArguments: batches are then made ahead, in other processes.",
    ),
    _Option(
        "transformers",
        r"generation/\S+: ",
        "transfer recompile",
        "generate() asks after each token whether all sequences have ended. Where a fixed number of tokens will do, "
        "call the model in a loop of your own with a StaticCache, and look for the end every 16 tokens.",
        r"unfinished|finished_sequences|StopCheck|stop_check",
        _DECODE,
    ),
    _Option(
        "transformers",
        r"generation/\S+: |cache_utils\.py: ",
        "missing_barrier growing_graph recompile compile_cost",
        "Each token makes the input, or the key/value cache, longer, and each length is another graph. Call the model "
        "in a loop of your own, with a static cache (StaticCache) as long as the prompt and all new tokens, one token "
        "at a time and a barrier after each: one small graph serves all tokens.",
        remedy=_DECODE,
    ),
    _Option(
        "transformers",
        r"generation/\S+: ",
        "transfer",
        "generate() looks at its arguments once for each call: give it a generation_config with pad_token_id and "
        "eos_token_id set, and many prompts in one call.",
        r"padding|pad_token|eos_token|encoder_input|attention_mask",
    ),
    _Option(
        "accelerate",
        r"(optimizer|scheduler)\.py: |GradScaler",
        "transfer",
        'Use mixed_precision="bf16" in place of "fp16": no GradScaler then asks whether the step was skipped.',
    ),
    _Option(
        "accelerate",
        r"data_loader\.py: |operations\.py: ",
        "recompile",
        "Pass drop_last=True to the DataLoader, or leave even_batches=True to accelerator.prepare().",
        "drop_last|last batch",
    ),
    _Option(
        "accelerate",
        r"gather|pad_across_processes|operations\.py: ",
        "transfer",
        "Gather once for many batches: keep predictions on the device in a list, and call gather_for_metrics() after "
        "the loop.",
    ),
    _Option(
        "diffusers",  # no set_begin_index(): what such a scheduler knows of a step it looks up by the timestep
        r"schedulers/scheduling_(ddim|ddpm|pndm|repaint|unclip|vq_diff|amused|dpm_cog|sde_ve|\S+_inverse)\S*: ",
        "transfer fallback recompile",
        "Leave the timesteps on the host: call set_timesteps() without device=, and loop over "
        "scheduler.timesteps.tolist(). A step's constants are then looked up there, and not read from the device.",
        r"nonzero|item|timestep|index",
        _TIMESTEPS,
    ),
    _Option(
        "diffusers",
        r"schedulers/\S+: ",
        "transfer fallback recompile",
        "Call scheduler.set_begin_index(0) after set_timesteps(), and pass timesteps that are on the host: the step is "
        "then counted, and not searched for on the device.",
        r"nonzero|item|timestep|index",
    ),
    _Option(
        "diffusers",
        r"image_processor\.py: |video_processor\.py: |pipelines/\S+: ",
        "transfer",
        'Pass output_type="pt" (or "latent") to the pipeline, and convert the images once, after all are drawn.',
        r"cpu\(|numpy|pil",
    ),
    _Option(
        "diffusers",
        r"pipelines/\S+: ",
        "transfer recompile excess_barriers",
        "Leave out callback_on_step_end, or let it look every 10 steps: it is called in the denoising loop.",
        "callback",
    ),
    _Option(
        "torch_geometric",
        r"(utils|nn)/\S+: .*\.max\(\)",
        "transfer graph_break",
        "Pass the number that is counted here, which the host knows: size=data.num_graphs to a pooling layer "
        "(batch_size= to to_dense_batch, num_nodes= to what works on edges, dim_size= to scatter and aggregations).",
    ),
    _Option(
        "torch_geometric",
        r"utils/loop\.py: ",
        "transfer recompile fallback",
        "Make the layer with add_self_loops=False, and add the loops once, on the host, to the edges that it is given "
        "(torch_geometric.utils.add_remaining_self_loops): here each forward selects edges by a mask. A GCNConv also "
        "takes what gcn_norm() gives, with normalize=False, or cached=True where the graph never changes.",
    ),
    _Option(
        "pytorch_lightning",
        r"progress/|get_metrics|pbar",
        "transfer",
        "Pass prog_bar=False to self.log(), or enable_progress_bar=False to the Trainer: the bar reads each value.",
    ),
    _Option(
        "pytorch_lightning",
        r"logger_connector/|loggers/",
        "transfer recompile",
        "Raise log_every_n_steps of the Trainer: values are read at each log.",
    ),
    _Option(
        "pytorch_lightning",
        r"loops/utilities\.py: ",
        "transfer",
        "Leave detect_anomaly of the Trainer at False: it looks at each loss.",
        "isfinite",
    ),
    _Option(
        "pytorch_lightning",
        r"early_stopping|model_checkpoint",
        "transfer",
        "Let the callback look after each epoch (check_on_train_epoch_end, every_n_epochs), not after each step.",
    ),
    _Option(
        "",
        "",
        "recompile",
        "Set {words.scalars_as_inputs}, which makes every number an input of the graph.",
        "makes every number an input",
    ),
)

#: kinds whose own advice is to write a line otherwise, which is not the user's to write here
OF_THE_LINE = frozenset({"transfer", "fallback", "excess_barriers", "missing_barrier", "growing_graph"})


class Said(NamedTuple):
    """Sentences of a finding, and code that does what it advises."""

    cause: str
    advice: str
    remedy: str = ""
    is_option: bool = False  # of a library


def advise(
    kind: str, place: Place, cause: str, advice: str, remedy: str = "", words: Vocabulary = STANDARD, largest: int = 0
) -> Said:
    """What to say of a finding of this kind at ``place``: ``remedy``, a way to write the line, is the user's lines'.

    ``largest``: the size that padding goes to.
    """
    if not place.library:
        return Said(cause, advice, remedy)
    # a forward's own loop is over layers: what repeats it is further out
    loop = next((line for line in reversed(place.library) if line.loop and not line.func.endswith("forward")), None)
    if loop is not None and not place.loop:  # the user's own loop may as well be what repeats it
        cause += f" The loop is {whose(loop)} own ({package_path(loop.file)}:{loop.loop})."
    option = _option(kind, place, "\n".join((cause, advice, *(line.code for line in place.library))))
    if option is not None:
        remedy = option.remedy.format(barrier_code=words.barrier_code)
        text = option.advice.format(words=words, advice=advice, largest=f"={largest}" if largest else "")
        return Said(cause, text, remedy, is_option=True)
    return Said(cause, advice)


def _option(kind: str, place: Place, said: str) -> _Option | None:
    lines = [(_package(line), f"{package_path(line.file)}: {line.func}: {line.code}") for line in place.library]
    for option in _OPTIONS:
        if kind in option.kinds.split() and re.search(option.says, said):
            for package, text in lines:
                if option.library in ("", package) and re.search(option.function, text):
                    return option
    return None


def whose(line: Place) -> str:
    library = _package(line)
    return f"{library}'" if library.endswith("s") else f"{library}'s"


def _package(line: Place) -> str:
    return package_path(line.file).partition("/")[0].removesuffix(".py")

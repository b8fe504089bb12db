"""What a line does with a value it reads, in which words, and the advice by that use."""

from __future__ import annotations

import pytest
from story import Story

from xlaprof.analysis.evidence.reading import ONCE, SCALAR, advise_read
from xlaprof.analysis.statements import draws_one
from xlaprof.analysis.uses import Use, indexed_by, is_called_back, needed_for, read_of, selection
from xlaprof.sources.jax import Jax


@pytest.mark.parametrize(
    ("code", "via", "name", "purpose", "advice"),
    [
        ("total += loss.item()", "", ".item()", "to add it up", "Add up on the device"),
        ("if loss < best:", "", "the condition of the if", "to decide", "Decide on the device"),
        ("while residual > tolerance:", "", "the condition of the while", "whether to go on", "fixed number of turns"),
        ("assert x.max() < 1", "", "the assertion", "", "on the host before the upload"),
        ("if torch.isnan(loss).any():", "", "the condition of the if", "NaN or infinity", "flag kept on the device"),
        ("clip(m)", "clip_grad_norm_", "clip_grad_norm_(error_if_nonfinite=True)", "not finite", "error_if_nonfinite"),
        ("scaler.step(opt)", "GradScaler.step", "step()", "found_inf", "bfloat16"),
        ('bar.set_postfix(loss=f"{loss:.3f}")', "Tensor.__format__", "an f-string", "to show it", "every 10 steps"),
        ("print(loss)", "Tensor.__repr__", "print()", "", "after the barrier"),
        ("correct += (p == y).sum().item()", "", ".item()", "to add it up", "read the sum every 10"),
        ("index = (self.timesteps == timestep).nonzero().item()", "", ".item()", "find a position", "enumerate"),
        ("x = float(scale)", "", "float()", "", "Keep the value"),
        ('log.info("loss %s", loss)', "Logger.info", "logging", "to show it", "Show it every 10 steps"),
        ('log.debug(f"norm {norm:.2f}")', "Tensor.__format__", "an f-string", "to show it", "ask isEnabledFor()"),
        ("d = Categorical(logits=x)", "Categorical.__init__", "Categorical()", "check its", "validate_args=False"),
        ("logp = policy.log_prob(action)", "Normal.log_prob", "log_prob()", "check its", "validate_args=False"),
        ("logp = d.log_prob(x)", "LogNormal.log_prob", "log_prob()", "check its", "validate_args=False"),
        ("a = Categorical(x).sample().item()", "Categorical.__init__", ".item()", "", "Keep the value"),
        ("loss = head.entropy(x)", "Mixture.entropy", "entropy()", "", "call it every 10 steps"),
        ("plateau.step(loss)", "ReduceLROnPlateau.step", "step()", "", "call it every 10 steps"),
        ("bar.set_postfix(loss=loss)", "tqdm.set_postfix", "set_postfix()", "to show it", "Show it"),
        ("if token in stop:", "Tensor.__contains__", "the test with in", "to decide", "Decide on the device"),
        ("inverse = torch.linalg.inv(a)", "linalg_inv", "linalg_inv()", "errors", "inv_ex"),
    ],
)  # fmt: skip
def test_a_line_that_reads_a_number_is_called_what_it_is(
    code: str, via: str, name: str, purpose: str, advice: str
) -> None:
    way = advise_read(SCALAR, via, code, 10)
    assert way.name == name
    assert way.what == "one number"
    assert purpose in way.purpose
    assert advice in way.advice


def test_a_value_that_the_loops_condition_looks_at_decides_whether_to_go_on() -> None:
    line = "gap = (x - old).norm().item()"
    for head in ("while gap > 1e-6 and turn < 60:", "while not (turn >= 60 or gap < tolerance):"):
        way = advise_read(SCALAR, "", line, 1000, takers=(head,))
        assert way.purpose == "to decide whether to go on"
        assert way.advice.endswith("test the condition only every 10 turns"), "a loop of 60 has no thousandth turn"
    for head in ("while turn < 60:", "for gap in gaps:", ""):
        assert read_of(line, scalar=True, takers=(head,)).use == Use.OTHER


@pytest.mark.parametrize(
    ("use", "lines"),
    {
        Use.GOES_ON: [
            "while (gap := (x - old).norm().item()) > 1e-3:",
            "while not settled and n < 50:",
            "while drift.item() > 0.1:  # until it is calm",
            "if shift.abs().max().item() < 1e-4: break",
        ],
        Use.DECIDES: [
            "saturated = bool(pressure.amax() > limit)",
            "ready = warm and full",
            "if n % 5 == 0 and drift.item() > 2:",
            "elif energy.sum() < floor:",
            "if int(crowd) > self.room:     # (rare) a larger hall",
            "elif int(crowd) < 3:  # nobody",
            "kept = [one for one in boxes if one.area() > 4]",
            "scale = 0.5 if peak > 1 else 1.0",
            "weights = torch.tensor([2.0 if r > 3 else 1.0 for r in rows]).to(device)",
            "if word in stops:",
        ],
        Use.ASSERTS: ["assert torch.allclose(q @ k, v)", "assert x.max().item() < 9, step"],
        Use.SIZES: [
            "for k in range(int(count)):",
            "out = torch.zeros(batch, lengths.max().item())",
            "x = x[:, :lengths.max()]",
            "best = scores.topk(k.item())",
        ],
        Use.WHOLE: [
            "ptr = int(self.queue_ptr)",
            "k = min(int(ratio * n), labels.numel() - 1)",
            "return int(x.sum().item())",
        ],
        Use.LOOKS_UP: ["line += words[token.item()] + ' '", "done = letters[int(token)] != ';'"],
        Use.INDEXES: ["word = vocabulary[token.item()]", "lr = table[stage]", "seen[label.item()] += 1"],
        Use.ADDS_AT: ["hits[label] += int(guess == label)", "self.error[day // 7] += (y - p).abs().item()"],
        Use.ADDS_UP: [
            "total['error'] += error.item()",
            "wrong += int((guess != y).sum())",
            "loss_sum = sum(one.item() for one in losses)",
            "hits += 1 if p == y else 0",
            "n = sum(1 for one in boxes if one.area() > 4)",
            "self.wrong = self.wrong + error.item()",
            "bad |= bool(torch.isinf(x).any())",
        ],
        Use.UPDATES: [
            "damping *= 2.0 ** float(ratio)",
            "temperature /= 1 + spread.item()",
            "self.trust = self.trust * grow.item()",
            "average = 0.9 * average + 0.1 * error.item()",
        ],
        Use.LOGS: [
            "print('high' if t > 3 else 'low', t.item())",
            'row = {"epoch": n, "error": error.item()}',
            '"error": error.item(),',
            'wandb.log(dict(error=error.item()), step=n)',
            'line = "error %.3f" % error.item()',
            'history["error"] = error.item()',
            'errors.append(round(error.item(), 3))',
            'self.log("error", float(error),',
            "print('off') if quiet else print(error.item())",
        ],
        Use.OTHER: [
            "shown = 'hidden' if quiet else error.item()",
            "error = error.item()",
            "return math.log(error.item())",
            "y = logits.mul(scale.item())",
            "opt.set(",
        ],
    }.items(),
)  # fmt: skip
def test_what_takes_the_value_is_its_use(use: Use, lines: list[str]) -> None:
    assert {line: read_of(line, scalar=True).use for line in lines} == dict.fromkeys(lines, use)


def test_a_line_that_reads_a_tensor_is_called_what_it_is() -> None:
    assert advise_read("aten::_to_copy", "", "arr = images.cpu().numpy()", 10).name == ".cpu()"
    assert advise_read("aten::_to_copy", "", "words = tokens[row].tolist()", 10).name == ".tolist()"
    assert advise_read("aten::_to_copy", "", "xm.save(state, path)", 10).advice.startswith("Save less often")
    assert advise_read("aten::_to_copy", "", "loss.cpu()", 10).what == "a tensor"


@pytest.mark.parametrize(
    ("code", "selected"),
    [
        ("mine = prob[guess == c]", "guess == c"),
        ("right = label[(guess == c) & ~(label < 0)] == c", "(guess == c) & ~(label < 0)"),
        ("rows = jnp.argwhere(scores > 0.5)", "jnp.argwhere(scores > 0.5)"),
        ("at, = jnp.where(alive)", "jnp.where(alive)"),
        ("x = jnp.where(alive, x, 0)", ""),
        ("x = table[index]", ""),
        ("total += losses[0] if step == 3 else 0", ""),
    ],
)
def test_what_selects_as_many_elements_as_values_decide(code: str, selected: str) -> None:
    assert selection(code) == selected


@pytest.mark.parametrize(
    ("code", "method"),
    [
        ("item = self.rng.choice(ITEMS, p=self.p)", "choice"),
        ("while (k := rng.integers(0, n)) in seen:", "integers"),
        ("x = random.random()", "random"),
        ("x = rng.normal(0.0, 1.0, 8)", ""),
        ("x = rng.normal(size=8)", ""),
        ("x = rng.poisson(rate, **options)", ""),
        ("p = torch.distributions.beta(a, b)", ""),
        ("item = choice(items)", ""),
    ],
)
def test_a_line_that_draws_one_number_has_a_method_that_can_draw_many(code: str, method: str) -> None:
    assert draws_one(code) == method


@pytest.mark.parametrize(
    ("line", "takers", "use"),
    [
        ("now = norm.item()", ["gap = abs(now - before)", "if gap < 1e-6: break"], Use.GOES_ON),
        ("now = norm.item()", ["while now > 1e-6:"], Use.GOES_ON),
        ("if done.all().item():", ["if done.all().item(): break"], Use.GOES_ON),
        ("if done.all().item():", [], Use.DECIDES),
        ("if done.all().item():  # early", ["if done.all().item(): break"], Use.GOES_ON),
        ("now = norm.item()", ["if now < best:", "best = now"], Use.DECIDES),
        ("loss, hits = loss.item(), hits.item()", ["total += loss", "print(total)"], Use.ADDS_UP),
        ("loss = float(loss)", ["losses.append(loss)"], Use.LOGS),
        ("loss = float(loss)", ["logger.info( 'loss %f', loss, )"], Use.LOGS),
        ("n = int(mask.sum())", ["x = torch.zeros(n, 4)"], Use.SIZES),
        ("word = int(scores.argmax())", ["row = table[word]"], Use.INDEXES),
        ("word = int(scores.argmax())", ["if words[word] == '<eos>': break"], Use.LOOKS_UP),
        ("loss = float(loss)", ["step(loss)"], Use.OTHER),
        ("loss = float(loss)", [], Use.OTHER),
        ("total += float(loss)", ["if total > 3: break"], Use.ADDS_UP),  # it says itself what it does
        ("dt = 0.3 / speed.item()", ["r = dt * 2", "h = h - r * flux(h)", "time += dt"], Use.OTHER),  # at once
        ("loss = float(loss)", ["scaled = loss / 3", "print(scaled)"], Use.LOGS),
        ("loss = float(loss)", ["losses[turn] = loss"], Use.LOGS),
        ("loss = float(loss)", ["schedule.step(loss)", "print(loss)"], Use.OTHER),
    ],
)
def test_a_line_that_gives_the_value_a_name_uses_it_as_its_takers_do(line: str, takers: list[str], use: Use) -> None:
    assert read_of(line, scalar=True, takers=takers).use == use


@pytest.mark.parametrize(
    ("takers", "use"),
    [
        (["error = measured(x)", "if error < 1e-3: break"], Use.GOES_ON),
        (["while measured(x) > 1e-3:"], Use.GOES_ON),
        (["losses.append(self.measured(x))"], Use.LOGS),
        (["total += measured(x)"], Use.ADDS_UP),
        (["other(x)"], Use.OTHER),
        ([], Use.OTHER),
    ],
)
def test_what_a_function_returns_is_used_as_its_call_is(takers: list[str], use: Use) -> None:
    assert read_of("return x.norm().item()", scalar=True, takers=takers, func="Model.measured").use == use


def test_a_number_that_is_computed_with_is_to_stay_a_tensor() -> None:
    """The largest stable step of a simulation: nothing can be done without it, a step later neither."""
    takers = ("dt = self.time_step()", "h = h - dt * flux(h)", "time += dt")
    way = advise_read(SCALAR, "", "return 0.3 / speed.item()", 100, takers=takers, func="Sim.time_step")
    assert way.advice.startswith("Compute with the tensor itself, on the device, in place of the number (`h = h - dt")
    way = advise_read(SCALAR, "", "return loss.item()", 100, takers=("losses.append(step(x))",), func="step")
    assert way.advice.startswith("Keep the loss on the device"), "a list can have it later"


@pytest.mark.parametrize(
    ("code", "takers", "back"),
    [
        ("return float(value), np.asarray(grad)", ("best = minimize(fun, x0, jac=True)",), True),
        ("return float(value)", ("best = minimize(self.fun, x0)",), True),
        ("return float(value)", ("best = search(fun(x0), fun)",), False),
        ("return float(value)", ("error = fun(x0)",), False),
        ("return float(value)", (), False),
        ("value = float(value)", ("best = minimize(fun, x0)",), False),
    ],
)
def test_what_is_returned_to_a_call_that_was_given_the_function_goes_to_what_calls_it_back(
    code: str, takers: tuple[str, ...], back: bool
) -> None:
    assert is_called_back(code, takers, "fit.<locals>.fun") is back


def test_whoever_is_known_to_end_the_loop_is_advised_so_without_an_if() -> None:
    """And not to look less often, where a turn costs more than the look at its result."""
    line, takers = "now = float(change)", ("if now < tolerance: break",)
    way = advise_read("jax.Array: one number", "", line, ONCE, Jax.vocabulary, takers=takers)
    assert "jax.lax.while_loop" in way.advice
    assert "Where now decides" not in way.advice
    assert "every 10 turns" in way.advice
    dear = advise_read("jax.Array: one number", "", line, ONCE, Jax.vocabulary, takers=takers, seldom=True)
    assert "every 10 turns" not in dear.advice
    stopped = advise_read("jax.Array: one number", "", line, ONCE, Jax.vocabulary, takers=("if isnan(now): return",))
    assert "to check for NaN" in stopped.purpose


def test_a_value_that_an_environment_is_given_is_acted_on_whatever_its_answer_decides() -> None:
    line, takers = "return int(jnp.argmax(net(seen)))", ("action = agent.act(seen)", "seen, ends = env.step(action)")
    acts = advise_read(
        "jax.Array: one number", "", line, 1, takers=(*takers, "if ends: seen = env.reset()"), func="act"
    )
    assert acts.purpose == "to act on it"
    assert "a batch of environments at a time" in acts.advice


def acted(code: str, bytes: int) -> str:
    """The advice on an agent that reads what it does in each turn."""
    story = Story()
    act, learn = story.line(44, code, loops=(40,)), story.line(49, "torch_xla.sync()", loops=(40,))
    for _ in range(30):
        story.trace(1)
        story.barrier(learn, 5, "update", compile=50, dispatch=0, trains=True)
        story.read(act, op="aten::_to_copy", bytes=bytes)
    (finding,) = story.findings("transfer")
    return finding.advice


def test_who_acts_for_many_at_a_time_already_is_advised_a_copy_of_the_network() -> None:
    """Paddles: one, or 64 of them; or one whose picture is large."""
    asks = "env.step(policy(ball).argmax(-1).cpu())"
    assert "a batch of environments at a time" in acted(asks, 8)
    assert "environments" not in acted(asks, 64 * 8)
    assert acted(asks, 64 * 8).startswith("Where the network is small, act with a copy of it on the CPU")
    assert "environments at a time" in acted("seen = env.obs.cpu()", 84 * 84)


@pytest.mark.parametrize(
    ("code", "lists"),
    [
        ("x = x * tide.heights[hour - 1] + tide.flows[hour]", ["tide.heights", "tide.flows"]),
        ("x = x + rows[min(self.hour, 5)]", ["rows"]),
        ("level = (x * tide.heights[hour]", ["tide.heights"]),  # a statement that goes on at the next line
        ("x = stages[hour](x)", []),  # functions, and modules: no tensor holds them
        ("x = stages[hour].weight * x", []),
        ("x = table[:hour]", []),
        ("x = table[:, hour]", []),
        ("x = table[torch.arange(hour, hour + 3)]", []),
        ("x = x * hours[at]", []),
    ],
)
def test_lists_are_told_that_a_line_indexes_with_a_number(code: str, lists: list[str]) -> None:
    assert indexed_by(code, "self.hour" if "self" in code else "hour") == lists


def test_what_a_tensor_is_filled_with_is_no_size() -> None:
    assert needed_for("x = torch.full((len(x),), level)", "level") == ""
    assert needed_for("x = torch.full((level,), 1.0)", "level") == "size"

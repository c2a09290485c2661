"""Our update beside an independent one: the comparison finds them equal, and finds what is not."""

from importlib import import_module
from typing import Any

import pytest
import torch

pytest.importorskip("rsl_rl", reason="rsl-rl-lib is not installed")
bench: Any = import_module("ppo_update")


@pytest.fixture
def rsl_rl() -> Any:
    return bench.find_peers()[0]["rsl_rl"]


@pytest.fixture
def sizes() -> Any:
    return bench.Sizes(num_envs=16, obs=5, actions=3, horizon=4, hidden=(8, 8), epochs=2, minibatches=2)


CPU = torch.device("cpu")


def test_losses_of_minibatches_are_those_of_rsl_rl(rsl_rl: Any, sizes: Any):
    found = bench.check_first_minibatch({"rsl_rl": rsl_rl}, sizes, CPU)["rsl_rl"]
    assert found["rsl_rl"] == pytest.approx(found["echelon"], abs=1e-6)
    assert abs(found["echelon"]["surrogate"]) > 1e-3  # advantages have mean 0: at ratios of 1 it would vanish
    problem = bench.build(sizes, CPU, bench.NOT_BINDING)
    with bench.fixed_order(sizes, CPU):
        rows = [bench.Row(name, "fp32", make(problem)) for name, make in (("echelon", bench.Ours), ("rsl_rl", rsl_rl))]
        _, totals, _ = bench.warm_up(rows)
    assert len(totals["echelon"]) == len(totals["rsl_rl"]) == 4  # 2 epochs of 2 minibatches
    bench.check_first_step(totals)  # whose loss depends on which half of the rows it takes
    assert abs(totals["echelon"][1] - totals["echelon"][0]) > 1e-3


def test_a_peer_with_another_setting_is_found_out(rsl_rl: Any, sizes: Any):
    class Other(rsl_rl):
        def __init__(self, problem: Any) -> None:
            super().__init__(problem)
            self.algorithm.clip_param = 0.25

    with pytest.raises(SystemExit, match=r"not equivalent: the .* loss of the first minibatch"):
        bench.check_first_minibatch({"rsl_rl": Other}, sizes, CPU)


def test_with_a_shared_trunk_the_critic_is_the_actor_but_for_its_last_layer(sizes: Any):
    problem = bench.build(sizes, CPU, bench.NOT_BINDING, shared=True)
    ours = bench.Ours(problem)
    features = problem.obs[:-1]
    with torch.no_grad():
        for layer in problem.actor[:-1]:
            features = torch.nn.functional.elu(layer(features))
        expected = problem.critic[-1](features).squeeze(-1)
        obs = {name: table[:-1] for name, table in ours.rollout.obs.items()}
        start = ours.rollout.start[:-1]
        output = ours.model(obs, ours.plan.layout.policy_id, ours.rollout.state[0], start)
    torch.testing.assert_close(ours.model.raw_value(output.value), expected)
    apart = bench.Ours(bench.build(sizes, CPU, bench.NOT_BINDING))
    few, many = (sum(p.numel() for p in one.model.parameters()) for one in (ours, apart))
    assert few < many
    # And it is compared with a shared trunk.
    row = bench.Row("rl_games", "fp32", None, shared=True, compiled=True, seconds=[0.006])
    rows = [bench.Row("echelon", "fp32", None, shared=shared, seconds=[0.004 - 0.002 * shared]) for shared in (0, 1)]
    assert row.name == "rl_games, shared trunk, compiled"
    assert [found["times_echelon"] for found in bench.report([*rows, row])] == pytest.approx([1, 1, 3])


def test_a_compiled_loss_is_recorded_once_and_an_update_can_be_repeated(sizes: Any, traced: None):
    """Compiling asks for gradients of its own, which are no gradient steps: 2 epochs of 2 minibatches are 4."""
    problem = bench.build(sizes, CPU, bench.NOT_BINDING)
    contestant = bench.Ours(problem)
    with bench.fixed_order(sizes, CPU), bench.recorded_losses() as losses:
        contestant.update()
        contestant.restore()
        contestant.update()
    assert [loss.dim() for loss in losses] == [0] * 8
    assert losses[4].item() == pytest.approx(losses[0].item(), abs=1e-6)  # from the same weights again

"""Off-policy actor-critic (SAC in the manner of FlashSAC, FastTD3) on Echelon's environments, alone or as an ensemble, in one file.

Twin HL-Gauss critics, n-step targets, replay on the device, large batches, rewards scaled by what returns were seen, noise that
repeats. Ensemble: policy k is told apart by a learned vector; all share one replay, and as a Q-critic needs no ratio, any policy
learns from anybody's rows: a sampled row is learned from by the one that collected it, or (--borrow) by the leader. --kl-bound holds followers near it.

    PYTHONPATH=src python sac_lab.py --task Hopper --num-envs 1024 --updates 4 --env-steps 1000000 --device cpu

Prints JSON lines with the keys of reppo_lab.py. `seconds` counts training only, not start-up, compiling, recording and
evaluating.
"""

import argparse
import copy
import dataclasses
import itertools
import sys
import time

import torch
import torch.nn.functional as F
from common import Evaluation, Lines, Recorded, Schedule, add_arguments, start
from torch import Tensor, nn

from echelon.models.normaliser import Normaliser
from echelon.rollout.episodes import Episodes
from echelon.rollout.layout import Layout
from echelon.tasks import maker, preset

LOG_2PI, LOG_2 = 1.8378770664093453, 0.6931471805599453


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--task", default="Hopper")
    p.add_argument("--num-envs", type=int, default=4096)
    p.add_argument("--env-steps", type=int, default=20_000_000)
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--out", default=None)
    p.add_argument("--log-every", type=int, default=1)
    p.add_argument("--capture", type=int, default=1)
    p.add_argument("--compile", type=int, default=1)
    p.add_argument("--bf16", type=int, default=1, help="autocast of both losses on CUDA")
    p.add_argument("--until", nargs=2, default=None, metavar=("METRIC", "VALUE"))
    # data
    p.add_argument("--steps", type=int, default=8, help="vector steps of an iteration (of a CUDA graph)")
    p.add_argument("--updates", type=int, default=4, help="critic updates a vector step")
    p.add_argument("--batch", type=int, default=4096)
    p.add_argument("--replay", type=int, default=5_000_000, help="transitions")
    p.add_argument("--warmup", type=int, default=64, help="vector steps before the first update")
    p.add_argument("--n-step", type=int, default=3)
    p.add_argument("--gamma", type=float, default=None)
    # networks
    p.add_argument("--actor", type=int, nargs="+", default=[512, 256, 128])
    p.add_argument("--critic-width", type=int, default=256)
    p.add_argument("--critic-blocks", type=int, default=2)
    p.add_argument("--expansion", type=int, default=4)
    p.add_argument("--phi", type=int, default=32)
    p.add_argument("--bins", type=int, default=101)
    p.add_argument("--gmax", type=float, default=5.0, help="support of the critics: returns are scaled into it")
    # steps
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--critic-lr", type=float, default=None)
    p.add_argument("--dual-lr", type=float, default=3e-4)
    p.add_argument("--weight-decay", type=float, default=0.01)
    p.add_argument("--tau", type=float, default=0.01)
    p.add_argument("--delay", type=int, default=2, help="critic updates to one of the actor")
    p.add_argument("--mean-q", type=int, default=0, help="mean of the two critics instead of the smaller one")
    p.add_argument("--ent-start", type=float, default=0.01)
    p.add_argument("--ent-target", type=float, default=-0.48, help="a dimension; -0.48 is sigma 0.15")
    p.add_argument(
        "--repeat",
        type=float,
        nargs="+",
        default=[0.5],
        metavar="CHANCE",
        help="chance that a step's noise is the last step's; of the first and the last environment, or policy",
    )
    p.add_argument(
        "--ladder",
        type=float,
        nargs=2,
        default=[1.0, 1.0],
        metavar=("QUIETEST", "LOUDEST"),
        help="factors on the noise of the first and the last environment of a policy",
    )
    # ensemble
    p.add_argument("--policies", type=int, default=1)
    p.add_argument(
        "--borrow",
        type=float,
        default=0.5,
        help="share of sampled rows that the leader learns from, whoever collected them",
    )
    p.add_argument("--ent-spread", type=float, default=0.6, help="the last follower's entropy target is higher by this")
    p.add_argument("--kl-bound", type=float, default=None, help="followers stay this near to the leader, by a dual")
    add_arguments(p)
    return p.parse_args()


class Actor(nn.Module):
    def __init__(self, o: argparse.Namespace, obs: int, act: int) -> None:
        super().__init__()
        self.phi = nn.Parameter(torch.randn(o.policies, o.phi) / o.phi**0.5) if o.policies > 1 else None
        sizes, layers = [obs + (o.phi if o.policies > 1 else 0), *o.actor], []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU()]
        last = nn.Linear(sizes[-1], 2 * act)
        with torch.no_grad():
            last.weight.mul_(0.01)
            last.bias.zero_()
        self.net = nn.Sequential(*layers, last)

    def forward(self, obs: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        x = obs if self.phi is None else torch.cat((obs, self.phi[k]), -1)
        mean, log_std = self.net(x).float().chunk(2, -1)
        return mean, log_std.clamp(-5.0, 1.0)


class Twin(nn.Module):
    """A linear layer of two networks side by side, `[2, B, in]` to `[2, B, out]`."""

    def __init__(self, a: int, b: int, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, a, b).uniform_(-1, 1) * gain * (1.0 / a) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(2, 1, b))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class Critics(nn.Module):
    """Two residual networks (layer norm, widening, SiLU) over bins."""

    def __init__(self, o: argparse.Namespace, obs: int, act: int) -> None:
        super().__init__()
        w, e = o.critic_width, o.expansion
        self.phi = nn.Parameter(torch.randn(o.policies, o.phi) / o.phi**0.5) if o.policies > 1 else None
        self.first = Twin(obs + act + (o.phi if o.policies > 1 else 0), w)
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(o.critic_blocks + 1))
        self.up = nn.ModuleList(Twin(w, e * w) for _ in range(o.critic_blocks))
        self.down = nn.ModuleList(Twin(e * w, w) for _ in range(o.critic_blocks))
        self.last = Twin(w, o.bins, gain=0.1)
        width = 2 * o.gmax / (o.bins - 1)
        self.sigma = 0.75 * width
        self.register_buffer("centres", torch.linspace(-o.gmax, o.gmax, o.bins))
        self.register_buffer("edges", torch.linspace(-o.gmax - width / 2, o.gmax + width / 2, o.bins + 1))
        self.zero = nn.Parameter((-0.5 * (self.centres / 0.5).square()).expand(2, 1, -1).clone())

    def embed(self, value: Tensor) -> Tensor:
        value = value.clamp(self.centres[0], self.centres[-1])
        cdf = torch.erf((self.edges - value[..., None]) / (self.sigma * 2**0.5))
        return (cdf[..., 1:] - cdf[..., :-1]) / (cdf[..., -1:] - cdf[..., :1])

    def logits(self, obs: Tensor, action: Tensor, k: Tensor) -> Tensor:
        parts = (obs, action) if self.phi is None else (obs, action, self.phi[k])
        x = torch.cat(parts, -1)
        x = self.first(x.expand(2, *x.shape))
        for i in range(len(self.up)):
            x = x + self.down[i](F.silu(self.up[i](self.norms[i](x))))
        return self.last(self.norms[-1](x)).float() + self.zero

    def forward(self, obs: Tensor, action: Tensor, k: Tensor) -> Tensor:
        return (self.logits(obs, action, k).softmax(-1) * self.centres).sum(
            -1
        )  # a product of matrices would be in bf16


def log_prob(u: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    gauss = -0.5 * ((u - mean) / log_std.exp()).square() - log_std - 0.5 * LOG_2PI
    return (gauss - 2.0 * (LOG_2 - u - F.softplus(-2.0 * u))).sum(-1)


def sharing(module: nn.Module) -> nn.Module:
    """The same weights, in the same memory, without gradients: a gradient through it does not compute theirs."""
    twin = copy.deepcopy(module)
    for mine, theirs in zip(twin.parameters(), module.parameters(), strict=False):
        mine.data = theirs.data
    return twin.requires_grad_(False)


class Lab:
    def __init__(self, o: argparse.Namespace) -> None:
        self.o = o
        dev = self.device = torch.device(o.device)
        config = dataclasses.replace(preset(o.task), num_envs=o.num_envs, seed=o.seed, device=o.device)
        self.gamma = o.gamma if o.gamma is not None else config.update.discount
        self.bootstrap = config.update.timeout_bootstrap != "none"
        env = self.env = maker(config, spread_clocks=True)(o.num_envs, dev, o.seed)
        config = dataclasses.replace(config, env=env.config)  # with the buffer sizes that were probed
        torch.manual_seed(o.seed)
        self.layout = Layout(o.num_envs, o.policies, dev)
        self.episodes = Episodes(self.layout)
        self.names = ["policy"] + (["critic"] if "critic" in env.obs_spec else [])
        self.cname = self.names[-1]
        size = {name: int(env.obs_spec[name]) for name in self.names}
        act, n = env.action_dim, o.num_envs
        self.actor = Actor(o, size["policy"], act).to(dev)
        self.critics = Critics(o, size[self.cname], act).to(dev)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.frozen = sharing(self.critics)
        self.norms = {name: Normaliser(size[name]).to(dev) for name in self.names}
        self.log_alpha = nn.Parameter(torch.full((o.policies,), o.ent_start, device=dev).log())
        spread = (
            torch.linspace(0, o.ent_spread, o.policies, device=dev) if o.policies > 1 else torch.zeros(1, device=dev)
        )
        self.ent_target = act * (o.ent_target + spread)
        self.log_beta = nn.Parameter(torch.full((o.policies,), 1e-3, device=dev).log())  # of the bound on the KL
        cuda = dev.type == "cuda"
        extra = {"fused": True, "capturable": True} if cuda else {}

        def lr(x: float) -> float | Tensor:
            return torch.tensor(x, device=dev) if cuda else x

        self.critic_params, self.actor_params = list(self.critics.parameters()), list(self.actor.parameters())
        self.critic_opt = torch.optim.AdamW(
            self.critic_params, lr=lr(o.critic_lr or o.lr), weight_decay=o.weight_decay, **extra
        )
        self.actor_opt = torch.optim.AdamW(
            [{"params": self.actor_params}, {"params": self._duals(), "lr": lr(o.dual_lr), "weight_decay": 0.0}],
            lr=lr(o.lr),
            weight_decay=o.weight_decay,
            **extra,
        )
        C = self.capacity = max(o.replay // n, o.warmup + o.n_step + 1)
        f = {"device": dev}
        self.now = {name: torch.zeros(n, size[name], **f) for name in self.names}
        self.obs = {name: torch.zeros(C, n, size[name], **f) for name in self.names}
        self.nxt = {name: torch.zeros(C, n, size[name], **f) for name in self.names}
        self.action, self.reward = torch.zeros(C, n, act, **f), torch.zeros(C, n, **f)
        self.term, self.done = (torch.zeros(C, n, dtype=torch.bool, **f) for _ in range(2))
        self.head = torch.zeros(1, dtype=torch.long, **f)
        self.filled = torch.zeros(1, dtype=torch.long, **f)
        self.noise = torch.randn(n, act, **f)
        place = torch.cat([torch.linspace(0, 1, size, **f) for size in self.layout.sizes])
        low, high = o.ladder
        self.loudness = (low * (high / low) ** place)[:, None]
        rank = self.layout.policy_id / (o.policies - 1) if o.policies > 1 else place
        self.repeat = torch.lerp(*(torch.full_like(place, x) for x in (o.repeat[0], o.repeat[-1])), rank)[:, None]
        self.running = torch.zeros(n, **f)  # discounted return so far, of every environment
        self.moments = torch.zeros(3, dtype=torch.float64, **f)  # count, sum, sum of squares of it
        self.largest = torch.zeros((), **f)
        self.scale = torch.ones((), **f)
        self.generator = torch.Generator(device=dev)
        self.generator.manual_seed(o.seed + 1)
        self.sums = torch.zeros(9, **f)
        if cuda and o.compile:
            torch._dynamo.config.recompile_limit = 64
            self._critic_loss = torch.compile(self._critic_loss, dynamic=False)
            self._actor_loss = torch.compile(self._actor_loss, dynamic=False)
            self._decide = torch.compile(self._decide, dynamic=False)
            self._rows = torch.compile(self._rows, dynamic=False)
        leader = torch.zeros(o.evaluate_envs or 1024, dtype=torch.long, device=dev)
        self.evaluation = Evaluation(
            config, lambda obs: torch.tanh(self.actor(self.norms["policy"](obs), leader[: len(obs)])[0]), o
        )
        compiles = bool(o.compile)
        self.warm_up = Recorded(lambda: self._iterate(False), dev, [], enabled=False, compiles=compiles)
        self.iterate = Recorded(
            lambda: self._iterate(True), dev, [self.generator], env=env, enabled=bool(o.capture), compiles=compiles
        )

    def _duals(self) -> list[nn.Parameter]:
        return [self.log_alpha] if self.o.kl_bound is None else [self.log_alpha, self.log_beta]

    def _randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device)

    def _rand(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device)

    def _iterate(self, learns: bool) -> None:
        self.sums.zero_()
        self.episodes.begin()
        for _ in range(self.o.steps):
            self._act()
            if learns:
                for i in range(self.o.updates):
                    self._update(i % self.o.delay == 0)

    # acting

    def _decide(self, obs: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = self.actor(self.norms["policy"](obs), self.layout.policy_id)
        return torch.tanh(mean + log_std.exp() * noise)

    @torch.inference_mode()
    def _act(self) -> None:
        n, act = self.o.num_envs, self.env.action_dim
        again = self._rand(n, 1) < self.repeat
        self.noise.copy_(torch.where(again, self.noise, self._randn(n, act)))
        action = self._decide(self.now["policy"], self.noise * self.loudness)
        step = self.env.step(action)
        done = step.terminated | step.truncated
        end = step.terminated if self.bootstrap else done
        for name in self.names:
            final = step.obs[name] if step.final_obs is None else step.final_obs[name]
            self.norms[name].merge(self.now[name])
            self.obs[name].index_copy_(0, self.head, self.now[name][None])
            self.nxt[name].index_copy_(0, self.head, final[None])
            self.now[name].copy_(step.obs[name])
        for store, x in ((self.action, action), (self.reward, step.reward), (self.term, end), (self.done, done)):
            store.index_copy_(0, self.head, x[None])
        self.head.copy_((self.head + 1) % self.capacity)
        self.filled.copy_((self.filled + 1).clamp(max=self.capacity))
        self.episodes.record(step)
        # the scale: returns as they were, without a critic, so that nothing feeds back
        self.running.mul_(self.gamma).add_(step.reward)
        g = self.running.double()
        self.moments += torch.stack((torch.full_like(g.sum(), n), g.sum(), g.square().sum()))
        size = self.running.abs()
        top = size.mean() + 4.0 * size.std()  # not the largest: one simulation that runs away shall not set the scale
        self.largest.copy_(torch.maximum(self.largest, top))
        mean = self.moments[1] / self.moments[0]
        std = (self.moments[2] / self.moments[0] - mean.square()).clamp(min=1e-12).sqrt().float()
        self.scale.copy_(torch.maximum(std, self.largest / self.o.gmax).clamp(min=1e-6))
        self.running.masked_fill_(done, 0.0)

    # learning

    def _rows(self, drawn: Tensor) -> tuple[Tensor, ...]:
        """n-step rows: s, a, the sum of rewards, where it ends, and the factor of the value there. `drawn` `[3, B]`."""
        o, n, C = self.o, self.o.num_envs, self.capacity
        envs = (drawn[0] * n).long().clamp(max=n - 1)
        count = self.filled - o.n_step + 1
        ages = o.n_step - 1 + torch.minimum((drawn[1] * count).long(), count - 1)
        t = (self.head - 1 - ages) % C
        total, factor = torch.zeros(o.batch, device=self.device), torch.ones(o.batch, device=self.device)
        alive = torch.ones(o.batch, dtype=torch.bool, device=self.device)
        last, ends = t, torch.zeros_like(alive)
        for i in range(o.n_step):
            at = (t + i) % C
            total = total + torch.where(alive, factor * self.reward[at, envs], 0.0)
            last = torch.where(alive, at, last)
            ends = torch.where(alive, self.term[at, envs], ends)
            factor = torch.where(alive, factor * self.gamma, factor)
            alive = alive & ~self.done[at, envs]
        k = self.layout.policy_id[envs]
        if o.policies > 1:
            k = torch.where(drawn[2] < o.borrow, torch.zeros_like(k), k)
        x = {name: self.norms[name](self.obs[name][t, envs]) for name in self.names}
        y = {name: self.norms[name](self.nxt[name][last, envs]) for name in self.names}
        return (
            x["policy"],
            x[self.cname],
            self.action[t, envs],
            total / self.scale,
            factor * ~ends,
            y["policy"],
            y[self.cname],
            k,
        )

    def _critic_loss(
        self, x: Tensor, a: Tensor, total: Tensor, factor: Tensor, y: Tensor, yc: Tensor, k: Tensor, noise: Tensor
    ) -> tuple[Tensor, ...]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bool(self.o.bf16) and self.device.type == "cuda"):
            with torch.no_grad():
                mean, log_std = self.actor(y, k)
                u = mean + log_std.exp() * noise
                q = self.target(yc, torch.tanh(u), k)
                q = q.mean(0) if self.o.mean_q else q.amin(0)
                value = total + factor * (q - self.log_alpha.exp()[k] * log_prob(u, mean, log_std))
                labels = self.critics.embed(value)
            logits = self.critics.logits(x, a, k)
        loss = -(labels * logits.log_softmax(-1)).sum(-1)
        error = (logits.detach().softmax(-1) * self.critics.centres).sum(-1).mean(0) - value
        return loss.mean(1).sum(), value.mean(), 1.0 - error.var() / value.var().clamp(min=1e-9)

    def _actor_loss(self, x: Tensor, xc: Tensor, k: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bool(self.o.bf16) and self.device.type == "cuda"):
            mean, log_std = self.actor(x, k)
            u = mean + log_std.exp() * noise
            q = self.frozen(xc, torch.tanh(u), k)
            q = q.mean(0) if self.o.mean_q else q.amin(0)
        lp = log_prob(u, mean, log_std)
        alpha = self.log_alpha.exp()[k]
        loss = (alpha.detach() * lp - q).mean() + (alpha * (-lp - self.ent_target[k]).detach()).mean()
        if self.o.kl_bound is not None:  # before the tanh, which changes no KL
            with torch.no_grad():
                led, led_log_std = self.actor(x, torch.zeros_like(k))
            apart = (mean - led).square() / (2 * (2 * led_log_std).exp()) - 0.5 - log_std + led_log_std
            kl = (apart + 0.5 * (2 * (log_std - led_log_std)).exp()).sum(-1)
            beta = self.log_beta.exp()[k] * (k > 0)
            loss = loss + (beta.detach() * kl + beta * (self.o.kl_bound - kl).detach()).mean()
        return loss, -lp.mean().detach(), log_std.mean().detach(), q.mean().detach()

    def _update(self, actor_too: bool) -> None:
        act, n = self.env.action_dim, self.o.batch
        with torch.no_grad():
            x, xc, a, total, factor, y, yc, k = self._rows(self._rand(3, n))
        loss, value, explained = self._critic_loss(xc, a, total, factor, y, yc, k, self._randn(n, act))
        for p, g in zip(self.critic_params, torch.autograd.grad(loss, self.critic_params), strict=False):
            p.grad = g
        self.critic_opt.step()
        self.sums[:3].add_(torch.stack((loss.detach(), value, explained)))
        self.sums[3].add_(1)
        if actor_too:
            loss, *stats = self._actor_loss(x, xc, k, self._randn(n, act))
            params = [*self.actor_params, *self._duals()]
            for p, g in zip(params, torch.autograd.grad(loss, params), strict=False):
                p.grad = g
            self.actor_opt.step()
            self.sums[4:7].add_(torch.stack(stats))
            self.sums[7].add_(1)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), self.critic_params, self.o.tau)

    # the run

    def run(self) -> None:
        o = self.o
        per = o.num_envs * o.steps
        write = Lines(o.out)
        evaluate = Schedule(self.evaluation, o.evaluate_at, write)
        with torch.inference_mode():
            obs = self.env.reset()
            for name in self.names:
                self.now[name].copy_(obs[name])
        write(
            {
                "args": vars(o),
                "parameters": [sum(p.numel() for p in m.parameters()) for m in (self.actor, self.critics)],
                "replay_steps": self.capacity,
            }
        )
        steps = iteration = updates = 0
        spent, began, learned = 0.0, time.time(), 0
        while steps < o.env_steps and spent < o.seconds:
            learns = iteration * o.steps >= o.warmup
            start = time.perf_counter()
            (self.iterate if learns else self.warm_up)()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            took = time.perf_counter() - start
            learned += learns
            steps += per
            iteration += 1
            updates += o.steps * o.updates * learns
            if self.device.type == "cpu" or learned > 2 or (not learns and iteration > 2):
                spent += took
            evaluate(steps, spent)
            if iteration % o.log_every and steps < o.env_steps:
                continue
            line = self._line(iteration, steps, spent, updates) | {
                "iteration_s": round(took, 4),
                "wall": round(time.time() - began, 1),
            }
            write(line)
            if learns and not line["critic_loss"] < 1e6:
                sys.exit("diverged")
            if o.until and line.get(o.until[0], float("-inf")) >= float(o.until[1]):
                break
        evaluate(steps, spent, end=True)

    def _line(self, iteration: int, steps: int, spent: float, updates: int) -> dict:
        s = self.sums.tolist()
        c, a = max(s[3], 1), max(s[7], 1)
        metrics = {name: x.item() for name, x in self.episodes.metrics().items()}
        line = {
            "iteration": iteration,
            "steps": steps,
            "seconds": round(spent, 3),
            "updates": updates,
            "return": metrics.pop("return/leader"),
        }
        if "successes/leader" in metrics:
            line["successes"] = metrics["successes/leader"]
        line |= {
            "critic_loss": s[0] / c,
            "target": s[1] / c,
            "explained": s[2] / c,
            "entropy": s[4] / a / self.env.action_dim,
            "log_sigma": s[5] / a,
            "q": s[6] / a,
            "scale": self.scale.item(),
            "alpha": self.log_alpha.exp().tolist(),
            "beta": self.log_beta.exp().tolist(),
        } | metrics
        return {name: (float(f"{x:.5g}") if isinstance(x, float) else x) for name, x in line.items()}


def main() -> None:
    start(Lab, arguments())


if __name__ == "__main__":
    main()

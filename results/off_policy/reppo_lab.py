"""REPPO (arXiv 2507.11019) on Echelon's environments, alone or as an ensemble, in one file.

On-policy: a Q-critic Q(s, a, k) learns from TD(lambda) targets of the rollout (HL-Gauss), the actor follows its gradient
by reparametrised actions, and both distances are held by duals: KL to the policy that acted, and entropy.

Ensemble: policy k is told apart by a learned vector. Everybody learns from own rows; the leader (0) also from all
followers' rows: the critic by Retrace(lambda), which needs ratios in traces only, and the actor needs none at all.

    PYTHONPATH=src python reppo_lab.py --task Hopper --num-envs 2048 --horizon 16 --env-steps 2000000 --device cpu

Prints a JSON line an iteration (every --log-every): steps, seconds (of training, without start-up and
evaluating), return, successes, ...
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


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--task", default="Hopper")
    p.add_argument("--num-envs", type=int, default=2048)
    p.add_argument("--env-steps", type=int, default=2_000_000)
    p.add_argument("--seconds", type=float, default=1e9, help="stop after so many seconds of training")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--out", default=None, help="file that gets the JSON lines too")
    p.add_argument("--log-every", type=int, default=1)
    p.add_argument("--until", nargs=2, default=None, metavar=("METRIC", "VALUE"))
    p.add_argument("--capture", type=int, default=1, help="CUDA graphs of rollout and update")
    p.add_argument("--compile", type=int, default=1, help="torch.compile of both losses (CUDA only)")
    p.add_argument("--bf16", type=int, default=0, help="autocast of both losses on CUDA")
    # data
    p.add_argument("--horizon", type=int, default=16)
    p.add_argument("--minibatches", type=int, default=16)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--actor-epochs", type=int, default=None, help="of the last epochs, those the actor learns in; all")
    p.add_argument("--gamma", type=float, default=None, help="the preset's unless given")
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--value-samples", type=int, default=2, help="actions that V(s') is averaged over")
    # networks
    p.add_argument("--actor", type=int, nargs="+", default=[512, 256, 128])
    p.add_argument("--critic", type=int, nargs="+", default=[512, 512, 256])
    p.add_argument("--norm", default="layer", choices=["layer", "none"])
    p.add_argument("--phi", type=int, default=32)
    p.add_argument("--bins", type=int, default=151)
    p.add_argument("--vmax", type=float, default=10.0, help="support of the critic, in RMS of the returns")
    p.add_argument("--mse", type=int, default=0, help="a scalar critic instead of HL-Gauss")
    # steps
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--critic-lr", type=float, default=None)
    p.add_argument("--dual-lr", type=float, default=3e-3)
    p.add_argument("--grad-norm", type=float, default=0.5)
    p.add_argument("--kl-bound", type=float, default=0.1, help="KL(old || new) a state may reach in an update")
    p.add_argument("--kl-start", type=float, default=0.01)
    p.add_argument("--ent-start", type=float, default=0.01)
    p.add_argument("--ent-target", type=float, default=-0.5, help="entropy per action dimension (uniform is 0.69)")
    p.add_argument("--init-sigma", type=float, default=1.0)
    p.add_argument("--scale-rate", type=float, default=0.05, help="rate of the running RMS of returns")
    # ensemble
    p.add_argument("--policies", type=int, default=1)
    p.add_argument(
        "--borrow",
        default="critic",
        choices=["none", "critic", "all"],
        help="what of the leader learns from followers' rows",
    )
    p.add_argument("--ent-spread", type=float, default=0.3, help="the last follower's entropy target is higher by this")
    add_arguments(p)
    return p.parse_args()


class MLP(nn.Sequential):
    """Linear, LayerNorm, SiLU; the last layer linear and small."""

    def __init__(self, sizes: list[int], out: int, norm: str, gain: float = 1.0) -> None:
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Linear(a, b)] + ([nn.LayerNorm(b)] if norm == "layer" else []) + [nn.SiLU()]
        last = nn.Linear(sizes[-1], out)
        with torch.no_grad():
            last.weight.mul_(gain)
            last.bias.zero_()
        super().__init__(*layers, last)


class Actor(nn.Module):
    """Mean and log sigma before the tanh. KL and log-probabilities are taken there: tanh is a bijection, so KL is the same."""

    def __init__(self, o: argparse.Namespace, obs: int, act: int) -> None:
        super().__init__()
        self.phi = nn.Parameter(torch.randn(o.policies, o.phi) / o.phi**0.5) if o.policies > 1 else None
        self.net = MLP([obs + (o.phi if o.policies > 1 else 0), *o.actor], 2 * act, o.norm, gain=0.01)
        with torch.no_grad():
            self.net[-1].bias[act:] = torch.tensor(o.init_sigma).log()

    def forward(self, obs: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        x = obs if self.phi is None else torch.cat((obs, self.phi[k]), -1)
        mean, log_std = self.net(x).float().chunk(2, -1)
        return mean, log_std.clamp(-5.0, 1.0)


class Critic(nn.Module):
    def __init__(self, o: argparse.Namespace, obs: int, act: int) -> None:
        super().__init__()
        self.mse = bool(o.mse)
        self.phi = nn.Parameter(torch.randn(o.policies, o.phi) / o.phi**0.5) if o.policies > 1 else None
        self.net = MLP(
            [obs + act + (o.phi if o.policies > 1 else 0), *o.critic], 1 if o.mse else o.bins, o.norm, gain=0.1
        )
        width = 2 * o.vmax / (o.bins - 1)
        self.sigma = 0.75 * width
        self.register_buffer("centres", torch.linspace(-o.vmax, o.vmax, o.bins))
        self.register_buffer("edges", torch.linspace(-o.vmax - width / 2, o.vmax + width / 2, o.bins + 1))
        if not o.mse:
            self.zero = nn.Parameter(
                -0.5 * self.centres.square()
            )  # begins as N(0, 1); REPPO's peak at 0 takes long to leave

    def embed(self, value: Tensor) -> Tensor:
        value = value.clamp(self.centres[0], self.centres[-1])
        cdf = torch.erf((self.edges - value[..., None]) / (self.sigma * 2**0.5))
        return (cdf[..., 1:] - cdf[..., :-1]) / (cdf[..., -1:] - cdf[..., :1])

    def logits(self, obs: Tensor, action: Tensor, k: Tensor) -> Tensor:
        parts = (obs, action) if self.phi is None else (obs, action, self.phi[k])
        x = self.net(torch.cat(parts, -1)).float()
        return x if self.mse else x + self.zero

    def value(self, logits: Tensor) -> Tensor:
        return logits[..., 0] if self.mse else (logits.softmax(-1) * self.centres).sum(-1)

    def forward(self, obs: Tensor, action: Tensor, k: Tensor) -> Tensor:
        return self.value(self.logits(obs, action, k))

    def loss(self, obs: Tensor, action: Tensor, k: Tensor, target: Tensor) -> Tensor:
        logits = self.logits(obs, action, k)
        if self.mse:
            return 0.5 * F.huber_loss(logits[..., 0], target, reduction="none", delta=2.0)
        return -(self.embed(target) * logits.log_softmax(-1)).sum(-1)


LOG_2PI, LOG_2 = 1.8378770664093453, 0.6931471805599453


def log_prob(u: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Of tanh(u), for u before the tanh."""
    gauss = -0.5 * ((u - mean) / log_std.exp()).square() - log_std - 0.5 * LOG_2PI
    return (gauss - 2.0 * (LOG_2 - u - F.softplus(-2.0 * u))).sum(-1)


def kl(mean0: Tensor, log0: Tensor, mean1: Tensor, log1: Tensor) -> Tensor:
    """KL(0 || 1)."""
    return (log1 - log0 + ((2 * log0).exp() + (mean0 - mean1).square()) / (2 * (2 * log1).exp()) - 0.5).sum(-1)


def sharing(module: nn.Module) -> nn.Module:
    """The same weights, in the same memory, without gradients: a gradient through it does not compute theirs."""
    twin = copy.deepcopy(module)
    for mine, theirs in zip(twin.parameters(), module.parameters(), strict=False):
        mine.data = theirs.data
    return twin.requires_grad_(False)


class Lab:
    def __init__(self, o: argparse.Namespace) -> None:
        self.o = o
        self.device = torch.device(o.device)
        config = preset(o.task)
        config = dataclasses.replace(config, num_envs=o.num_envs, seed=o.seed, device=o.device)
        self.gamma = o.gamma if o.gamma is not None else config.update.discount
        self.bootstrap = config.update.timeout_bootstrap != "none"
        self.env = maker(config, spread_clocks=True)(o.num_envs, self.device, o.seed)
        env, dev = self.env, self.device
        config = dataclasses.replace(config, env=env.config)  # with the buffer sizes that were probed
        torch.manual_seed(o.seed)
        self.layout = Layout(o.num_envs, o.policies, dev)
        self.episodes = Episodes(self.layout)
        self.names = ["policy"] + (["critic"] if "critic" in env.obs_spec else [])
        size = {name: int(env.obs_spec[name]) for name in self.names}
        self.critic_name, act, n, T = self.names[-1], env.action_dim, o.num_envs, o.horizon
        self.actor = Actor(o, size["policy"], act).to(dev)
        self.critic = Critic(o, size[self.critic_name], act).to(dev)
        self.frozen = sharing(self.critic)
        self.norms = {name: Normaliser(size[name]).to(dev) for name in self.names}
        self.log_alpha = nn.Parameter(torch.full((o.policies,), o.ent_start, device=dev).log())
        self.log_beta = nn.Parameter(torch.full((o.policies,), o.kl_start, device=dev).log())
        spread = (
            torch.linspace(0, o.ent_spread, o.policies, device=dev) if o.policies > 1 else torch.zeros(1, device=dev)
        )
        self.ent_target = act * (o.ent_target + spread)
        cuda = dev.type == "cuda"
        extra = {"fused": True, "capturable": True} if cuda else {}

        def lr(x: float) -> float | Tensor:
            return torch.tensor(x, device=dev) if cuda else x

        self.critic_opt = torch.optim.AdamW(self.critic.parameters(), lr=lr(o.critic_lr or o.lr), **extra)
        self.actor_opt = torch.optim.AdamW(
            [
                {"params": list(self.actor.parameters())},
                {"params": [self.log_alpha, self.log_beta], "lr": lr(o.dual_lr), "weight_decay": 0.0},
            ],
            lr=lr(o.lr),
            **extra,
        )
        f = {"device": dev}
        self.obs = {name: torch.zeros(T + 1, n, size[name], **f) for name in self.names}
        self.nxt = {name: torch.zeros(T, n, size[name], **f) for name in self.names}
        self.u = torch.zeros(T, n, act, **f)
        self.reward, self.target, self.borrowed = (torch.zeros(T, n, **f) for _ in range(3))
        self.term, self.trunc = (torch.zeros(T, n, dtype=torch.bool, **f) for _ in range(2))
        self.square = torch.zeros((), **f)  # running mean square of returns, raw units; 0 until known
        self.scale = torch.ones((), **f)
        self.k = self.layout.policy_id.expand(T, n).contiguous()
        self.generator = torch.Generator(device=dev)
        self.generator.manual_seed(o.seed + 1)
        # rows: own, then the leader on followers' rows
        own = torch.arange(T * n, device=dev)
        rows, as_k = [own], [self.k.flatten()]
        if o.policies > 1 and o.borrow != "none":
            others = own[self.k.flatten() > 0]
            rows.append(others)
            as_k.append(torch.zeros_like(others))
        self.rows, self.as_k = torch.cat(rows), torch.cat(as_k)
        self.batch = len(self.rows) // o.minibatches
        self.weight = torch.ones(len(self.rows), device=dev)  # of a row in the actor's loss
        if o.borrow == "critic":
            self.weight[T * n :] = 0.0
            self.weight *= len(self.rows) / (T * n)
        self.own_rows = T * n
        self.old = torch.zeros(len(self.rows), 2 * act, **f)
        self.y = torch.zeros(len(self.rows), **f)
        self.x = {name: torch.zeros(T * n, size[name], **f) for name in self.names}
        self.a = torch.zeros(T * n, act, **f)
        self.sums = torch.zeros(12, **f)
        if cuda and o.compile:
            torch._dynamo.config.recompile_limit = 64
            self._critic_loss = torch.compile(self._critic_loss, dynamic=False)
            self._actor_loss = torch.compile(self._actor_loss, dynamic=False)
            self._decide = torch.compile(self._decide, dynamic=False)
        leader = torch.zeros(o.evaluate_envs or 1024, dtype=torch.long, device=dev)
        self.evaluation = Evaluation(
            config, lambda obs: torch.tanh(self.actor(self.norms["policy"](obs), leader[: len(obs)])[0]), o
        )
        how = {"enabled": bool(o.capture), "compiles": bool(o.compile)}
        self.collect = Recorded(self._collect, dev, [self.generator], env=env, **how)
        self.targets = Recorded(self._targets, dev, [self.generator], **how)
        self.update = Recorded(self._update, dev, [self.generator], **how)

    # rollout

    def _decide(self, obs: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = self.actor(self.norms["policy"](obs), self.layout.policy_id)
        return mean + log_std.exp() * noise

    def _randn(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self.generator, device=self.device)

    @torch.inference_mode()
    def _collect(self) -> None:
        for x in self.obs.values():
            x[0] = x[-1]
        self.episodes.begin()
        for t in range(self.o.horizon):
            self.u[t] = self._decide(self.obs["policy"][t], self._randn(self.u[t]))
            step = self.env.step(torch.tanh(self.u[t]))
            for name in self.names:
                self.obs[name][t + 1] = step.obs[name]
                self.nxt[name][t] = step.obs[name] if step.final_obs is None else step.final_obs[name]
            self.reward[t], self.term[t], self.trunc[t] = step.reward, step.terminated, step.truncated
            self.episodes.record(step)

    # targets, in raw units; the critic is in those of `scale` at its last update

    @torch.no_grad()
    def _targets(self) -> None:
        o, T = self.o, self.o.horizon
        for name in self.names:
            self.norms[name].merge(self.obs[name][:-1])
            self.x[name].copy_(self.norms[name](self.obs[name][:-1]).flatten(0, 1))
        self.a.copy_(torch.tanh(self.u).flatten(0, 1))
        nxt = {name: self.norms[name](self.nxt[name]) for name in self.names}
        alpha = self.log_alpha.exp() * self.scale
        reward = self.reward
        end = self.term | (torch.zeros_like(self.trunc) if self.bootstrap else self.trunc)
        cut = (self.trunc & ~end).clone()
        cut[-1].fill_(True)
        mean, log_std = self.actor(self.x["policy"].view(T, o.num_envs, -1), self.k)
        lp_own = log_prob(self.u, mean, log_std)
        lam = torch.full_like(reward, o.lam)
        self.target.copy_(self._lambda(reward, end, cut, nxt, self.k, alpha[self.k], lp_own, lam, None))
        old = torch.cat((mean, log_std), -1).flatten(0, 1)
        if len(self.rows) > self.own_rows:
            zero = torch.zeros_like(self.k)
            mean0, log0 = self.actor(self.x["policy"].view(T, o.num_envs, -1), zero)
            lp_leader = log_prob(self.u, mean0, log0)
            ratio = (lp_leader - lp_own).exp()
            q = self.scale * self.critic(self.x[self.critic_name], self.a, zero.flatten()).view(T, -1)
            self.borrowed.copy_(
                self._lambda(reward, end, cut, nxt, zero, alpha[0], lp_leader, o.lam * ratio.clamp(max=1.0), q)
            )
            others = self.rows[self.own_rows :]
            self.old.copy_(torch.cat((old, torch.cat((mean0, log0), -1).flatten(0, 1)[others])))
            self.y.copy_(torch.cat((self.target.flatten(), self.borrowed.flatten()[others])))
            r = ratio.flatten()[others]
            self.sums[8] = r.sum().square() / r.square().sum() / len(r)  # ESS of followers' rows under the leader
        else:
            self.old.copy_(old)
            self.y.copy_(self.target.flatten())
        pred = self.scale * self.critic(self.x[self.critic_name], self.a, self.k.flatten())
        t = self.target.flatten()
        self.sums[9] = 1.0 - (t - pred).var() / t.var().clamp(min=1e-12)  # explained variance before the update
        self.sums[10] = pred.mean() - t.mean()
        self.sums[11] = t.mean()
        rate = torch.where(self.square > 0, o.scale_rate, 1.0)
        self.square.lerp_(t.square().mean(), rate)
        self.scale.copy_(self.square.sqrt().clamp(min=1e-6))
        self.y /= self.scale

    def _lambda(self, reward, end, cut, nxt, k, alpha, lp, trace, q):
        """TD(lambda) of soft values. With `q`, Retrace for the policy `k` of other policies' rows."""
        o, T, c = self.o, self.o.horizon, nxt[self.critic_name]
        mean, log_std = self.actor(nxt["policy"], k)
        v = torch.zeros_like(reward)
        for _ in range(o.value_samples):
            u = mean + log_std.exp() * self._randn(mean)
            v += self.scale * self.critic(c, torch.tanh(u), k) - alpha * log_prob(u, mean, log_std)
        v /= o.value_samples
        out = torch.zeros_like(reward)
        following = torch.zeros_like(reward[0])
        for t in reversed(range(T)):
            if q is None:  # own rows: what was done next is what the policy does
                ahead = (
                    v[t] if t + 1 == T else (1 - trace[t]) * v[t] + trace[t] * (following - alpha[t + 1] * lp[t + 1])
                )
            elif t + 1 == T:
                ahead = v[t]
            else:  # V + c (G' - Q(s', a')), whose expectation is V for any trace c
                ahead = v[t] + trace[t + 1] * (following - q[t + 1])
            ahead = torch.where(cut[t], v[t], ahead)
            following = reward[t] + self.gamma * (~end[t]) * ahead
            out[t] = following
        return out

    # update

    def _critic_loss(self, x: Tensor, a: Tensor, k: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bool(self.o.bf16)):
            return self.critic.loss(x, a, k, y).mean()

    def _actor_loss(self, x: Tensor, c: Tensor, k: Tensor, old: Tensor, noise: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bool(self.o.bf16)):
            mean, log_std = self.actor(x, k)
            u = mean + log_std.exp() * noise
            lp = log_prob(u, mean, log_std)
            q = self.frozen(c, torch.tanh(u), k)
        alpha, beta = self.log_alpha.exp()[k], self.log_beta.exp()[k]
        mean0, log0 = old.chunk(2, -1)
        d = kl(mean0, log0, mean, log_std)
        far = d >= self.o.kl_bound
        loss = (w * torch.where(far, beta.detach() * d, alpha.detach() * lp - q)).mean()
        dual = (w * alpha * (-lp - self.ent_target[k]).detach()).mean() - (
            w * beta * (d - self.o.kl_bound).detach()
        ).mean()
        return (
            loss + dual,
            d.mean().detach(),
            far.float().mean(),
            -lp.mean().detach(),
            q.mean().detach(),
            log_std.mean().detach(),
        )

    def _update(self) -> None:
        o, act = self.o, self.env.action_dim
        self.sums[:8].zero_()
        critic_params, actor_params = list(self.critic.parameters()), list(self.actor.parameters())
        first = o.epochs - (o.actor_epochs or o.epochs)
        for epoch in range(o.epochs):
            order = torch.rand(len(self.rows), generator=self.generator, device=self.device).argsort()
            for i in range(o.minibatches):
                b = order[i * self.batch : (i + 1) * self.batch]
                rows, k = self.rows[b], self.as_k[b]
                x, c = self.x["policy"][rows], self.x[self.critic_name][rows]
                loss = self._critic_loss(c, self.a[rows], k, self.y[b])
                grads = torch.autograd.grad(loss, critic_params)
                self._step(self.critic_opt, critic_params, grads)
                self.sums[0].add_(loss.detach())
                self.sums[7].add_(1)
                if epoch < first:
                    continue
                noise = torch.randn((self.batch, act), generator=self.generator, device=self.device)
                loss, *stats = self._actor_loss(x, c, k, self.old[b], noise, self.weight[b])
                params = [*actor_params, self.log_alpha, self.log_beta]
                self._step(self.actor_opt, params, torch.autograd.grad(loss, params), clip=len(actor_params))
                self.sums[1:6].add_(torch.stack(stats))
                self.sums[6].add_(1)

    def _step(
        self, opt: torch.optim.Optimizer, params: list[Tensor], grads: tuple[Tensor, ...], clip: int | None = None
    ) -> None:
        clipped = list(grads[:clip])
        norm = torch.stack(torch._foreach_norm(clipped)).norm()
        torch._foreach_mul_(clipped, (self.o.grad_norm / (norm + 1e-6)).clamp(max=1.0))
        for p, g in zip(params, grads, strict=False):
            p.grad = g
        opt.step()

    # the run

    def run(self) -> None:
        o, per = self.o, self.o.num_envs * self.o.horizon
        write = Lines(o.out)
        evaluate = Schedule(self.evaluation, o.evaluate_at, write)
        with torch.inference_mode():
            obs = self.env.reset()
            for name in self.names:
                self.obs[name][-1] = obs[name]
        steps, spent, iteration, began = 0, 0.0, 0, time.time()
        shown = {
            "args": vars(o),
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "parameters": [sum(p.numel() for p in m.parameters()) for m in (self.actor, self.critic)],
        }
        write(shown)
        while steps < o.env_steps and spent < o.seconds:
            marks = [time.perf_counter()]
            for part in (self.collect, self.targets, self.update):
                part()
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                marks.append(time.perf_counter())
            steps += per
            iteration += 1
            if iteration > 2 or self.device.type == "cpu":  # the first two compile and record
                spent += marks[-1] - marks[0]
            evaluate(steps, spent)
            if iteration % o.log_every and steps < o.env_steps:
                continue
            line = self._line(iteration, steps, spent, [b - a for a, b in itertools.pairwise(marks)])
            line["wall"] = round(time.time() - began, 1)
            write(line)
            if not line["critic_loss"] < 1e6:
                sys.exit("diverged")
            if o.until and line.get(o.until[0], float("-inf")) >= float(o.until[1]):
                break
        evaluate(steps, spent, end=True)

    def _line(self, iteration: int, steps: int, spent: float, parts: list[float]) -> dict:
        s = self.sums.tolist()
        steps_c, steps_a = max(s[7], 1), max(s[6], 1)
        metrics = {name: x.item() for name, x in self.episodes.metrics().items()}
        line = {
            "iteration": iteration,
            "steps": steps,
            "seconds": round(spent, 3),
            "return": metrics.pop("return/leader"),
        }
        if "successes/leader" in metrics:
            line["successes"] = metrics["successes/leader"]
        line |= {
            "kl": s[1] / steps_a,
            "far": s[2] / steps_a,
            "entropy": s[3] / steps_a / self.env.action_dim,
            "q": s[4] / steps_a,
            "log_sigma": s[5] / steps_a,
            "critic_loss": s[0] / steps_c,
            "explained": s[9],
            "bias": s[10],
            "target": s[11],
            "ess": s[8],
            "scale": self.scale.item(),
            "alpha": self.log_alpha.exp().tolist(),
            "beta": self.log_beta.exp().tolist(),
            "collect_s": parts[0],
            "targets_s": parts[1],
            "update_s": parts[2],
        }
        line |= metrics
        return {name: (float(f"{x:.5g}") if isinstance(x, float) else x) for name, x in line.items()}


def main() -> None:
    start(Lab, arguments())


if __name__ == "__main__":
    main()

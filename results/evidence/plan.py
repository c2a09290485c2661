"""The plan of plan.md for `benchmarks/evidence.py`."""

from evidence import Plan, Task

PLAN = Plan(
    tasks=(
        Task("AllegroHand", 100_000_000, "successes/leader", 1, "successes"),
        Task("Anymal", 60_000_000, "env/tracking_error", 0.3, "tracking_error", more=False),
        Task("AllegroKukaRegrasping", 100_000_000, "return/leader", 150, "held"),
        Task(
            "AllegroKukaTwoArmsReorientation",
            120_000_000,
            "lifted/leader",
            0.5,
            "lifted",
        ),
        Task("ShadowHand", 200_000_000, "successes/leader", 1, "successes"),
        Task("FrankaCubeStack", 150_000_000, "lifted/leader", 0.05, "lifted"),
    ),
    arms={
        "ppo": ("--algo", "ppo", "--preset", "paper"),
        "ppo_x4": ("--variant", "ppo_x4"),
        "pbt": ("--variant", "pbt_short"),
        "sapg": ("--algo", "sapg", "--preset", "paper"),
        "sapg_cpo_steps": ("--variant", "sapg_cpo_steps"),
        "cpo": ("--algo", "cpo", "--preset", "paper"),
        "cpo_centred": ("--variant", "cpo_centred"),
        "new": (  # SAPG whose leader borrows everything, with ppo_x4's optimizer steps
            *("--variant", "ppo_x4", "--algo", "sapg", "--ensemble.borrow-from", "all", "--ensemble.estimator", "gae"),
            *("--update.kl-rows", "own", "--ensemble.advantage-scope", "centred"),
        ),
    },
    comparisons=(
        ("new", "ppo_x4"),
        ("cpo_centred", "ppo_x4"),
        ("cpo_centred", "cpo"),
        ("cpo_centred", "sapg_cpo_steps"),
        ("cpo", "sapg_cpo_steps"),
    ),
)

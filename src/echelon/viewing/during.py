"""Films while a run is trained: `train(config, callbacks=[film_every(200)])`, or `--film-every 200`."""

from importlib.util import find_spec

from echelon.envs.contract import MakeEnv
from echelon.evaluation.trained import Trained
from echelon.runs.folder import RunFolder
from echelon.runs.replays import replay_path, write_replay
from echelon.viewing.page import write_page
from echelon.viewing.recorder import SEED, record, to_replay
from echelon.viewing.video import draw


class film_every:
    """Record an episode of the leader each `every` iterations and at the end, into `films/` of the run: an MP4 where
    the video extra is installed, else a page in 3D. The report shows the last one."""

    def __init__(self, every: int, policy: str = "leader", seed: int = SEED) -> None:
        self.every, self.policy, self.seed = every, policy, seed

    def on_checkpoint(self, folder: RunFolder, make_env: MakeEnv | None) -> None:
        """Film the newest checkpoint."""
        trained = Trained.load(folder, "newest", make_env)
        tapes = record(trained, self.policy, self.seed)
        replay = to_replay(folder.name, trained, self.seed, tapes)
        write_replay(replay, replay_path(folder))
        out = folder.path / "films" / f"iteration-{trained.iteration:06d}"
        if find_spec("imageio_ffmpeg") and find_spec("PIL"):
            draw(tapes, out.with_suffix(".mp4"), "mp4")
        else:
            write_page(replay, out.with_suffix(".html"))

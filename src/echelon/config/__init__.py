"""Settings of a run: what they are, how they are read, which values make sense."""

from echelon.config.checks import from_dict as from_dict
from echelon.config.checks import to_dict as to_dict
from echelon.config.schema import DiagnosticsConfig as DiagnosticsConfig
from echelon.config.schema import EnsembleConfig as EnsembleConfig
from echelon.config.schema import ModelConfig as ModelConfig
from echelon.config.schema import NoiseConfig as NoiseConfig
from echelon.config.schema import TaskConfig as TaskConfig
from echelon.config.schema import TaskInfo as TaskInfo
from echelon.config.schema import TrainConfig as TrainConfig
from echelon.config.schema import UpdateConfig as UpdateConfig

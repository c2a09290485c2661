"""Settings of a run: what they are, how they are read, which values make sense."""

from echelon.config.checks import from_dict as from_dict, to_dict as to_dict
from echelon.config.schema import (
    DiagnosticsConfig as DiagnosticsConfig,
    EnsembleConfig as EnsembleConfig,
    ModelConfig as ModelConfig,
    NoiseConfig as NoiseConfig,
    RandomiseConfig as RandomiseConfig,
    TaskConfig as TaskConfig,
    TaskInfo as TaskInfo,
    TrainConfig as TrainConfig,
    UpdateConfig as UpdateConfig,
)

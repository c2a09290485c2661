"""Settings of a run: what they are, how they are read, which values make sense."""

from echelon.config.schema import (
    DiagnosticsConfig,
    EnsembleConfig,
    ForeignSettings,
    ForeignTrainConfig,
    ModelConfig,
    TaskConfig,
    TrainConfig,
    UpdateConfig,
    from_dict,
    to_dict,
    with_settings,
    with_tuples,
)

__all__ = [
    "DiagnosticsConfig",
    "EnsembleConfig",
    "ForeignSettings",
    "ForeignTrainConfig",
    "ModelConfig",
    "TaskConfig",
    "TrainConfig",
    "UpdateConfig",
    "from_dict",
    "to_dict",
    "with_settings",
    "with_tuples",
]

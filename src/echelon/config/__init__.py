"""Settings of a run: what they are, how they are read, which values make sense."""

from echelon.config.schema import (
    ALGORITHMS,
    AdversaryConfig,
    DiagnosticsConfig,
    EnsembleConfig,
    ForeignSettings,
    ModelConfig,
    Mutable,
    PbtConfig,
    PullConfig,
    TaskConfig,
    TrainConfig,
    UpdateConfig,
    from_dict,
    to_dict,
)

__all__ = [
    "ALGORITHMS",
    "AdversaryConfig",
    "DiagnosticsConfig",
    "EnsembleConfig",
    "ForeignSettings",
    "ModelConfig",
    "Mutable",
    "PbtConfig",
    "PullConfig",
    "TaskConfig",
    "TrainConfig",
    "UpdateConfig",
    "from_dict",
    "to_dict",
]

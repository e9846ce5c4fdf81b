"""What the noisy policies for Stable-Baselines3 share: arguments, layers and observations."""

from __future__ import annotations

from typing import Any, Final

from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from torch import Tensor, nn

from noisynet.layers import Noise, make_noisy

PUBLIC_MODULE: Final = "noisynet.integrations.sb3"
"""The `__module__` of the policies. Saved models refer to it, so that loading one in a new process
imports the module that extends the algorithms."""


class NoisyPolicyMixin:
    """Adds the arguments `sigma0` and `noise` to a policy of the library."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Any,
        *,
        sigma0: float | None = None,
        noise: Noise = "factorised",
        **keywords: Any,
    ) -> None:
        self.noise_arguments: Any = {"sigma0": sigma0, "noise": noise}
        keywords.setdefault(
            "features_extractor_class", default_extractor(observation_space, keywords)
        )
        super().__init__(observation_space, action_space, lr_schedule, **keywords)  # type: ignore[call-arg]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self.noise_arguments}  # type: ignore[misc]


def default_extractor(observation_space: spaces.Space[Any], keywords: dict[str, Any]) -> Any:
    """Return the features extractor for a policy with these arguments."""
    if isinstance(observation_space, spaces.Dict):
        return CombinedExtractor
    normalised = not keywords.get("normalize_images", True)
    if is_image_space(observation_space, normalized_image=normalised):
        assert observation_space.shape is not None
        if sorted(observation_space.shape)[1] >= 36:  # NatureCNN needs at least 36 × 36 pixels
            return NatureCNN
    return FlattenExtractor


def make_layers_noisy(module: nn.Module, noise: Noise, sigma0: float | None) -> None:
    """Make every linear layer noisy, in place. A shared submodule stays shared."""
    converted: dict[nn.Module, nn.Module] = {}
    for name, child in module._modules.items():
        if child is None or not any(type(layer) is nn.Linear for layer in child.modules()):
            continue
        if child not in converted:
            converted[child] = make_noisy(child, noise=noise, sigma0=sigma0)[0]
        module._modules[name] = converted[child]


def batch_size(obs: Any) -> int:
    """Return the number of observations in a tensor or a dictionary of tensors."""
    return len(next(iter(obs.values())) if isinstance(obs, dict) else obs)


def noise_rows(obs: Any) -> int | None:
    """Return `rows` for `resample_noise`: one sample per observation if there are several."""
    count = batch_size(obs)
    return count if count > 1 else None


def select_rows(obs: Any, rows: Tensor) -> Any:
    """Return some of the observations of a batch."""
    return {k: value[rows] for k, value in obs.items()} if isinstance(obs, dict) else obs[rows]

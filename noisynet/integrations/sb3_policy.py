"""What the noisy policies for Stable-Baselines3 share: arguments, layers, resampling, batches."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final, Literal

from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from torch import Tensor, nn

from noisynet.layers import Noise, make_noisy, noise_off, resample_noise

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


class ResamplingMixin:
    """Makes a network of the library noisy, with fresh noise in every forward pass.

    Each pass of an update uses one sample for the whole batch (ξ and ξ′ of Eq. 14). When acting,
    each of several environments has its own sample.
    """

    _sampling: Literal["shared", "per_row", "off"] = "shared"

    def __init__(
        self,
        *arguments: Any,
        noise: Noise = "factorised",
        sigma0: float | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        network: Any = self
        make_layers_noisy(network, noise, sigma0)

    def forward(self, obs: Any, *rest: Any) -> Any:
        """Compute the library's output with fresh noise."""
        network: Any = self
        if self._sampling != "off":
            resample_noise(network, rows=noise_rows(obs) if self._sampling == "per_row" else None)
        return super().forward(obs, *rest)  # type: ignore[misc]

    def _predict(self, observation: Any, deterministic: bool = True) -> Tensor:
        network: Any = self
        self._sampling = "off" if deterministic else "per_row"
        try:
            with noise_off(network) if deterministic else nullcontext():
                actions: Tensor = super()._predict(observation, deterministic)  # type: ignore[misc]
        finally:
            self._sampling = "shared"
        return actions


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


def make_layers_noisy(
    module: nn.Module, noise: Noise, sigma0: float | None, *, keep_weights: bool = False
) -> None:
    """Make every linear layer noisy, in place. A shared submodule stays shared.

    With `keep_weights`, μ is the library's initial weights instead of the paper's.
    """
    options: Any = {"noise": noise, "sigma0": sigma0, "keep_weights": keep_weights}
    converted: dict[nn.Module, nn.Module] = {}
    for name, child in module._modules.items():
        if child is None or not any(type(layer) is nn.Linear for layer in child.modules()):
            continue
        if child not in converted:
            converted[child] = make_noisy(child, **options)[0]
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

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import (
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
)

from noisynet.integrations.sb3_policy import (
    batch_size,
    default_extractor,
    make_layers_noisy,
    noise_rows,
    select_rows,
)
from noisynet.layers import noisy_layers

from .sb3_models import Dictionaries, Images, SmallImages, make


@pytest.mark.parametrize(
    ("space", "keywords", "expected"),
    [
        (Images.observation_space, {}, NatureCNN),
        (SmallImages.observation_space, {}, FlattenExtractor),
        (Dictionaries.observation_space, {}, CombinedExtractor),
        (spaces.Box(-1, 1, (4,)), {}, FlattenExtractor),
        (spaces.Box(0, 1, (1, 36, 36)), {}, FlattenExtractor),
        (spaces.Box(0, 1, (1, 36, 36)), {"normalize_images": False}, NatureCNN),
    ],
)
def test_the_features_extractor_suits_the_observations(
    space: Any, keywords: dict[str, Any], expected: Any
) -> None:
    assert default_extractor(space, keywords) is expected


def test_every_linear_layer_becomes_noisy_and_a_shared_one_stays_shared() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
            self.again = self.first
            self.last = nn.Linear(3, 2)
            self.activation = nn.ReLU()

    network = Network()
    make_layers_noisy(network, "independent", 0.3)
    assert list(noisy_layers(network)) == ["first.0", "last"]
    assert {(layer.noise, layer.sigma0) for layer in noisy_layers(network).values()} == {
        ("independent", 0.3)
    }
    assert network.again is network.first


@pytest.mark.parametrize("keep", [True, False])
def test_the_weights_of_the_library_are_kept_as_means_if_asked(keep: bool) -> None:
    layer = nn.Linear(4, 3)
    network, weight = nn.Sequential(layer), layer.weight.detach().clone()
    make_layers_noisy(network, "factorised", None, keep_weights=keep)
    assert torch.equal(noisy_layers(network)["0"].weight_mu, weight) is keep


def test_arguments_are_saved_with_the_policy() -> None:
    asked = {"sigma0": 0.3, "noise": "independent", "net_arch": [16]}
    policy = make(DQN, "NoisyMlpPolicy", policy_kwargs=asked).policy
    saved = policy._get_constructor_parameters()
    assert {name: saved[name] for name in asked} == asked
    layers = noisy_layers(policy.q_net)
    assert {(layer.noise, layer.sigma0) for layer in layers.values()} == {("independent", 0.3)}
    assert [layer.out_features for layer in layers.values()] == [16, 2]
    assert not any(type(layer) is nn.Linear for layer in policy.modules())


def test_batches_of_arrays_and_dictionaries_are_counted_and_selected() -> None:
    array, mapping = torch.arange(6).reshape(3, 2), {"x": torch.arange(3), "y": torch.arange(3)}
    assert batch_size(array) == batch_size(mapping) == 3
    assert noise_rows(array) == 3
    assert noise_rows(array[:1]) is None
    rows = torch.tensor([2, 0])
    assert select_rows(array, rows).tolist() == [[4, 5], [0, 1]]
    assert {name: x.tolist() for name, x in select_rows(mapping, rows).items()} == {
        "x": [2, 0],
        "y": [2, 0],
    }

from __future__ import annotations

import pytest
import torch

from noisynet.layers import noisy_layers

pytest.importorskip("sb3_contrib", reason="pip install 'noisynet[sb3]'")

from sb3_contrib import QRDQN

from noisynet.integrations.sb3_qrdqn import NoisyQRDQNPolicy, NoisyQuantileNetwork

from .sb3_models import make


def test_both_networks_are_noisy_with_separate_samples() -> None:
    arguments = {"sigma0": 0.2, "noise": "independent", "n_quantiles": 7, "net_arch": [16]}
    policy = make(QRDQN, NoisyQRDQNPolicy, policy_kwargs=arguments).policy
    online, target = policy.quantile_net, policy.quantile_net_target
    assert isinstance(online, NoisyQuantileNetwork)
    layers = noisy_layers(online)
    assert {(layer.noise, layer.sigma0) for layer in layers.values()} == {("independent", 0.2)}
    x = torch.ones(5, 4)
    with torch.no_grad():
        outputs = online(x)
        assert outputs.shape == (5, 7, 2)
        torch.testing.assert_close(outputs, outputs[:1].expand_as(outputs))  # one per batch
        assert not torch.allclose(outputs, target(x))
        assert not torch.allclose(outputs, online(x))

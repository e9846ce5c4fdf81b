"""Our layer and our Rainbow."""

from __future__ import annotations

from audit_entry import audit_layer, hand_over
from turns import ROOT, commit

from noisynet import NoisyLinear
from noisynet.agents import audit_agent, make_agent
from noisynet.config import build_config
from noisynet.evaluation import make_configured_environment

config = build_config("rainbow", "gym/CartPole-v1")
with make_configured_environment(config, 1) as environment:
    agent = audit_agent(make_agent(config, environment.spec))
hand_over(
    commit(ROOT),
    layer=("`NoisyLinear`", "resampled by `resample_noise`", audit_layer(NoisyLinear)),
    agent=(
        "`rainbow`",
        "acts and learns by the code that trains; noise is due before every action",
        agent,
    ),
)

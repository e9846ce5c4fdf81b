"""Tests of the agents on synthetic data."""

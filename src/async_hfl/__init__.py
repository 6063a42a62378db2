"""Asynchronous hierarchical federated learning."""

"""Identities of nodes: names, certificates, and the check of every call."""

"""Packets between processes over gRPC: sessions and resumable transfers. No other package makes gRPC calls."""

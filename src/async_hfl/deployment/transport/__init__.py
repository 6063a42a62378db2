"""Packets between processes over gRPC: sessions, resumable transfers, both sides. The only place that knows gRPC."""

"""The process of one engine: `python -m engine_peers.worker NAME [JSON]`."""

from __future__ import annotations

import importlib
import json
import sys

from engine_peers.protocol import Channel

MODULES = {
    "prepare": "prepare",
    "ours": "ours",
    "torch-learner": "torch_learner",
    "torch-loop": "torch_loop",
    "torch-tuned": "torch_tuned",
    "pfl": "pfl_peer",
    "flower": "flower_peer",
}
"""Each has `run(channel, options)`."""


def main() -> None:
    name, options = sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    channel = Channel()
    try:
        module = importlib.import_module(f"engine_peers.{MODULES[name]}")
    except ImportError as problem:
        channel.send(ready=False, reason=str(problem))
        return
    module.run(channel, options)


if __name__ == "__main__":
    main()

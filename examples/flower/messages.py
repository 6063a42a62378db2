"""The ClientApp of `quickstart` as a task. Run it (needs `pip install flwr torch`):

async-hfl run --task examples/flower/messages.py:task --set task.devices=20
"""

from quickstart.client_app import app
from quickstart.task import Net

from async_hfl.adapters import flower

task = flower(
    app,
    model=Net,  # what the ServerApp makes
    metric="eval_acc",
    direction="at_least",
    target=0.9,
    config={"lr": 0.05},  # what the strategy sends
    run_config={"batch-size": 16, "local-epochs": 1},  # what pyproject.toml says
)

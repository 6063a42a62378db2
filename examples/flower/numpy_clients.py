"""The NumPyClient of `quickstart` as a task. Run it (needs `pip install flwr torch`):

async-hfl run --task examples/flower/numpy_clients.py:task --set task.devices=20
"""

from quickstart.numpy_client import client_fn
from quickstart.task import Net

from async_hfl.adapters import flower

task = flower(client_fn, model=Net, target=0.9, run_config={"batch-size": 16, "local-epochs": 1})

"""Client code of other frameworks as tasks, unedited: `flower(client_fn)`, `torch_function(train)`; and data
of other libraries: `columns(dataset)`.

Importing this package imports none of them. A file beside the user's own names the client and the target:

    from async_hfl.adapters import flower
    from client_app import Net, client_fn

    task = flower(client_fn, model=Net, target=0.9)
"""

from async_hfl.adapters.client_task import ClientTask
from async_hfl.adapters.columns import columns
from async_hfl.adapters.flower import flower
from async_hfl.adapters.torch_function import torch_function

__all__ = ["ClientTask", "columns", "flower", "torch_function"]

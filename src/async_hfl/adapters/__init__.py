"""Client code of other frameworks as tasks, unedited: `flower(client_fn)`.

Importing this package imports none of them. A file beside the user's own names the client and the target:

    from async_hfl.adapters import flower
    from client_app import Net, client_fn

    task = flower(client_fn, model=Net, target=0.9)
"""

from async_hfl.adapters.client_task import ClientTask
from async_hfl.adapters.flower import flower

__all__ = ["ClientTask", "flower"]

"""The tables and figures of the Async-HFL paper (Yu et al., IoTDI 2023): each a plan, and how it is drawn."""

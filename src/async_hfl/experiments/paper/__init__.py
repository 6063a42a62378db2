"""The tables and figures of the Async-HFL paper (Yu et al., IoTDI 2023): a plan of runs and a report for each."""

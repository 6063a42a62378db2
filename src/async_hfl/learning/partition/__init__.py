"""Partitions: the training set divided over the devices, usually non-iid.

There is one kind of partition per file; `registry` lists them by name, with the settings that each one reads. Every
partition is a function `(dataset, devices, seed, *, ...) -> rows of each device`: ascending row numbers, at least one
per device, the same for the same seed. Names and arguments are those of Flower Datasets.
"""

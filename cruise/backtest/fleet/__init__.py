"""Many replays, as tasks that any process can do: here, in processes of this machine, or on a Dask cluster."""

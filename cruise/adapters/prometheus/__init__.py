"""Usage from a Prometheus server, or from Thanos, Mimir or VictoriaMetrics, which answer the same API.

Counters come raw, one sample a minute, each asked for once; rates are computed here. `source` implements the port,
`client` speaks HTTP, `matrix` decodes answers, `counters` turns them into usage, `partitions` bounds the queries.
"""

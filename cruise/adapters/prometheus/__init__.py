"""Usage from a Prometheus server, or from Thanos, Mimir or VictoriaMetrics, which have the same API.

Counters are read raw, one sample a minute, each once; rates are computed here. `source` implements the port, `client`
is HTTP, `queries` builds queries and decodes answers, `counters` computes usage.
"""

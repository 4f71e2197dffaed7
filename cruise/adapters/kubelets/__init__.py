"""Usage from the kubelets, for clusters without Prometheus.

`client` reads one kubelet, `readings` decodes its answer and keeps the last minutes of all kubelets, `source`
implements the port with the rules for Prometheus' samples.
"""

"""Usage straight from the kubelets, for clusters without Prometheus.

`client` asks one kubelet, `exposition` reads its answer, `readings` keeps the last minutes of all of them, `source`
implements the port with the rules by which Prometheus' samples become usage.
"""

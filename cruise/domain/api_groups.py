"""API groups: which are Kubernetes' own, and which may have kinds of the same names."""


def foreign_group(api_version: str) -> str:
    """Return the group of an API version, empty where it is Kubernetes' own or not stated."""
    group = api_version.rpartition("/")[0]
    return group if "." in group and not group.endswith(".k8s.io") else ""

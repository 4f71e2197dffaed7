"""What each setting is for, by topic."""

from collections.abc import Mapping

WORDS: Mapping[str, Mapping[str, str]] = {
    "What cruise may do": {
        "mode": (
            "How far cruise goes: `observe` writes nothing, `initial` sizes new pods, `resize` running ones as well, "
            "`full` also evicts and taints. Annotations may lower it, never raise it."
        ),
        "excluded_namespaces": (
            "Namespaces whose pods are left alone, by name or by a pattern such as `openshift-*`. They are added to "
            "the default and to cruise's own namespace; `!kube-system` takes out one of the default."
        ),
        "rules": "`seeds` decides by the rules of the first design, to compare with.",
        "max_evictions_per_node": "Evictions on one node in one pass, and in one packing plan.",
        "max_evictions_per_workload": "Evictions of one workload in one pass, and in one packing plan.",
        "max_evictions_per_hour": "Evictions in the whole cluster in any hour; counted across restarts.",
        "oom_reaction": (
            "What follows an out-of-memory kill: resize in place and evict where that cannot be, evict at once, or "
            "only remember it."
        ),
        "oom_cooldown": "How long a pod is left alone after cruise answered a kill.",
        "allow_extended_resources": "Size pods with GPUs and other extended resources as well.",
        "publish_vpas": (
            "From mode `resize` on: show sizes as VerticalPodAutoscalers of cruise's own, with this update mode; needs "
            "`rbac/publish.yaml`. With `initial`, VPA's admission controller would apply them where it runs."
        ),
        "notify_url": "Where notifications are posted, by https (http on this machine alone); it may hold a secret.",
        "notify_url_file": "A file with that address.",
        "notify_secret_file": "A file with the secret that signs notifications, of 16 characters or more.",
        "notify_format": "Whom notifications are for: what reads cruise's own document, Slack or Teams.",
        "notify_topics": "What to notify of.",
        "notify_interval": "The least time between two notifications; what happens meanwhile is reported together.",
        "packing_enabled": "Carry out plans for pods that stay pending; `false` only shows them.",
        "packing_time_limit": (
            "How long to search for such a plan; the best one found by then is taken, with its distance from the "
            "proved bound."
        ),
        "consolidation": (
            "With how few nodes the cluster would do: `advise` says so and changes nothing, `act` also moves pods off "
            "nodes in mode `full`, `off` does not look."
        ),
        "consolidation_interval": "How often that is looked at; while pods are moved, at each node pass.",
        "consolidation_cooldown": "No pod younger than this is moved for fewer nodes: none moves twice in that time.",
        "node_autoscaler": "What adds and removes nodes; stated where cruise sees it wrongly.",
        "overload_taint_threshold": "Load average by core above which a node is tainted, at two samples in a row.",
        "overload_untaint_threshold": "Load average by core below which the taint goes, at two samples in a row.",
    },
    "When, and by what": {
        "pass_interval": "How often nodes are sized.",
        "node_load_interval": "How often the load of nodes is looked at.",
        "max_age": "Older statistics change nothing.",
        "max_decision_age": "A decision whose snapshot is older is not written; the next pass decides anew.",
        "look_ahead": (
            "A pod's peak is the largest of this hour of the day and of the hour that begins within this time, over "
            "seven days."
        ),
        "new_workload_age": (
            "How long a new workload is left alone, and how long pods of a changed template get no less than it states."
        ),
        "memory_limits": (
            "Which memory limits are changed: `existing`, those that the pod states; `always`, a container without one "
            "gets one as well; `never`, none, unless the request has to pass it. See "
            "[memory limits](../operating.md#memory-limits)."
        ),
        "memory_limit_history": "No memory limit is lowered on a shorter history.",
        "memory_limit_ceiling": "The most that a memory limit rises to, as a multiple of what the pod template states.",
        "deferred_resize_timeout": "How long a resize that a kubelet puts off may wait before it is taken back.",
        "admission_size": (
            "What new pods request: their workload's peaks, or what a node pass would give them. Unset: `planned` "
            "where nodes come and go by themselves, else `peak`."
        ),
        "headroom": (
            "The model of the headroom that the pods of a node share: [models](../backtest.md#headroom-models)."
        ),
        "cpu_risk": (
            "With model `risk`: the share of a node's intervals in which demand for CPU may pass what its pods request."
        ),
        "memory_risk": "The same for memory, which kills where the node is full.",
        "cpu_tolerance": "How far above what a node's pods need together of CPU their requests may stay, as a share of it.",
        "memory_tolerance": "The same for memory.",
        "over_requested_stabilization": "How long they have to be above it before the most idle pods are cut.",
        "under_requested_stabilization": "How long a container's base has to be above its request before that is a reason by itself.",
        "resizes_per_container_day": (
            "The budget of writes: how many resizes a container gets a day, on average over the cluster. While the "
            "cluster is over it, pods that had more are not shrunk."
        ),
        "shrink_cooldown": (
            "How long a request that was written is not shrunk; it grows whenever that is needed. Unset: a day divided "
            "by twice `resizes_per_container_day`."
        ),
    },
    "Kubernetes": {
        "kubeconfig": "Unset: the account of the pod, else `~/.kube/config`.",
        "kube_context": "Which context of the kubeconfig; unset: its current one.",
        "namespace": "Where cruise runs, and its Lease is; unset: where its pod runs.",
        "kube_requests_per_second": "The most requests to the API server, on average.",
        "kube_burst": "The most requests at once.",
        "kube_timeout": "How long one request to the API server may take.",
        "lease_duration": (
            "How long the next leader waits for one that ended without a word; a leader stops writing after two thirds "
            "of it without a renewal."
        ),
        "shutdown_grace_period": "How long writes under way may take to end when the process is stopped.",
    },
    "Where use is read from": {
        "usage_source": (
            "`auto` is Prometheus where `prometheus_url` is set, else the kubelets where no Prometheus is found and "
            "the right to read them is granted: [without Prometheus](../operating.md#without-prometheus)."
        ),
        "kubelet_access": (
            "`direct` asks kubelets at their nodes' InternalIP with the right to `nodes/metrics`. `node-proxy` goes "
            "through the API server, with the right to `nodes/proxy`, which without `deploy/policies.yaml` is nearly "
            "root on every node."
        ),
        "kubelet_endpoint": (
            "`resource` is a small part of what `cadvisor` tells, without pressure: for thousands of nodes."
        ),
        "kubelet_ca_file": "The CA of kubelets' certificates; unset: the cluster's own.",
        "kubelet_insecure_tls": (
            "Do not verify kubelets. Whoever answers at a node's address then gets cruise's token, and is believed."
        ),
        "kubelet_timeout": "How long one kubelet may take to answer in full.",
        "kubelet_concurrency": "Kubelets asked at a time.",
        "kubelet_max_bytes": "The most that one answer may have.",
        "kubelet_cross_check_nodes": (
            "Nodes whose kubelets are asked at each pass, other ones each time, to compare with what Prometheus shows; "
            "only where reading them is granted. `0`: none."
        ),
    },
    "Prometheus": {
        "prometheus_url": (
            "Where use is read from. `serve` needs it, or reads the kubelets; `scan`, `check` and `explain` find it "
            "by the labels of its Service."
        ),
        "prometheus_namespaces": (
            "Where Prometheus is looked for besides cruise's own namespace: whoever may create Services there says "
            "what the cluster uses. Naming any replaces all."
        ),
        "prometheus_token_file": (
            "A file with a bearer token, read again when it changes; sent to `prometheus_url` alone."
        ),
        "prometheus_user": "The user for basic authentication.",
        "prometheus_password": "Its password; better in a file.",
        "prometheus_password_file": "A file with its password.",
        "prometheus_headers": "Headers of every request, such as a tenant's.",
        "prometheus_ca_file": "The authority that vouches for the server.",
        "prometheus_insecure_tls": "Believe any certificate.",
        "prometheus_matchers": "Added to every selector, where one server has several clusters.",
        "prometheus_cadvisor_matchers": (
            "Select the series of containers; empty: those of the exporters that report most of the running pods."
        ),
        "prometheus_node_load_matchers": (
            "Select the series of node exporters; empty: one exporter a node, of the jobs that report most nodes."
        ),
        "prometheus_kube_state_matchers": "Select the series of kube-state-metrics, for backtests.",
        "prometheus_namespace_label": "The label that names a container's namespace.",
        "prometheus_pod_label": "The label that names its pod.",
        "prometheus_container_label": "The label that names the container.",
        "prometheus_id_label": "The label that tells a container from the same one restarted.",
        "prometheus_node_label": "The label that names its node.",
        "prometheus_node_load_label": "The label that names the node on the load average.",
        "prometheus_cpu_metric": "The counter of CPU seconds.",
        "prometheus_cpu_pressure_metric": "The counter of seconds in which a container waited for CPU.",
        "prometheus_memory_metric": "The working set.",
        "prometheus_node_load_metric": "The load average.",
        "prometheus_step": "The distance between samples.",
        "prometheus_scrape_delay": "How long after the fact samples are read. Unset: measured, from 30 s to 5.5 minutes.",
        "prometheus_timeout": "How long one query may take.",
        "prometheus_concurrency": "How many queries run at a time.",
        "prometheus_max_series_per_query": "The most series that one query asks for.",
        "prometheus_max_samples_per_query": "The most samples that one query asks for; below the server's own bound.",
        "prometheus_allow_partial_response": "Take answers that the server itself calls incomplete.",
    },
    "Database": {
        "database_url": (
            "The Postgres, 15 to 18, that serve and webhook share. Unset: an embedded one, which mode `observe` can do "
            "with."
        ),
        "database_statement_timeout": "How long one statement may take, its wait for locks included.",
        "data_dir": (
            "Where the embedded Postgres keeps its data. Unset: `/var/lib/cruise` for root, else "
            "`~/.local/state/cruise`."
        ),
    },
    "API and dashboard": {
        "http_address": (
            "Where `serve` listens, for dashboard, API, health and metrics. One that other machines reach needs "
            "authentication."
        ),
        "api_authentication": (
            "`token`: one token of its own. `kubernetes`: callers show a token of the cluster, and roles say what they "
            "may."
        ),
        "api_token_file": (
            "A file with a token of at least 32 characters: on the loopback for what is written, elsewhere for "
            "everything."
        ),
        "api_concurrent_requests_per_caller": "How many requests of one caller are answered at a time.",
        "oidc_issuer_url": (
            "The identity provider that people sign in by in the dashboard, as its discovery document names itself; "
            "with `api_authentication: kubernetes`."
        ),
        "oidc_client_id": "The client that the provider knows cruise as; ID tokens have to be for it.",
        "oidc_client_secret_file": "A file with the client's secret. Unset: a public client, by PKCE alone.",
        "oidc_redirect_url": "Where the provider sends browsers back to: the dashboard's address and `signed-in`.",
        "oidc_username_claim": "The claim with the user's name, as kube-apiserver's flag of that name.",
        "oidc_username_prefix": (
            "What stands before it. Unset: the issuer and `#`, and nothing before an `email`, as kube-apiserver has "
            "it; `-` for nothing."
        ),
        "oidc_groups_claim": "The claim with the user's groups.",
        "oidc_groups_prefix": "What stands before each group.",
        "oidc_scopes": "What is asked of the provider, separated by blanks.",
        "oidc_ca_file": "The authority of the provider's certificate, where the system does not know it.",
        "metrics_allow_anonymous": "Show `/metrics` without a token.",
        "http_tls": "`auto` serves with TLS where other machines reach `http_address`.",
        "http_tls_dir": "Your own `tls.crt` and `tls.key`, read again when they change.",
        "http_allowed_hosts": "Further names by which `serve` is reached, such as an Ingress'.",
    },
    "Webhook": {
        "webhook_address": "Where the webhook listens.",
        "tls_dir": "Its `tls.crt`, `tls.key` and `ca.crt`. Unset: made and renewed by itself.",
        "webhook_service": "The Service by whose name the API server calls it.",
        "webhook_configuration": "The MutatingWebhookConfiguration that its authority is written to.",
        "webhook_client_ca_file": (
            "The authority of the API server's client certificate. Unset: anyone's reviews are answered."
        ),
        "webhook_client_names": "The common names that may ask. Empty: all that the authority vouches for.",
        "webhook_max_review_bytes": "Larger reviews are answered unchanged.",
        "webhook_max_json_elements": "Reviews with more elements in lists and objects are answered unchanged.",
        "webhook_max_containers": "Pods with more containers are left as they are.",
        "webhook_max_affinity_terms": "Pods with more affinity terms, expressions and values are left as they are.",
        "webhook_max_annotations": "Pods with more annotations and labels are left as they are.",
        "webhook_max_tolerations": "Pods with more tolerations are left as they are.",
        "webhook_time_budget": (
            "What is not decided so long after it came is answered unchanged; below the webhook's `timeoutSeconds`."
        ),
    },
    "Listeners, of both programs": {
        "http_max_connections": "Connections at a time, with handshakes under way.",
        "http_max_header_bytes": "The largest head of a request.",
        "http_max_headers": "The most headers of a request.",
        "http_max_body_bytes": "All unfinished bodies together.",
        "http_handshake_timeout": "How long a TLS handshake may take.",
        "http_header_timeout": "How long the head of a request may take.",
        "http_body_timeout": "How long a body may take.",
        "http_idle_timeout": "How long an idle connection is kept; above the API server's 90 s.",
    },
    "Logs and prices": {
        "log_level": "The least that is logged.",
        "log_format": "`auto`: text on a terminal, JSON elsewhere.",
        "price_core_hour": (
            "What a core-hour costs in `cruise backtest`; set with `price_gibibyte_hour` it adds the cost of nodes. "
            "Slack is counted at 0.0145 where it is not set."
        ),
        "price_gibibyte_hour": "The same for memory, 0.00724 where it is not set.",
        "price_starved_minute": (
            "What a minute costs in which a container gets less CPU than it requests, in `cruise backtest`."
        ),
        "price_oom_kill": "What a kill for lack of memory costs, in `cruise backtest`.",
        "price_eviction": "What an eviction costs that the policy wants, in `cruise backtest`.",
        "price_resize": "What a write into a running pod costs, in `cruise backtest`.",
    },
}

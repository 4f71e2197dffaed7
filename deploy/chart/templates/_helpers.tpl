{{/* What the label app.kubernetes.io/name says. */}}
{{- define "cruise.label" -}}
{{ .Values.nameOverride | default "cruise" }}
{{- end }}

{{/* An object's name: (list $ "serve"), "" for what all of them begin with. */}}
{{- define "cruise.name" -}}
{{- $suffix := index . 1 -}}
{{ (index . 0).Values.fullnameOverride | default "cruise" }}{{ with $suffix }}-{{ . }}{{ end }}
{{- end }}

{{/* A service account's name: (list $ "webhook"). */}}
{{- define "cruise.account" -}}
{{ (index (index . 0).Values.serviceAccount (index . 1)).name | default (include "cruise.name" .) }}
{{- end }}

{{/* In CEL: whether a request comes from an account of cruise, also one that a later release adds. */}}
{{- define "cruise.isOwnAccount" -}}
{{- $accounts := printf "system:serviceaccount:%s:" .Release.Namespace -}}
{{- $named := list -}}
{{- range $component := list "serve" "webhook" "certificates" -}}
{{- with (index $.Values.serviceAccount $component).name -}}{{- $named = append $named (printf "'%s%s'" $accounts .) -}}{{- end -}}
{{- end -}}
{{- $prefixed := printf "request.userInfo.username.startsWith('%s%s-')" $accounts (include "cruise.name" (list . "")) -}}
{{- if $named -}}
({{ $prefixed }} || request.userInfo.username in [{{ $named | join ", " }}])
{{- else -}}
{{ $prefixed }}
{{- end -}}
{{- end }}

{{/* Labels of an object: (dict "root" $ "component" "serve"), the component being optional. */}}
{{- define "cruise.labels" -}}
app.kubernetes.io/name: {{ include "cruise.label" .root }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What finds a component's pods: never what users add. */}}
{{- define "cruise.selector" -}}
app.kubernetes.io/name: {{ include "cruise.label" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Name, namespace, labels and annotations: (dict "root" $ "name" "cruise" "component" … "clusterWide" true "annotations" …).
With "account" true it is the ServiceAccount of the component. */}}
{{- define "cruise.metadata" -}}
{{- $account := dict -}}
{{- if .account -}}
{{- $account = mergeOverwrite (dict) .root.Values.serviceAccount.annotations (index .root.Values.serviceAccount .component).annotations -}}
name: {{ include "cruise.account" (list .root .component) }}
{{- else -}}
name: {{ include "cruise.name" (list .root (.name | trimPrefix "cruise" | trimPrefix "-")) }}
{{- end }}
{{- if not .clusterWide }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "cruise.labels" . | nindent 2 }}
{{- with mergeOverwrite (dict) .root.Values.commonAnnotations $account (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "true" from a mode on: (list $ "resize"). */}}
{{- define "cruise.from" -}}
{{- $rungs := dict "observe" 0 "initial" 1 "resize" 2 "full" 3 -}}
{{- if ge (index $rungs (index . 0).Values.mode) (index $rungs (index . 1)) -}}true{{- end -}}
{{- end }}

{{- define "cruise.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "cruise.prometheusUrl" -}}
{{- with .Values.prometheus -}}
{{ .url | default (printf "http://%s.%s.svc:%d" .service .namespace (int .port)) }}
{{- end -}}
{{- end }}

{{/* "true" where the chart has a Postgres. One that is there stays when the mode goes down: its rows are what a revert needs. */}}
{{- define "cruise.ownPostgres" -}}
{{- $named := or .Values.database.existingSecret .Values.database.url -}}
{{- if kindIs "bool" .Values.postgres.enabled -}}
{{- if .Values.postgres.enabled -}}
{{- if $named -}}{{ fail "postgres.enabled and database.existingSecret or database.url are both set; keep one database" }}{{- end -}}
true
{{- else if and (not $named) (ne .Values.mode "observe") -}}
{{ fail (printf "mode %s needs a database that serve and webhook share; set database.existingSecret, database.url, or postgres.enabled=true" .Values.mode) }}
{{- end -}}
{{- else if not $named -}}
{{- if or (ne .Values.mode "observe") (lookup "apps/v1" "StatefulSet" .Release.Namespace (include "cruise.name" (list . "postgres"))) -}}true{{- end -}}
{{- end -}}
{{- end }}

{{- define "cruise.databaseSecret" -}}
{{- if .Values.database.existingSecret -}}
{{ .Values.database.existingSecret }}
{{- else if include "cruise.ownPostgres" . -}}
{{ include "cruise.postgresSecret" . }}
{{- else -}}
{{ include "cruise.name" (list . "database") }}
{{- end -}}
{{- end }}

{{/* The Secret with the passwords of the chart's own Postgres. */}}
{{- define "cruise.postgresSecret" -}}
{{ .Values.postgres.existingSecret | default (include "cruise.name" (list . "database")) }}
{{- end }}

{{/* Host names of the dashboard, as JSON: those of the settings, of Ingress and HTTPRoute, and of a renamed Service. */}}
{{- define "cruise.allowedHosts" -}}
{{- $hosts := .Values.settings.http_allowed_hosts | default list -}}
{{- if kindIs "string" $hosts -}}{{- $hosts = splitList "," $hosts -}}{{- end -}}
{{- if .Values.ingress.enabled -}}{{- $hosts = concat $hosts .Values.ingress.hosts -}}{{- end -}}
{{- if .Values.httpRoute.enabled -}}{{- $hosts = concat $hosts .Values.httpRoute.hostnames -}}{{- end -}}
{{- $service := include "cruise.name" (list . "") -}}
{{- if ne $service "cruise" -}}{{- $hosts = concat $hosts (list (printf "%s.%s.svc" $service .Release.Namespace)) -}}{{- end -}}
{{ $hosts | uniq | toJson }}
{{- end }}

{{- define "cruise.hasDatabase" -}}
{{- if or .Values.database.existingSecret .Values.database.url (include "cruise.ownPostgres" .) -}}true{{- end -}}
{{- end }}

{{- define "cruise.excludedNamespaces" -}}
{{ concat (list "kube-system" .Release.Namespace) .Values.excludedNamespaces | uniq | toJson }}
{{- end }}

{{/* Labels as a selector in text. */}}
{{- define "cruise.namespaceSelector" -}}
{{- $parts := list -}}
{{- range $key, $value := . -}}{{- $parts = append $parts (printf "%s=%s" $key (toString $value)) -}}{{- end -}}
{{ $parts | join "," }}
{{- end }}

{{/* Those of them that are names: label selectors know no patterns. */}}
{{- define "cruise.excludedNames" -}}
{{- $names := list -}}
{{- range (include "cruise.excludedNamespaces" . | fromJsonArray) -}}
{{- if not (regexMatch "[*?\\[]" .) -}}{{- $names = append $names . -}}{{- end -}}
{{- end -}}
{{ $names | toJson }}
{{- end }}

{{/* The patterns among excludedNamespaces as one regular expression of CEL; empty where there is none. */}}
{{- define "cruise.excludedPatterns" -}}
{{- $found := list -}}
{{- range .Values.excludedNamespaces -}}
{{- if regexMatch "[*?\\[]" . -}}
{{- $found = append $found (. | replace "[!" "[^" | replace "*" ".*" | replace "?" ".") -}}
{{- end -}}
{{- end -}}
{{- if $found -}}^({{ $found | join "|" }})${{- end -}}
{{- end }}

{{/* Requests and limits by `size`: (list $ "serve"). docs/performance.md has what was measured. */}}
{{- define "cruise.resources" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with (index $root.Values $component).resources -}}
{{ toYaml . }}
{{- else -}}
{{ $root.Files.Get "files/sizes.yaml" | fromYaml | dig $component $root.Values.size dict | toYaml }}
{{- end -}}
{{- end }}

{{/* Metadata of a pod template: (dict "root" $ "component" "serve"). */}}
{{- define "cruise.podMetadata" -}}
{{- $values := index .root.Values .component | default dict -}}
labels:
  {{- include "cruise.labels" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := mergeOverwrite (dict) .root.Values.commonAnnotations ($values.podAnnotations | default dict) (.annotations | default dict) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Changed settings are read by new pods; with kubectl somebody restarts them. */}}
{{- define "cruise.settingsChecksum" -}}
{{- if not .Values.forKubectl }}
checksum/settings: {{ include (print $.Template.BasePath "/settings.yaml") . | sha256sum | trunc 16 }}
{{- end }}
{{- end }}

{{/* Where pods go: (list $ "serve"). */}}
{{- define "cruise.placement" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
{{- with (index . 0).Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $values $key }}
{{ $key }}:
  {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A role's binding to an account: (dict "root" $ "name" "cruise-full" "account" "serve" "clusterWide" true). */}}
{{- define "cruise.binding" }}
{{- $kind := .clusterWide | default false | ternary "ClusterRole" "Role" }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- include "cruise.metadata" (omit . "account") | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ include "cruise.name" (list .root (.name | trimPrefix "cruise-")) }}
subjects:
  - kind: ServiceAccount
    name: {{ include "cruise.account" (list .root .account) }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* Prometheus' port, and its namespace where the URL names a Service: port: 9090, namespace: monitoring. */}}
{{- define "cruise.prometheusPeer" -}}
{{- $url := urlParse (include "cruise.prometheusUrl" .) -}}
{{- $host := splitList "." (regexReplaceAll ":[0-9]+$" $url.host "") -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) -}}
port: {{ $port | default (eq $url.scheme "https" | ternary 443 80) }}
{{- if and (ge (len $host) 3) (eq (index $host 2) "svc") }}
namespace: {{ index $host 1 }}
{{- else if eq (len $host) 2 }}
namespace: {{ index $host 1 }}
{{- else if eq (len $host) 1 }}
namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}

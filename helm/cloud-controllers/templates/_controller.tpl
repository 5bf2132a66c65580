{{/*
The Deployment of a controller, with its ServiceAccount, RBAC objects and Leases. Controllers differ in their flags and rules.
Takes {root, component, values, args, rules, localRules}: args, rules and localRules are lists, and localRules is optional.
*/}}
{{- define "cloud-controllers.controller" -}}
{{- $root := .root -}}
{{- $labels := include "cloud-controllers.labels" . -}}
{{- $selector := include "cloud-controllers.selectorLabels" . -}}
{{- include "cloud-controllers.rbac" . }}
{{- if gt (int .values.replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "cloud-controllers.name" (dict "root" $root "name" .component) }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready serves no client and must not block a drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "cloud-controllers.name" (dict "root" $root "name" .component) }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  # Each replica works on the shards whose Leases it holds. maxSurge is 0 because two replicas on the host network do not fit on one node.
  replicas: {{ int .values.replicas }}
  strategy:
    rollingUpdate:
      maxSurge: 0
      maxUnavailable: 1
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      {{- include "cloud-controllers.podMetadata" . | nindent 6 }}
    spec:
      {{- include "cloud-controllers.controllerPod" . | nindent 6 }}
{{- end }}

{{/* The pod of a controller. Takes {root, component, values, args}. */}}
{{- define "cloud-controllers.controllerPod" -}}
{{- $root := .root -}}
automountServiceAccountToken: true
{{- include "cloud-controllers.podSpec" (merge (dict "grace" 30) .) | nindent 0 }}
{{- if or (gt (int .values.replicas) 1) .values.topologySpreadConstraints }}
{{- include "cloud-controllers.spread" . | nindent 0 }}
{{- end }}
containers:
  - name: {{ .component }}
    {{- include "cloud-controllers.containerSpec" (merge (dict "image" .component) .) | nindent 4 }}
    args:
      {{- with include "cloud-controllers.clusterIdArg" $root }}
      {{- . | nindent 6 }}
      {{- end }}
      - --cluster-name={{ $root.Values.clusterName }}
      - --leader-elect-resource-namespace={{ $root.Release.Namespace }}
      {{- if $root.Values.fullnameOverride }}
      - --leader-elect-resource-name={{ include "cloud-controllers.account" . }}
      {{- end }}
      - --shards={{ int .values.shards }}
      {{- if $root.Values.dryRun }}
      - --dry-run=true
      {{- end }}
      {{- include "cloud-controllers.adapterClientArgs" $root | nindent 6 }}
      {{- toYaml .args | nindent 6 }}
      {{- include "cloud-controllers.commonArgs" . | nindent 6 }}
    ports:
      - name: http
        containerPort: {{ int .values.httpPort }}
    {{- $mount := include "cloud-controllers.adapterClientMount" $root }}
    {{- if or $mount .values.extraVolumeMounts }}
    volumeMounts:
      {{- with $mount }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with .values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
{{- $volume := include "cloud-controllers.adapterClientVolume" $root }}
{{- if or $volume .values.extraVolumes }}
volumes:
  {{- with $volume }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
ServiceAccount and permissions of a controller: the given rules, Events, and, in the namespace of the release, its Leases and the
EndpointSlices of the adapter. Takes {root, component, rules, localRules}; localRules are further rules in that namespace.
*/}}
{{- define "cloud-controllers.rbac" -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $labels := include "cloud-controllers.labels" . | nindent 4 -}}
{{- $account := include "cloud-controllers.serviceAccount" . -}}
{{- $name := include "cloud-controllers.name" (dict "root" .root "name" .component) -}}
{{- $lease := include "cloud-controllers.account" . -}}
{{- $clusterRole := include "cloud-controllers.clusterRole" . -}}
{{- with include "cloud-controllers.serviceAccountObject" . }}
{{- . }}
---
{{ end -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $clusterRole | quote }}
  labels: {{- $labels }}
rules:
  {{- toYaml .rules | nindent 2 }}
  {{- with include "cloud-controllers.clusterIdRule" .root }}
  {{- . | nindent 2 }}
  {{- end }}
  - apiGroups: [""]
    resources: [events]
    verbs: [create, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $clusterRole | quote }}
  labels: {{- $labels }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $clusterRole | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ $account | quote }}
    namespace: {{ $namespace | quote }}
{{- $localRules := default list .localRules -}}
{{- if not .root.Values.adapter.endpoint -}}
{{- $slices := dict "apiGroups" (list "discovery.k8s.io") "resources" (list "endpointslices") "verbs" (list "get" "list" "watch") -}}
{{- $localRules = prepend $localRules $slices -}}
{{- end -}}
{{- /* All possible shards, because replicas with different numbers of shards read the Leases of each other. */}}
{{- $names := list $lease -}}
{{- range $shard := untilStep 1 64 1 }}{{ $names = append $names (printf "%s-%d" $lease $shard) }}{{ end -}}
{{- $held := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" $names "verbs" (list "get" "watch" "patch") -}}
{{- /* Kubernetes cannot restrict create to a name. The controller needs it to recreate a Lease that was deleted. */}}
{{- $creation := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "create") -}}
{{- $localRules = prepend (prepend $localRules $creation) $held }}
{{- range $shard := until (int .values.shards) }}
---
# The chart never changes the Lease after its creation; the controller writes the holder.
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {{ $lease }}{{ if $shard }}-{{ $shard }}{{ end }}
  namespace: {{ $namespace | quote }}
  labels: {{- $labels }}
  {{- if $shard }}
  annotations:
    # When the number of shards decreases, the old holder still runs and would recreate a deleted Lease, which Helm could not adopt later.
    helm.sh/resource-policy: keep
    # Argo CD keeps it, too, and does not report it as a difference.
    argocd.argoproj.io/sync-options: Prune=false
    argocd.argoproj.io/compare-options: IgnoreExtraneous
  {{- end }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $namespace | quote }}
  labels: {{- $labels }}
rules:
  {{- toYaml $localRules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $namespace | quote }}
  labels: {{- $labels }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $account | quote }}
    namespace: {{ $namespace | quote }}
{{- end }}

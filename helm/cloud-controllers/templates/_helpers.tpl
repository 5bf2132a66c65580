{{/* Name of an object in the namespace of the release. Takes {root, name}. */}}
{{- define "cloud-controllers.name" -}}
{{- with .root.Values.fullnameOverride }}{{ . }}-{{ end }}{{ .name -}}
{{- end }}

{{/* Name of a role of the whole cluster. Takes {root, component}. */}}
{{- define "cloud-controllers.clusterRole" -}}
{{ .root.Release.Name }}:{{ .root.Release.Namespace }}:{{ .component }}
{{- end }}

{{/* Name of the chart in labels. Takes the root. */}}
{{- define "cloud-controllers.chartName" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{/* Labels of every object. Takes {root, component}. */}}
{{- define "cloud-controllers.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: {{ .root.Chart.Name }}
{{ include "cloud-controllers.selectorLabels" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that select pods. They must never change, because selectors are immutable. Takes {root, component}. */}}
{{- define "cloud-controllers.selectorLabels" -}}
app.kubernetes.io/name: {{ include "cloud-controllers.chartName" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels and annotations of the pods of a component. Takes {root, component, values}. */}}
{{- define "cloud-controllers.podMetadata" -}}
labels:
  {{- include "cloud-controllers.selectorLabels" . | nindent 2 }}
  app.kubernetes.io/part-of: {{ .root.Chart.Name }}
  {{- with merge (dict) .values.podLabels .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* An image's full name. Takes {root, name}. */}}
{{- define "cloud-controllers.image" -}}
{{- $image := .root.Values.image -}}
{{- if $image.registry }}{{ $image.registry }}/{{ end }}{{ .name }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- with get $image.digests .name }}@{{ . }}{{ end }}
{{- end }}

{{/* An address to listen on. Takes {root, port}. */}}
{{- define "cloud-controllers.listen" -}}
{{- $address := .root.Values.bindAddress -}}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}:{{ int .port }}
{{- end }}

{{/* The flag with the identity of the cluster; empty if the programs read it from the API server. Takes the root. */}}
{{- define "cloud-controllers.clusterIdArg" -}}
{{- with .Values.clusterId -}}
- --cluster-id={{ . }}
{{- end -}}
{{- end }}

{{/*
The rule by which a program reads the identity of the cluster, the UID of the namespace kube-system; empty if clusterId is set. Takes the root.
*/}}
{{- define "cloud-controllers.clusterIdRule" -}}
{{- if not .Values.clusterId -}}
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end -}}
{{- end }}

{{/*
Not empty if Services may take over the load balancers that another cloud controller manager created for them. Takes the root.
*/}}
{{- define "cloud-controllers.takesOver" -}}
{{- with .Values.serviceController -}}
{{- if and .enabled (or .compat (eq (toString (dig "adopt" "" (.serviceDefaults | default dict))) "owned")) -}}
true
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Default name of the ServiceAccount of a component, and name of the Lease of a controller. It differs from the component's name because, in
kube-system, Kubernetes itself binds the names node-controller, service-controller and route-controller to roles with more permissions.
Takes {root, component}.
*/}}
{{- define "cloud-controllers.account" -}}
{{- include "cloud-controllers.name" (dict "root" .root "name" (printf "cloud-%s" (trimPrefix "cloud-" .component))) -}}
{{- end }}

{{/* Key of the values of a component. Takes the component. */}}
{{- define "cloud-controllers.valuesKey" -}}
{{- get (dict "cloud-adapter" "adapter" "node-controller" "nodeController" "service-controller" "serviceController" "route-controller" "routeController") . -}}
{{- end }}

{{/* The ServiceAccount of a component. Takes {root, component}. */}}
{{- define "cloud-controllers.serviceAccount" -}}
{{- $values := get .root.Values (include "cloud-controllers.valuesKey" .component) | default dict -}}
{{- dig "serviceAccount" "name" "" $values | default (include "cloud-controllers.account" .) -}}
{{- end }}

{{/* The ServiceAccount object of a component, unless the user creates it. Takes {root, component, values}. */}}
{{- define "cloud-controllers.serviceAccountObject" -}}
{{- if .values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "cloud-controllers.serviceAccount" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "cloud-controllers.labels" . | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end }}

{{/*
Not empty if the chart is installed by Helm itself (or Flux), which runs hooks at their time. Tools that only render the chart, as
`helm template` and Argo CD do, get no hooks that change anything. Takes the root.
*/}}
{{- define "cloud-controllers.runsHooks" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
true
{{- end -}}
{{- end }}

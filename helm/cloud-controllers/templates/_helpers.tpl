{{/* Labels of every object. Takes {root, component}. */}}
{{- define "cloud-controllers.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: {{ .root.Chart.Name }}
{{ include "cloud-controllers.selectorLabels" . }}
{{- end }}

{{/* Labels that select pods. They must never change, because selectors are immutable. Takes {root, component}. */}}
{{- define "cloud-controllers.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An image's full name. Takes {root, name}. */}}
{{- define "cloud-controllers.image" -}}
{{- $image := .root.Values.image -}}
{{- if $image.registry }}{{ $image.registry }}/{{ end }}{{ .name }}:{{ $image.tag | default .root.Chart.AppVersion }}
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

{{/* The rule by which a program reads the identity of the cluster: the UID of the namespace kube-system. Takes the root. */}}
{{- define "cloud-controllers.clusterIdRule" -}}
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
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
The ServiceAccount of a controller. It differs from the component's name because, in kube-system, Kubernetes itself binds the names
node-controller, service-controller and route-controller to roles with more permissions. Takes {component}.
*/}}
{{- define "cloud-controllers.serviceAccount" -}}
cloud-{{ trimPrefix "cloud-" .component }}
{{- end }}

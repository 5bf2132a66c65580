{{/* Labels of every object. Takes {root, component}. */}}
{{- define "cloud-controllers.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: {{ .root.Chart.Name }}
{{ include "cloud-controllers.selectorLabels" . }}
{{- end }}

{{/* The labels by which pods are found; they never change in a component's life. Takes {root, component}. */}}
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

{{/* The cluster's identity: given, else looked up, else empty. Takes the root. */}}
{{- define "cloud-controllers.clusterId" -}}
{{- if .Values.clusterId -}}
{{ .Values.clusterId }}
{{- else -}}
{{- dig "metadata" "uid" "" (lookup "v1" "Namespace" "" "kube-system") -}}
{{- end -}}
{{- end }}

{{/*
Whether the operator lets Services take over what another cloud controller manager made for them: not empty if so. Takes the root.
*/}}
{{- define "cloud-controllers.takesOver" -}}
{{- with .Values.serviceController -}}
{{- if and .enabled (or .compat (eq (toString (dig "adopt" "" (.serviceDefaults | default dict))) "owned")) -}}
true
{{- end -}}
{{- end -}}
{{- end }}

{{/*
The ServiceAccount of a controller. Not the component's own name: in kube-system, Kubernetes itself binds the names
node-controller, service-controller and route-controller to roles that allow more than ours. Takes {component}.
*/}}
{{- define "cloud-controllers.serviceAccount" -}}
cloud-{{ trimPrefix "cloud-" .component }}
{{- end }}

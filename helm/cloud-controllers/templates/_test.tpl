{{/*
Without the labels that select pods, so that no Service or NetworkPolicy applies. Takes {root, weight, ofCluster}; ofCluster: the object is
in no namespace.
*/}}
{{- define "cloud-controllers.testMetadata" -}}
{{- if not .ofCluster -}}
namespace: {{ .root.Release.Namespace | quote }}
{{ end -}}
labels:
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  app.kubernetes.io/part-of: {{ .root.Chart.Name }}
  app.kubernetes.io/component: self-test
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

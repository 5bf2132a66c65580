{{/*
Without the labels that select pods, so that no Service or NetworkPolicy of the chart applies. Takes {root, weight, ofCluster, values};
ofCluster: the object is in no namespace; values: those of a pod, whose labels and annotations a policy of the cluster may require.
*/}}
{{- define "cloud-controllers.testMetadata" -}}
{{- $values := .values | default dict -}}
{{- if not .ofCluster -}}
namespace: {{ .root.Release.Namespace | quote }}
{{ end -}}
labels:
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  app.kubernetes.io/part-of: {{ .root.Chart.Name }}
  app.kubernetes.io/component: self-test
  {{- with merge (dict) (dig "podLabels" (dict) $values) .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  {{- with omit (dig "podAnnotations" (dict) $values) "helm.sh/hook" "helm.sh/hook-weight" "helm.sh/hook-delete-policy" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/*
Values for the pod of a test, from those of a component: what lets its pods be admitted and find a node. Affinity to other pods is left out,
because it is about the pods of the component. Takes the values of the component.
*/}}
{{- define "cloud-controllers.testPodValues" -}}
{{- $values := pick . "podLabels" "podAnnotations" "priorityClassName" "nodeSelector" "tolerations" -}}
{{- toJson (set $values "affinity" (pick .affinity "nodeAffinity")) -}}
{{- end }}

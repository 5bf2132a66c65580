{{/*
What `helm uninstall` does first where load balancers are to go, too: nothing of the release is removed before. The controller makes way, by an
empty Deployment in its place, and a Job with its identity removes all of them. Takes what cloud-controllers.controller does.
*/}}
{{- define "cloud-controllers.removal" -}}
{{- $labels := include "cloud-controllers.labels" . -}}
{{- $selector := include "cloud-controllers.selectorLabels" . -}}
{{- $removal := merge (dict "args" (append .args "--remove-all")) . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .component }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-weight: "0"
    # Helm takes it for a hook, and would leave it.
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  replicas: 0
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $selector | nindent 8 }}
    spec:
      {{- include "cloud-controllers.controllerPod" . | nindent 6 }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .component }}-removal
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-weight: "1"
    # One that is given up must not go on later, when somebody has thought better of it.
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
    helm.sh/hook-output-log-policy: hook-failed
spec:
  # It tries again by itself as long as Helm waits.
  backoffLimit: 6
  template:
    metadata:
      labels:
        {{- $selector | nindent 8 }}
    spec:
      restartPolicy: Never
      {{- include "cloud-controllers.controllerPod" $removal | nindent 6 }}
{{- end }}

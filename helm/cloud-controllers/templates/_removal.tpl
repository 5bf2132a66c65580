{{/*
Hooks with which `helm uninstall` deletes all load balancers before it deletes the release. A Deployment with 0 replicas replaces that of
the controller, and a Job with the same identity deletes the load balancers. Takes the same as cloud-controllers.controller.
*/}}
{{- define "cloud-controllers.removal" -}}
{{- $labels := include "cloud-controllers.labels" . -}}
{{- $selector := include "cloud-controllers.selectorLabels" . -}}
{{- $removal := merge (dict "args" (append .args "--remove-all")) . -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "cloud-controllers.name" (dict "root" .root "name" .component) }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-weight: "0"
    # Helm does not delete hooks with the release, so the policy must delete this one.
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  replicas: 0
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      {{- include "cloud-controllers.podMetadata" . | nindent 6 }}
    spec:
      {{- include "cloud-controllers.controllerPod" . | nindent 6 }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "cloud-controllers.name" (dict "root" .root "name" (printf "%s-removal" .component)) }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- $labels | nindent 4 }}
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-weight: "1"
    # A Job that failed must not continue later, when the release may be in use again.
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
    helm.sh/hook-output-log-policy: hook-failed
spec:
  # The Job retries while Helm waits.
  backoffLimit: 6
  template:
    metadata:
      {{- include "cloud-controllers.podMetadata" . | nindent 6 }}
    spec:
      restartPolicy: Never
      {{- include "cloud-controllers.controllerPod" $removal | nindent 6 }}
{{- end }}

{{/*
What all four pods have in common. Start-up has no circle: they run on nodes that nothing has initialised yet, without a
pod network. Takes {root, component, values, grace}.
*/}}
{{- define "cloud-controllers.podSpec" -}}
{{- $root := .root -}}
{{- $values := .values -}}
serviceAccountName: {{ include "cloud-controllers.serviceAccount" . }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
hostNetwork: {{ $root.Values.hostNetwork }}
dnsPolicy: {{ ternary "ClusterFirstWithHostNet" "ClusterFirst" $root.Values.hostNetwork }}
terminationGracePeriodSeconds: {{ .grace }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
  - key: node.cloudprovider.kubernetes.io/uninitialized
    operator: Exists
  - key: node.kubernetes.io/not-ready
    operator: Exists
    effect: NoSchedule
  - key: node.kubernetes.io/network-unavailable
    operator: Exists
    effect: NoSchedule
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  {{- with $values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Replicas are on different nodes and in different zones, as far as there are any: one that fails takes one of them. Takes {root, component, values}. */}}
{{- define "cloud-controllers.spread" -}}
topologySpreadConstraints:
  {{- with .values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cloud-controllers.selectorLabels" $ | nindent 8 }}
    # A rollout does not look at those that it replaces.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
  {{- end }}
{{- end }}

{{/* What all four containers have in common. Takes {root, image, values}; without image, values.image is whole. */}}
{{- define "cloud-controllers.containerSpec" -}}
{{- $values := .values -}}
{{- $image := include "cloud-controllers.image" (dict "root" .root "name" .image) -}}
image: {{ ternary $image $values.image (ne .image "") | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with .image }}
command:
  - /{{ . }}
{{- end }}
{{- /* glibc gives large buffers back as long as nobody asks for larger ones; with a threshold of its own it always does, and threads that
share heaps leave fewer holes in them (mallopt(3)). */}}
{{- $env := $values.extraEnv }}
{{- range $name, $value := dict "MALLOC_ARENA_MAX" "2" "MALLOC_TRIM_THRESHOLD_" "131072" }}
{{- $own := false }}
{{- range $values.extraEnv }}{{- if eq .name $name }}{{- $own = true }}{{- end }}{{- end }}
{{- if not $own }}
{{- $env = prepend $env (dict "name" $name "value" $value) }}
{{- end }}
{{- end }}
env:
  {{- toYaml $env | nindent 2 }}
livenessProbe:
  httpGet:
    path: /healthz
    port: http
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  periodSeconds: 5
resources:
  {{- toYaml $values.resources | nindent 2 }}
{{ include "cloud-controllers.containerSecurity" .root }}
{{- end }}

{{/* As little as there is: what the profile `restricted` asks of a container, and a root that nobody writes to. */}}
{{- define "cloud-controllers.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
{{- end }}

{{/* The flags that all four programs know. Takes {root, values}. */}}
{{- define "cloud-controllers.commonArgs" -}}
- --http-address={{ include "cloud-controllers.listen" (dict "root" .root "port" .values.httpPort) }}
{{- if ne .root.Values.logFormat "auto" }}
- --log-format={{ .root.Values.logFormat }}
{{- end }}
- {{ printf "--log-level=%s" .root.Values.logLevel | quote }}
{{- with .values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

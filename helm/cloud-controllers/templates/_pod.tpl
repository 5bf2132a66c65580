{{/*
Common parts of all four pods. The pods can run on nodes that are not initialised and have no pod network, because the
node-controller is what initialises nodes. Takes {root, component, values, grace}.
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

{{/* Spreads replicas over nodes and zones where possible, so that the failure of one stops at most one replica. Takes {root, component, values}. */}}
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
    # Without this key, pods of the previous revision would count during a rollout.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
  {{- end }}
{{- end }}

{{/* Common parts of all four containers. Takes {root, image, values}. If image is empty, values.image is the full name of the image. */}}
{{- define "cloud-controllers.containerSpec" -}}
{{- $values := .values -}}
{{- $image := include "cloud-controllers.image" (dict "root" .root "name" .image) -}}
image: {{ ternary $image $values.image (ne .image "") | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- /* The status of the pod then has the error of a program that ended, and `cloudctl check` shows it. */}}
terminationMessagePolicy: FallbackToLogsOnError
{{- with .image }}
command:
  - /{{ . }}
{{- end }}
{{- /* By default, glibc raises its trim threshold when a program frees large buffers; a fixed threshold makes it return free memory to the
system. Fewer arenas reduce fragmentation (mallopt(3)). */}}
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

{{/* The requirements of the pod security profile `restricted` for a container, and a read-only root file system. */}}
{{- define "cloud-controllers.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
{{- end }}

{{/* Flags that all four programs have. Takes {root, values}. */}}
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

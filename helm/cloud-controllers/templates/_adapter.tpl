{{/* What the controllers and the adapter know of each other. */}}

{{/* The name that the adapter's certificate bears, and that of its Service, Lease and Deployment. */}}
{{- define "cloud-controllers.adapterName" -}}
cloud-adapter
{{- end }}

{{/* The audience of the tokens that are shown to the adapter: good there and nowhere else. Takes the root. */}}
{{- define "cloud-controllers.adapterAudience" -}}
cloudadapter.{{ include "cloud-controllers.clusterId" . }}
{{- end }}

{{/*
Where the controllers find the adapter. The endpoints of its Service rather than its name: neither cluster DNS nor kube-proxy
need run, and of several replicas the one that serves is found. Takes the root.
*/}}
{{- define "cloud-controllers.adapterEndpoint" -}}
{{- with .Values.adapter.endpoint -}}
{{ . }}
{{- else -}}
kubernetes:///{{ .Release.Namespace }}/{{ include "cloud-controllers.adapterName" . }}:grpc
{{- end -}}
{{- end }}

{{/* The Secret with the certificate authority; empty without TLS. Takes the root. */}}
{{- define "cloud-controllers.adapterTlsSecret" -}}
{{- $tls := .Values.adapter.tls -}}
{{- if eq $tls.mode "generated" -}}
cloud-adapter-ca
{{- else if eq $tls.mode "secret" -}}
{{ $tls.secretName }}
{{- end -}}
{{- end }}

{{/* The flags by which a process finds the adapter, checks who it is, and says who itself is. Takes the root. */}}
{{- define "cloud-controllers.adapterClientArgs" -}}
- --adapter-endpoint={{ include "cloud-controllers.adapterEndpoint" . }}
{{- if include "cloud-controllers.adapterTlsSecret" . }}
- --adapter-ca-file=/var/run/secrets/cloud-adapter/ca.crt
- --adapter-server-name={{ .Values.adapter.tls.serverName }}
{{- end }}
{{- if ne .Values.adapter.authentication "none" }}
- --adapter-token-file=/var/run/secrets/cloud-adapter/token
{{- end }}
{{- end }}

{{/* The volume with the certificate authority and the token; empty if there is neither. Takes the root. */}}
{{- define "cloud-controllers.adapterClientVolume" -}}
{{- $secret := include "cloud-controllers.adapterTlsSecret" . -}}
{{- $token := ne .Values.adapter.authentication "none" -}}
{{- if or $secret $token -}}
- name: adapter-client
  projected:
    sources:
      {{- with $secret }}
      # The certificate alone: its key is the adapter's.
      - secret:
          name: {{ . | quote }}
          items:
            - key: ca.crt
              path: ca.crt
      {{- end }}
      {{- if $token }}
      - serviceAccountToken:
          path: token
          audience: {{ include "cloud-controllers.adapterAudience" . }}
          expirationSeconds: 600
      {{- end }}
{{- end -}}
{{- end }}

{{/* Where that volume is mounted. Takes the root. */}}
{{- define "cloud-controllers.adapterClientMount" -}}
{{- if include "cloud-controllers.adapterClientVolume" . -}}
- name: adapter-client
  mountPath: /var/run/secrets/cloud-adapter
  readOnly: true
{{- end -}}
{{- end }}

{{/* The flags by which the adapter proves who it is, and knows who calls. Takes the root. */}}
{{- define "cloud-controllers.adapterServerArgs" -}}
{{- $tls := .Values.adapter.tls -}}
{{- $namespace := .Release.Namespace -}}
{{- if eq $tls.mode "generated" -}}
- --tls-ca-cert=/var/run/secrets/cloud-adapter-tls/ca.crt
- --tls-ca-key=/var/run/secrets/cloud-adapter-tls/ca.key
- --tls-server-names={{ $tls.serverName }},{{ include "cloud-controllers.adapterName" . }}.{{ $namespace }}.svc
{{ else if eq $tls.mode "secret" -}}
- --tls-cert=/var/run/secrets/cloud-adapter-tls/tls.crt
- --tls-key=/var/run/secrets/cloud-adapter-tls/tls.key
{{ else -}}
- --insecure
{{ end -}}
- --authentication={{ .Values.adapter.authentication }}
{{- if ne .Values.adapter.authentication "none" }}
{{- range $role := list "node-controller" "service-controller" "route-controller" }}
- --identity={{ $role }}={{ $namespace }}/{{ include "cloud-controllers.serviceAccount" (dict "component" $role) }}
{{- end }}
- --identity=adapter={{ $namespace }}/{{ include "cloud-controllers.adapterName" . }}
{{- end }}
{{- end }}

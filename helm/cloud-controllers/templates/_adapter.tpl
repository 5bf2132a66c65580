{{/* Addresses, certificates and identities of the adapter and its clients. */}}

{{/* Name of the adapter's Service, Lease, Deployment and other objects. Takes the root. */}}
{{- define "cloud-controllers.adapterName" -}}
{{- include "cloud-controllers.name" (dict "root" . "name" "cloud-adapter") -}}
{{- end }}

{{/* Audience of the tokens for the adapter, which no other server accepts. Takes the root. */}}
{{- define "cloud-controllers.adapterAudience" -}}
{{- .Values.adapter.tokenAudience | default (printf "%s.%s.svc" (include "cloud-controllers.adapterName" .) .Release.Namespace) -}}
{{- end }}

{{/*
Endpoint of the adapter for the controllers. It resolves the EndpointSlices of the Service instead of a DNS name, so that neither
cluster DNS nor kube-proxy must run, and the leader among several replicas is found. Takes the root.
*/}}
{{- define "cloud-controllers.adapterEndpoint" -}}
{{- with .Values.adapter.endpoint -}}
{{ . }}
{{- else -}}
kubernetes:///{{ .Release.Namespace }}/{{ include "cloud-controllers.adapterName" . }}:grpc
{{- end -}}
{{- end }}

{{/* Name of the Secret with the certificate authority; empty without TLS. Takes the root. */}}
{{- define "cloud-controllers.adapterTlsSecret" -}}
{{- $tls := .Values.adapter.tls -}}
{{- if eq $tls.mode "generated" -}}
{{ include "cloud-controllers.name" (dict "root" . "name" "cloud-adapter-ca") }}
{{- else if eq $tls.mode "secret" -}}
{{ $tls.secretName }}
{{- end -}}
{{- end }}

{{/* Flags with which a process finds the adapter, verifies its certificate and authenticates to it. Takes the root. */}}
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

{{/* Volume with the certificate authority and the token; empty if neither is used. Takes the root. */}}
{{- define "cloud-controllers.adapterClientVolume" -}}
{{- include "cloud-controllers.adapterVolume" (dict "root" . "secret" (include "cloud-controllers.adapterTlsSecret" .)) -}}
{{- end }}

{{/*
Like adapterClientVolume, but for a replica of the adapter. In mode generated it has no certificate authority, because the pod would wait
for the Secret that the adapter itself fills; the adapter has the certificate authority already. Takes the root.
*/}}
{{- define "cloud-controllers.adapterPeerVolume" -}}
{{- $secret := ternary "" (include "cloud-controllers.adapterTlsSecret" .) (eq .Values.adapter.tls.mode "generated") -}}
{{- include "cloud-controllers.adapterVolume" (dict "root" . "secret" $secret) -}}
{{- end }}

{{- define "cloud-controllers.adapterVolume" -}}
{{- $token := ne .root.Values.adapter.authentication "none" -}}
{{- if or .secret $token -}}
- name: adapter-client
  projected:
    sources:
      {{- with .secret }}
      # Only the certificate: the key is for the adapter alone. The pod starts when the adapter has created the certificate.
      - secret:
          name: {{ . | quote }}
          items:
            - key: ca.crt
              path: ca.crt
      {{- end }}
      {{- if $token }}
      - serviceAccountToken:
          path: token
          audience: {{ include "cloud-controllers.adapterAudience" .root | quote }}
          expirationSeconds: 600
      {{- end }}
{{- end -}}
{{- end }}

{{/* Mount of the volume adapter-client; empty without the volume. Takes the root. */}}
{{- define "cloud-controllers.adapterClientMount" -}}
{{- if include "cloud-controllers.adapterClientVolume" . -}}
{{- include "cloud-controllers.adapterMount" . -}}
{{- end -}}
{{- end }}

{{- define "cloud-controllers.adapterPeerMount" -}}
{{- if include "cloud-controllers.adapterPeerVolume" . -}}
{{- include "cloud-controllers.adapterMount" . -}}
{{- end -}}
{{- end }}

{{- define "cloud-controllers.adapterMount" -}}
- name: adapter-client
  mountPath: /var/run/secrets/cloud-adapter
  readOnly: true
{{- end }}

{{/* Flags of the adapter for its certificate and the authentication of its callers. Takes the root. */}}
{{- define "cloud-controllers.adapterServerArgs" -}}
{{- $tls := .Values.adapter.tls -}}
{{- $namespace := .Release.Namespace -}}
{{- if eq $tls.mode "generated" -}}
- --tls-ca-secret={{ $namespace }}/{{ include "cloud-controllers.adapterTlsSecret" . }}
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
- {{ printf "--token-audience=%s" (include "cloud-controllers.adapterAudience" .) | quote }}
{{- range $role := list "node-controller" "service-controller" "route-controller" }}
- --identity={{ $role }}={{ $namespace }}/{{ include "cloud-controllers.serviceAccount" (dict "root" $ "component" $role) }}
{{- end }}
- --identity=adapter={{ $namespace }}/{{ include "cloud-controllers.serviceAccount" (dict "root" . "component" "cloud-adapter") }}
{{- end }}
{{- end }}

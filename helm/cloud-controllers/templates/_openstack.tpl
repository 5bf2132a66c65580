{{/* Credentials and adapter flags for OpenStack. */}}

{{/* Name of the Secret with the cloud credentials; empty without credentials. Takes the root. */}}
{{- define "cloud-controllers.credentialsSecret" -}}
{{- if and (eq .Values.adapter.kind "openstack") .Values.adapter.openstack.cloudsYaml -}}
{{ include "cloud-controllers.name" (dict "root" . "name" "cloud-adapter-credentials") }}
{{- else -}}
{{ .Values.adapter.credentialsSecret | default (ternary "cloud-credentials" "" (eq .Values.adapter.kind "openstack")) }}
{{- end -}}
{{- end }}

{{/* The Secret created from cloudsYaml; empty if cloudsYaml is empty. Takes the root. */}}
{{- define "cloud-controllers.openstackSecret" -}}
{{- $openstack := .Values.adapter.openstack -}}
{{- if and (eq .Values.adapter.kind "openstack") $openstack.cloudsYaml -}}
# Only the adapter reads this Secret. It follows changes without a restart.
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "cloud-controllers.credentialsSecret" . }}
  namespace: {{ .Release.Namespace | quote }}
  labels:
    {{- include "cloud-controllers.labels" (dict "root" . "component" "cloud-adapter") | nindent 4 }}
stringData:
  clouds.yaml: {{ $openstack.cloudsYaml | quote }}
  {{- with $openstack.ca }}
  ca.crt: {{ . | quote }}
  {{- end }}
{{- end -}}
{{- end }}

{{/* Flags of adapter-openstack. A flag whose value is empty is left out. Takes the root. */}}
{{- define "cloud-controllers.openstackArgs" -}}
{{- $openstack := .Values.adapter.openstack -}}
{{- $balancers := $openstack.loadBalancers -}}
- --clouds-file=/var/run/secrets/cloud/clouds.yaml
{{- range $flag, $value := dict "cloud" $openstack.cloud "region" $openstack.region "interface" $openstack.interface "router-id" $openstack.routerId }}
{{- if $value }}
- {{ printf "--%s=%s" $flag $value | quote }}
{{- end }}
{{- end }}
{{- range $openstack.publicNetworks }}
- {{ printf "--public-network-name=%s" . | quote }}
{{- end }}
{{- range $openstack.internalNetworks }}
- {{ printf "--internal-network-name=%s" . | quote }}
{{- end }}
{{- with $openstack.addressSortOrder }}
- {{ printf "--address-sort-order=%s" (join "," .) | quote }}
{{- end }}
{{- if not $openstack.ipv6 }}
- --ipv6-support-disabled
{{- end }}
{{- if $openstack.regionalProviderIds }}
- --regional-provider-ids
{{- end }}
{{- range $flag, $value := dict "subnet-id" $balancers.subnetId "ipv6-subnet-id" $balancers.ipv6SubnetId "network-id" $balancers.networkId "member-subnet-id" $balancers.memberSubnetId "floating-network-id" $balancers.floatingNetworkId "floating-subnet-id" $balancers.floatingSubnetId "load-balancer-provider" $balancers.provider }}
{{- if $value }}
- {{ printf "--%s=%s" $flag $value | quote }}
{{- end }}
{{- end }}
- --load-balancer-creation={{ $balancers.creation }}
- --kept-addresses-per-namespace={{ int $balancers.keptAddressesPerNamespace }}
{{- if $balancers.manageSecurityGroups }}
- --manage-security-groups
{{- end }}
{{- end }}

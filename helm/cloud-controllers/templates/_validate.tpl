{{/* What the schema cannot say. All faults are told at once, each with its key and what to do. Takes the root. */}}
{{- define "cloud-controllers.validate" -}}
{{- $faults := list -}}
{{- $values := .Values -}}
{{- if not (include "cloud-controllers.clusterId" .) -}}
{{- $faults = append $faults "clusterId: cannot be looked up, because the chart is rendered without a cluster; set it to the UID of the namespace kube-system (kubectl get namespace kube-system --output jsonpath='{.metadata.uid}')" -}}
{{- end -}}
{{- if and (eq $values.adapter.kind "external") (not $values.adapter.endpoint) -}}
{{- $faults = append $faults "adapter.endpoint: is needed when adapter.kind is external; set it to the adapter's URL, such as http://192.0.2.10:8443" -}}
{{- end -}}
{{- if and $values.routeController.enabled (not $values.routeController.clusterCidr) -}}
{{- $faults = append $faults "routeController.clusterCidr: is needed when routeController.enabled is true; set it to the pods' network, such as 10.244.0.0/16, or set routeController.enabled to false where the CNI routes by itself" -}}
{{- end -}}
{{- $ports := dict -}}
{{- if $values.hostNetwork -}}
{{- range $key := list "adapter.grpcPort" "adapter.httpPort" "nodeController.httpPort" "serviceController.httpPort" "routeController.httpPort" -}}
{{- $path := splitList "." $key -}}
{{- $port := index $values (first $path) (last $path) | int | toString -}}
{{- if hasKey $ports $port -}}
{{- $faults = append $faults (printf "%s: %s is taken by %s, and on the host network each needs its own; choose another" $key $port (get $ports $port)) -}}
{{- end -}}
{{- $_ := set $ports $port $key -}}
{{- end -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n\nThese values need a change:\n  - %s\n" (join "\n  - " $faults)) -}}
{{- end -}}
{{- end }}

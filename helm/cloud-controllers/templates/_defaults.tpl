{{/*
Gives values that are absent their defaults, so that the values of an older chart, as `helm upgrade --reuse-values` brings them, will do.
Every template begins with it, for Helm may render any of them first. Takes the root.
*/}}
{{- define "cloud-controllers.defaults" -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- include "cloud-controllers.fill" (dict "into" .Values "from" $defaults) -}}
{{- end }}

{{/*
Sets what is absent in one map and there in another. Sprig's merge would also replace false, 0 and "". What is absent in resources was
taken out by somebody, such as a limit. Takes {into, from}.
*/}}
{{- define "cloud-controllers.fill" -}}
{{- $into := .into -}}
{{- range $key, $default := .from -}}
{{- $given := get $into $key -}}
{{- if not (hasKey $into $key) -}}
{{- $_ := set $into $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" $given) (ne $key "resources") -}}
{{- include "cloud-controllers.fill" (dict "into" $given "from" $default) -}}
{{- end -}}
{{- end -}}
{{- end }}

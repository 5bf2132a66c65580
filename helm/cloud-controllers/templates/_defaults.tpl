{{/*
Sets defaults of absent values, so that the values of an older chart, as with `helm upgrade --reuse-values`, work, and refuses invalid values.
Every template begins with it, because Helm may render any of them first, and none would work with values of a wrong type. Only the first
does the work, because Helm gives the same root to all. Takes the root.
*/}}
{{- define "cloud-controllers.defaults" -}}
{{- if not (hasKey . "checked") -}}
{{- $_ := set . "checked" true -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- include "cloud-controllers.fill" (dict "into" .Values "from" $defaults) -}}
{{- $route := .Values.routeController -}}
{{- if eq (toString $route.enabled) "auto" -}}
{{- $_ := set $route "enabled" (ne (toString $route.clusterCidr) "") -}}
{{- else if has $route.enabled (list "true" "false") -}}
{{- $_ := set $route "enabled" (eq $route.enabled "true") -}}
{{- end -}}
{{- include "cloud-controllers.validate" . -}}
{{- end -}}
{{- end }}

{{/*
Copies keys of `from` that are absent in `into`. Sprig's merge would also replace false, 0 and "". Keys absent in resources stay absent,
because the user removed them, such as a limit. Takes {into, from}.
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

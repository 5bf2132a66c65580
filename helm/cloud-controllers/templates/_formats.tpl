{{/* Checks of the formats of scalar values. */}}

{{/* Returns a JSON list of faults of values that do not have the format of files/formats.yaml. Takes the root. */}}
{{- define "cloud-controllers.formatFaults" -}}
{{- $faults := list -}}
{{- range $rule := .Files.Get "files/formats.yaml" | fromYamlArray -}}
{{- range $key := $rule.keys -}}
{{- $place := dict "value" $.Values "path" (splitList "." $key) "name" "" "rule" $rule -}}
{{- $faults = concat $faults (include "cloud-controllers.formatFaultsBelow" $place | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns the faults of one value, or of the values below it on a path. Takes {value, path, name, last, rule}; last: the last key of the name. */}}
{{- define "cloud-controllers.formatFaultsBelow" -}}
{{- $faults := list -}}
{{- $value := .value -}}
{{- if not .path -}}
{{- $fault := "" -}}
{{- if eq (toString .rule.part) "key" -}}
{{- $fault = include "cloud-controllers.nameFault" . -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $fault = include "cloud-controllers.scalarFault" . -}}
{{- end -}}
{{- with $fault -}}
{{- $faults = list (printf "%s: %s" $.name .) -}}
{{- end -}}
{{- else -}}
{{- $below := dict -}}
{{- $key := first .path -}}
{{- if kindIs "slice" $value -}}
{{- range $index, $item := $value -}}{{- $_ := set $below (toString $index) $item -}}{{- end -}}
{{- else if kindIs "map" $value -}}
{{- $below = $value -}}
{{- end -}}
{{- range $name, $item := $below -}}
{{- if has $key (list "*" $name) -}}
{{- $full := trimPrefix "." (printf "%s.%s" $.name $name) -}}
{{- $place := dict "value" $item "path" (rest $.path) "name" $full "last" $name "rule" $.rule -}}
{{- $faults = concat $faults (include "cloud-controllers.formatFaultsBelow" $place | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns the fault of a key that the user chose; empty if it has none. Takes {last, rule}. */}}
{{- define "cloud-controllers.nameFault" -}}
{{- if not (regexMatch (printf "^(%s)$" .rule.pattern) .last) -}}
{{- printf "invalid key %q; use %s" .last .rule.says -}}
{{- end -}}
{{- end }}

{{/* Returns the fault of a scalar; empty if it has none. Takes {value, rule}. */}}
{{- define "cloud-controllers.scalarFault" -}}
{{- $type := .rule.type | default "text" -}}
{{- $given := ternary "text" (ternary "boolean" "number" (kindIs "bool" .value)) (kindIs "string" .value) -}}
{{- $text := ternary (toString .value) (toJson .value) (eq $given "text") -}}
{{- $fits := include "cloud-controllers.fits" (dict "text" $text "type" $type "given" $given "rule" .rule) -}}
{{- $wanted := ternary "number" $type (eq $type "integer") -}}
{{- if not (or (and $fits (eq $given $wanted)) (eq $given (toString .rule.also))) -}}
{{- $shown := ternary "" (printf " %s" (ternary (printf "%q" (trunc 200 $text)) $text (eq $given "text"))) (eq (toString .rule.secret) "true") -}}
{{- if not $fits -}}
{{- printf "invalid value%s; set it to %s" $shown (include "cloud-controllers.says" (dict "type" $type "rule" .rule)) -}}
{{- else if eq $wanted "text" -}}
{{- printf "%s is a %s, but must be a text; put it in quotes (on the command line, use --set-string)" (trim $shown) $given -}}
{{- else -}}
{{- /* --set reads 0.5 as a text. */ -}}
{{- printf "%s is a text, but must be a %s; remove the quotes (on the command line, use --set-json)" (trim $shown) $wanted -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Returns a text if a scalar has the format of its rule when it is written with or without quotes. Takes {text, type, given, rule}. */}}
{{- define "cloud-controllers.fits" -}}
{{- if eq .type "text" -}}
{{- if or (regexMatch (printf "^(%s)$" .rule.pattern) .text) (and (eq .text "") (not .rule.required)) -}}yes{{- end -}}
{{- else if eq .type "boolean" -}}
{{- if has .text (list "true" "false") -}}yes{{- end -}}
{{- else if regexMatch (ternary "^-?[0-9]{1,15}$" "^-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]+)?$" (eq .type "integer")) .text -}}
{{- $number := float64 .text -}}
{{- $low := and (hasKey .rule "from") (lt $number (float64 .rule.from)) -}}
{{- $excluded := and (hasKey .rule "above") (le $number (float64 .rule.above)) -}}
{{- $high := and (hasKey .rule "to") (gt $number (float64 .rule.to)) -}}
{{- if not (or $low $excluded $high) -}}yes{{- end -}}
{{- end -}}
{{- end }}

{{/* Returns what completes "set it to". Takes {type, rule}. */}}
{{- define "cloud-controllers.says" -}}
{{- if .rule.says -}}
{{ .rule.says }}
{{- else if eq .type "boolean" -}}
true or false
{{- else -}}
{{- $rule := .rule -}}
{{ ternary "a whole number" "a number" (eq .type "integer") }}
{{- if and (hasKey $rule "from") (hasKey $rule "to") }} from {{ int64 $rule.from }} to {{ int64 $rule.to }}
{{- else if hasKey $rule "from" }} of at least {{ int64 $rule.from }}
{{- else if hasKey $rule "above" }} above {{ int64 $rule.above }} and at most {{ int64 $rule.to }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Checks that the schema cannot express. Reports all faults at once, each with its key and what to do. Takes the root. */}}
{{- define "cloud-controllers.validate" -}}
{{- $values := .Values -}}
{{- $faults := include "cloud-controllers.keyFaults" . | fromJsonArray -}}
{{- $faults = concat $faults (include "cloud-controllers.kindFaults" $values.adapter | fromJsonArray) -}}
{{- /* The other checks depend on the formats. */ -}}
{{- with include "cloud-controllers.formatFaults" . | fromJsonArray -}}
{{- include "cloud-controllers.refuse" (concat $faults .) -}}
{{- end -}}
{{- $faults = concat $faults (include "cloud-controllers.imageFaults" . | fromJsonArray) -}}
{{- $faults = concat $faults (include "cloud-controllers.metadataFaults" . | fromJsonArray) -}}
{{- $faults = concat $faults (include "cloud-controllers.logLevelFaults" $values.logLevel | fromJsonArray) -}}
{{- if not (include "cloud-controllers.ipFamily" $values.bindAddress) -}}
{{- $faults = append $faults (printf "bindAddress: %s is not an IP address; set it to one such as 192.0.2.10 or fd00::10" $values.bindAddress) -}}
{{- else if regexMatch "^(127\\.[0-9.]+|[0:]*:(ffff:)?127\\.[0-9.]+|[0:]*:ffff:7f[0-9a-f]{2}:[0-9a-f]+|[0:]*:0*1)$" (lower $values.bindAddress) -}}
{{- $faults = append $faults (printf "bindAddress: %s is a loopback address, and the probes of the kubelet use the address of the pod: the kubelet would restart the containers again and again; set it to 0.0.0.0, or to :: on an IPv6-only cluster" $values.bindAddress) -}}
{{- end -}}
{{- $faults = concat $faults (include "cloud-controllers.adapterFaults" . | fromJsonArray) -}}
{{- $policy := $values.networkPolicy -}}
{{- if and $values.monitoring.serviceMonitor $policy.enabled (not $values.hostNetwork) (not $policy.metricsFrom) -}}
{{- $faults = append $faults "networkPolicy.metricsFrom: is empty and blocks Prometheus, but monitoring.serviceMonitor is true; set it to the peer of your Prometheus, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" -}}
{{- end -}}
{{- if and $values.routeController.enabled (not $values.routeController.clusterCidr) -}}
{{- $faults = append $faults "routeController.clusterCidr: is required when routeController.enabled is true; set it to the pod network, such as 10.244.0.0/16, or set routeController.enabled to false where the CNI plugin routes by itself" -}}
{{- end -}}
{{- $faults = concat $faults (include "cloud-controllers.clusterCidrFaults" $values.routeController.clusterCidr | fromJsonArray) -}}
{{- if $values.nodeController.enabled -}}
{{- $faults = concat $faults (include "cloud-controllers.deletionFaults" $values.nodeController.deletion | fromJsonArray) -}}
{{- end -}}
{{- if $values.serviceController.enabled -}}
{{- $faults = concat $faults (include "cloud-controllers.serviceFaults" . | fromJsonArray) -}}
{{- end -}}
{{- $faults = concat $faults (include "cloud-controllers.portFaults" . | fromJsonArray) -}}
{{- include "cloud-controllers.refuse" $faults -}}
{{- end }}

{{/* Returns a JSON list of digests whose names are no images of the chart: these would pin nothing. Takes the root. */}}
{{- define "cloud-controllers.imageFaults" -}}
{{- $images := list -}}
{{- range index .Chart.Annotations "artifacthub.io/images" | fromYamlArray -}}
{{- $images = append $images .name -}}
{{- end -}}
{{- $faults := list -}}
{{- range $name, $digest := .Values.image.digests -}}
{{- if not (has $name $images) -}}
{{- $faults = append $faults (printf "image.digests.%s: no image of the chart has this name; use one of: %s" $name (join ", " $images)) -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Fails if there are faults. Takes the list. */}}
{{- define "cloud-controllers.refuse" -}}
{{- if . -}}
{{- fail (printf "\n\nThese values need a change:\n  - %s\n" (join "\n  - " .)) -}}
{{- end -}}
{{- end }}

{{/*
Returns a JSON list of unknown keys at all levels. The schema accepts them, because its message could not name a similar key, and would hide
all other faults. Takes the root.
*/}}
{{- define "cloud-controllers.keyFaults" -}}
{{- include "cloud-controllers.keyFaultsBelow" (dict "value" .Values "known" (.Files.Get "files/keys.yaml" | fromYaml) "name" "") -}}
{{- end }}

{{/*
Returns the unknown keys below one value. Takes {value, known, name}; known: the keys of the value, where * is every item of a list or every key
of a map. If it is empty, all keys are valid.
*/}}
{{- define "cloud-controllers.keyFaultsBelow" -}}
{{- $faults := list -}}
{{- if and .known (or (kindIs "map" .value) (kindIs "slice" .value)) -}}
{{- range $key, $item := .value -}}
{{- $key = toString $key -}}
{{- $name := trimPrefix "." (printf "%s.%s" $.name $key) -}}
{{- $match := ternary "*" $key (hasKey $.known "*") -}}
{{- if hasKey $.known $match -}}
{{- $place := dict "value" $item "known" (get $.known $match) "name" $name -}}
{{- $faults = concat $faults (include "cloud-controllers.keyFaultsBelow" $place | fromJsonArray) -}}
{{- else -}}
{{- $known := without (keys $.known | sortAlpha) "global" -}}
{{- $hint := printf ": use one of: %s" (join ", " $known) -}}
{{- with include "cloud-controllers.similarKeys" (dict "given" $key "known" $known) | fromJsonArray -}}
{{- $hint = printf ", did you mean '%s'?" (join "' or '" .) -}}
{{- end -}}
{{- $faults = append $faults (printf "%s: unknown key%s" $name $hint) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/*
Returns a JSON list of the known keys that are similar to a given key: both have the same beginning and end around at most three characters.
Takes {given, known}.
*/}}
{{- define "cloud-controllers.similarKeys" -}}
{{- $similar := list -}}
{{- range $key := .known -}}
{{- range $at := until (len $key) -}}
{{- $end := min (len $key) (add $at 2) | int -}}
{{- if regexMatch (printf "(?i)^%s.{0,3}%s$" (trunc $at $key) (trimPrefix (trunc $end $key) $key)) $.given -}}
{{- $similar = append $similar $key -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $similar | uniq | toJson -}}
{{- end }}

{{/* Returns a JSON list of faults of the choice of the adapter. Takes adapter. */}}
{{- define "cloud-controllers.kindFaults" -}}
{{- $faults := list -}}
{{- $choices := "openstack, external (an adapter that runs elsewhere), custom (an adapter of your own, with adapter.image), sim (a simulated cloud, to try it out)" -}}
{{- $kind := toString .kind -}}
{{- if not $kind -}}
{{- $faults = append $faults (printf "adapter.kind: has no default; set it to your cloud: %s" $choices) -}}
{{- else if not (has $kind (list "openstack" "external" "custom" "sim")) -}}
{{- $faults = append $faults (printf "adapter.kind: unknown adapter '%s': use one of: %s" $kind $choices) -}}
{{- else if and (eq $kind "sim") (eq (toString .sim.notForProduction) "false") -}}
{{- $faults = append $faults "adapter.sim.notForProduction: must be true when adapter.kind is sim: the simulated cloud knows no instance of a real cluster, and its load balancers and routes exist nowhere; set it to true to try the chart out, or adapter.kind to your cloud" -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns a JSON list of faults of labels and ServiceAccounts. Takes the root. */}}
{{- define "cloud-controllers.metadataFaults" -}}
{{- $faults := list -}}
{{- $labels := dict "commonLabels" .Values.commonLabels -}}
{{- $accounts := dict -}}
{{- range $component := list "cloud-adapter" "node-controller" "service-controller" "route-controller" -}}
{{- $key := include "cloud-controllers.valuesKey" $component -}}
{{- $values := get $.Values $key -}}
{{- $_ := set $labels (printf "%s.podLabels" $key) $values.podLabels -}}
{{- if and (not $values.serviceAccount.create) (not $values.serviceAccount.name) -}}
{{- $faults = append $faults (printf "%s.serviceAccount.name: is required when %s.serviceAccount.create is false; set it to the ServiceAccount that you created" $key $key) -}}
{{- end -}}
{{- $account := include "cloud-controllers.serviceAccount" (dict "root" $ "component" $component) -}}
{{- if hasKey $accounts $account -}}
{{- $faults = append $faults (printf "%s.serviceAccount.name: %s is the ServiceAccount of %s, too, and would have the permissions of both; choose another" $key $account (get $accounts $account)) -}}
{{- end -}}
{{- $_ := set $accounts $account $key -}}
{{- end -}}
{{- range $place, $given := $labels -}}
{{- range $label, $_ := $given -}}
{{- if regexMatch "^(app[.]kubernetes[.]io/(name|instance|component|version|managed-by|part-of)|helm[.]sh/chart)$" $label -}}
{{- $faults = append $faults (printf "%s: the chart sets the label %s itself; remove it" $place $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns a JSON list of faults of ports that two components share. Components that are not installed do not count. Takes the root. */}}
{{- define "cloud-controllers.portFaults" -}}
{{- $faults := list -}}
{{- $values := .Values -}}
{{- $keys := list -}}
{{- if ne $values.adapter.kind "external" -}}
{{- $keys = list "adapter.grpcPort" "adapter.httpPort" -}}
{{- end -}}
{{- $where := "in one pod" -}}
{{- if $values.hostNetwork -}}
{{- $where = "on the host network" -}}
{{- range $controller := list "nodeController" "serviceController" "routeController" -}}
{{- if (index $values $controller).enabled -}}
{{- $keys = append $keys (printf "%s.httpPort" $controller) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ports := dict -}}
{{- range $key := $keys -}}
{{- $path := splitList "." $key -}}
{{- $port := index $values (first $path) (last $path) | int | toString -}}
{{- if hasKey $ports $port -}}
{{- $faults = append $faults (printf "%s: %s is taken by %s, and %s each listener needs its own port; choose another" $key $port (get $ports $port) $where) -}}
{{- else -}}
{{- $_ := set $ports $port $key -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns a JSON list of faults of the adapter's endpoint, TLS and authentication. Takes the root. */}}
{{- define "cloud-controllers.adapterFaults" -}}
{{- $faults := list -}}
{{- $adapter := .Values.adapter -}}
{{- $tls := $adapter.tls -}}
{{- $name := include "cloud-controllers.adapterName" . -}}
{{- if and (eq $adapter.kind "external") (not $adapter.endpoint) -}}
{{- $faults = append $faults "adapter.endpoint: is required when adapter.kind is external; set it to the URL of the adapter, such as https://192.0.2.10:8443" -}}
{{- end -}}
{{- if and (eq $adapter.kind "custom") (not $adapter.image) -}}
{{- $faults = append $faults "adapter.image: is required when adapter.kind is custom; set it to the image of your adapter, such as registry.example/adapter-acme:1.2" -}}
{{- else if and (ne $adapter.kind "custom") $adapter.image -}}
{{- $faults = append $faults (printf "adapter.image: is only for adapter.kind custom, but adapter.kind is %s; leave it empty" $adapter.kind) -}}
{{- end -}}
{{- $faults = concat $faults (include "cloud-controllers.openstackFaults" . | fromJsonArray) -}}
{{- $faults = concat $faults (include "cloud-controllers.familyFaults" $adapter | fromJsonArray) -}}
{{- if and (eq $tls.mode "secret") (not $tls.secretName) -}}
{{- $faults = append $faults "adapter.tls.secretName: is required when adapter.tls.mode is secret; set it to a Secret with tls.crt, tls.key and ca.crt, as cert-manager creates it (ca.crt alone when adapter.kind is external)" -}}
{{- end -}}
{{- if eq $tls.mode "generated" -}}
{{- if eq $adapter.kind "external" -}}
{{- $faults = append $faults "adapter.tls.mode: generated creates a certificate authority for the adapter of this chart, but adapter.kind is external; set it to secret (with the ca.crt of your adapter) or to off" -}}
{{- end -}}
{{- end -}}
{{- if and (eq $adapter.replicas "active-standby") (ne $adapter.kind "external") -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace $name -}}
{{- if and $live (not (contains "--replicas=active-standby" (toJson $live.spec.template.spec))) (gt (int $live.spec.replicas) 0) -}}
{{- $faults = append $faults (printf "adapter.replicas: the running adapter does not use a Lease, and both adapters would write to the cloud during the rollout; delete it with `kubectl --namespace %s delete deployment %s --cascade=foreground --wait`, then run this command again" .Release.Namespace $name) -}}
{{- end -}}
{{- end -}}
{{- if eq $tls.mode "off" -}}
{{- if hasPrefix "https:" $adapter.endpoint -}}
{{- $faults = append $faults (printf "adapter.tls.mode: is off, but adapter.endpoint %s uses TLS; set it to secret, or the endpoint to a URL such as http://192.0.2.10:8443" $adapter.endpoint) -}}
{{- end -}}
{{- if ne $adapter.authentication "none" -}}
{{- $faults = append $faults "adapter.authentication: sends tokens to the adapter, but without TLS they can be read on the network; set it to none, or adapter.tls.mode to generated or secret" -}}
{{- end -}}
{{- else if hasPrefix "http:" $adapter.endpoint -}}
{{- $faults = append $faults (printf "adapter.endpoint: %s does not use TLS, but adapter.tls.mode is %s; set the endpoint to a URL such as https://192.0.2.10:8443, or adapter.tls.mode to off and adapter.authentication to none" $adapter.endpoint $tls.mode) -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/*
Returns a JSON list of names in adapter.limits that are no families. The running adapter would refuse the whole file, and fail at its next start. A
custom adapter may have families of its own, so only names that are similar to a family are refused. Takes the adapter's values.
Source of the names: cloud-adapter/src/config/limits.rs.
*/}}
{{- define "cloud-controllers.familyFaults" -}}
{{- $faults := list -}}
{{- $families := list "compute" "network" "loadbalancer" "identity" -}}
{{- range $place, $also := dict "buckets" "account" "concurrency" "perKeyWrites" -}}
{{- $known := prepend $families $also -}}
{{- range $name, $_ := get $.limits $place | default dict -}}
{{- $family := ternary (splitList ":" $name | first) $name (eq $place "buckets") -}}
{{- if and (not (has $family $known)) (ne $.kind "external") -}}
{{- $hint := "" -}}
{{- with include "cloud-controllers.similarKeys" (dict "given" $family "known" $known) | fromJsonArray -}}
{{- $hint = printf ", did you mean '%s'?" (join "' or '" .) -}}
{{- end -}}
{{- if or $hint (ne $.kind "custom") -}}
{{- $faults = append $faults (printf "adapter.limits.%s.%s: unknown family%s" $place $name (default (printf ": use one of: %s" (join ", " $known)) $hint)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns a JSON list of faults of the durations of node deletion. Takes nodeController.deletion. */}}
{{- define "cloud-controllers.deletionFaults" -}}
{{- $faults := list -}}
{{- $second := "[1-9][0-9]*[hms]|[1-9][0-9]{3,}ms" -}}
{{- if not (regexMatch "[1-9]" .monitorPeriod) -}}
{{- $faults = append $faults (printf "nodeController.deletion.monitorPeriod: %s is too short; set it to 100ms or more, such as 5s" .monitorPeriod) -}}
{{- end -}}
{{- if not (regexMatch $second (regexReplaceAll "(^|[a-z])[0-9]{1,3}ms" .confirmAfter "${1}")) -}}
{{- $faults = append $faults (printf "nodeController.deletion.confirmAfter: %s is too short; set it to 1s or more, such as 30s" .confirmAfter) -}}
{{- end -}}
{{- if not (regexMatch $second (regexReplaceAll "(^|[a-z])[0-9]{1,3}ms" .window "${1}")) -}}
{{- $faults = append $faults (printf "nodeController.deletion.window: %s is too short; set it to 1s or more, such as 10m" .window) -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns a JSON list of faults of the values of the service-controller. Takes the root. */}}
{{- define "cloud-controllers.serviceFaults" -}}
{{- $faults := list -}}
{{- $service := .Values.serviceController -}}
{{- $class := $service.loadBalancerClass -}}
{{- if not (or $class $service.defaultLoadBalancer) -}}
{{- $faults = append $faults "serviceController.defaultLoadBalancer: false without a class selects no Service; set serviceController.loadBalancerClass, or set serviceController.enabled to false" -}}
{{- end -}}
{{- $template := $service.loadBalancerNameTemplate -}}
{{- if and $template (not (contains "{uid}" $template)) -}}
{{- if not (and (contains "{namespace}" $template) (contains "{service}" $template)) -}}
{{- $faults = append $faults (printf "serviceController.loadBalancerNameTemplate: %s gives two Services the same name; add {uid}, or {namespace} and {service}" $template) -}}
{{- else if regexMatch "[{](namespace|service)}[{](namespace|service)}" $template -}}
{{- $faults = append $faults (printf "serviceController.loadBalancerNameTemplate: %s gives two Services the same name; put a - or a _ between {namespace} and {service}" $template) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $service.onUninstall "delete") (not (include "cloud-controllers.runsHooks" .)) -}}
{{- $faults = append $faults "serviceController.onUninstall: delete needs Helm or Flux, which run the hooks of the chart when they uninstall the release, but the chart is only rendered here, as by `helm template`, `--dry-run=client` or Argo CD; set it to keep, and delete the Services before you delete the application" -}}
{{- end -}}
{{- $age := $service.orphanMinimumAge -}}
{{- $unit := dict "s" 1 "m" 60 "h" 3600 -}}
{{- $seconds := mul (trimSuffix (regexFind "[smh]$" $age) $age | atoi) (get $unit (regexFind "[smh]$" $age)) -}}
{{- if or (lt $seconds 1) (gt $seconds 86400) -}}
{{- $faults = append $faults (printf "serviceController.orphanMinimumAge: %s is not from 1s to 24h; set it to a duration such as 1h" $age) -}}
{{- end -}}
{{- $rules := .Files.Get "files/annotations.yaml" | fromYaml -}}
{{- range $key, $value := $service.serviceDefaults -}}
{{- $place := printf "serviceController.serviceDefaults.%s" $key -}}
{{- $ofPort := regexMatch "^port[.][^.]+[.]" $key -}}
{{- if or $ofPort (and (has $key $rules.keys) (not (has $key $rules.defaultKeys))) -}}
{{- $faults = append $faults (printf "%s: applies to one Service or port and cannot have a default; set it as an annotation" $place) -}}
{{- else if not (or (has $key $rules.keys) (regexMatch "^x[.][^.]+[.]." $key)) -}}
{{- $hint := ": use one of those in docs/reference/annotations.md, such as idle-timeout" -}}
{{- with include "cloud-controllers.similarKeys" (dict "given" $key "known" $rules.defaultKeys) | fromJsonArray -}}
{{- $hint = printf ", did you mean '%s'?" (join "' or '" .) -}}
{{- end -}}
{{- $faults = append $faults (printf "%s: unknown key%s" $place $hint) -}}
{{- end -}}
{{- $ports := join "," $service.healthCheckPorts -}}
{{- if and (eq $key "health-check.port") (not (has (toString $value) (splitList "," $ports))) -}}
{{- $faults = append $faults (printf "%s: %s is not in serviceController.healthCheckPorts (%s); add it there" $place (toString $value) $ports) -}}
{{- end -}}
{{- range $rules.values -}}
{{- if and (has $key .keys) (not (regexMatch (printf "^(%s)$" .pattern) (toString $value))) -}}
{{- $faults = append $faults (printf "%s: invalid value %q; set it to %s" $place (toString $value) .says) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns a JSON list of faults of the values for OpenStack. Takes the root. */}}
{{- define "cloud-controllers.openstackFaults" -}}
{{- $faults := list -}}
{{- $adapter := .Values.adapter -}}
{{- $openstack := $adapter.openstack -}}
{{- if eq $adapter.kind "openstack" -}}
{{- if and $adapter.credentialsSecret $openstack.cloudsYaml -}}
{{- $faults = append $faults "adapter.openstack.cloudsYaml: cannot be set together with adapter.credentialsSecret; remove one of them" -}}
{{- end -}}
{{- if and $openstack.ca (not $openstack.cloudsYaml) -}}
{{- $faults = append $faults "adapter.openstack.ca: needs adapter.openstack.cloudsYaml; with adapter.credentialsSecret, put the certificates into that Secret as ca.crt" -}}
{{- end -}}
{{- if and .Values.routeController.enabled (not $openstack.routerId) -}}
{{- $faults = append $faults "adapter.openstack.routerId: is required for the route-controller; set it to the ID of the router of the nodes' network (openstack router list), or leave routeController.clusterCidr empty where the CNI plugin routes by itself" -}}
{{- end -}}
{{- if and $openstack.loadBalancers.subnetId $openstack.loadBalancers.networkId -}}
{{- $faults = append $faults "adapter.openstack.loadBalancers.networkId: cannot be set together with subnetId, which implies the network; remove one of them" -}}
{{- end -}}
{{- else if $openstack.cloudsYaml -}}
{{- $faults = append $faults (printf "adapter.openstack.cloudsYaml: is only for adapter.kind openstack, but adapter.kind is %s; leave it empty" $adapter.kind) -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/*
Returns a JSON list of faults of a log filter. A directive without a level is refused, since the programs would take it for the name of
a target. Takes the filter.
*/}}
{{- define "cloud-controllers.logLevelFaults" -}}
{{- $levels := list "off" "error" "warn" "info" "debug" "trace" -}}
{{- $faults := list -}}
{{- range $directive := splitList "," . -}}
{{- $level := splitList "=" $directive | last -}}
{{- if not (or (has (lower $level) $levels) (regexMatch "^[0-5]$" $level)) -}}
{{- $faults = append $faults (printf "logLevel: unknown log level '%s': use one of: %s, or target=level such as info,service_controller=debug" $level (join ", " $levels)) -}}
{{- else if regexMatch "\\s" $directive -}}
{{- $faults = append $faults (printf "logLevel: %q contains a space; separate directives by commas only, such as info,service_controller=debug" $directive) -}}
{{- end -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns a JSON list of faults of one or two CIDRs. Takes the text, which may be empty. */}}
{{- define "cloud-controllers.clusterCidrFaults" -}}
{{- $faults := list -}}
{{- $families := list -}}
{{- range $cidr := splitList "," . | compact -}}
{{- $parts := splitList "/" $cidr -}}
{{- $family := include "cloud-controllers.ipFamily" (first $parts) -}}
{{- $longest := ternary 128 32 (eq $family "IPv6") -}}
{{- if not $family -}}
{{- $faults = append $faults (printf "routeController.clusterCidr: %s is not a CIDR; set it to an address and a prefix length, such as 10.244.0.0/16" $cidr) -}}
{{- else if gt (last $parts | atoi) $longest -}}
{{- $faults = append $faults (printf "routeController.clusterCidr: the prefix length of %s is more than the %d bits of %s; set it to a CIDR such as 10.244.0.0/16 or fd00:10:244::/48" $cidr $longest $family) -}}
{{- else if has $family $families -}}
{{- $faults = append $faults (printf "routeController.clusterCidr: %s is a second network of %s; keep one of each family, such as 10.244.0.0/16,fd00:10:244::/48" $cidr $family) -}}
{{- end -}}
{{- $families = append $families $family -}}
{{- end -}}
{{- toJson $faults -}}
{{- end }}

{{/* Returns IPv4, IPv6, or an empty string for text that is not an IP address. Takes the text. */}}
{{- define "cloud-controllers.ipFamily" -}}
{{- $byte := "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" -}}
{{- $ipv4 := printf "(%s\\.){3}%s" $byte $byte -}}
{{- if regexMatch (printf "^%s$" $ipv4) . -}}
IPv4
{{- else -}}
{{- /* The last 32 bits may be written as in IPv4. */ -}}
{{- $text := regexReplaceAll (printf ":%s$" $ipv4) . ":0:0" -}}
{{- $group := "[0-9a-fA-F]{1,4}" -}}
{{- $groups := printf "(%s(:%s)*)?" $group $group -}}
{{- $whole := regexMatch (printf "^%s(:%s){7}$" $group $group) $text -}}
{{- $shortened := and (regexMatch (printf "^%s::%s$" $groups $groups) $text) (le (len (without (splitList ":" $text) "")) 7) -}}
{{- if or $whole $shortened -}}
IPv6
{{- end -}}
{{- end -}}
{{- end }}

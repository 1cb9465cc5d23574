{{/* A resource in the release's namespace, with the labels of base/kustomization.yaml and those of Helm. */}}
{{- define "kp.resource" }}
{{- $labels := dict "app.kubernetes.io/managed-by" .root.Release.Service "app.kubernetes.io/instance" .root.Release.Name }}
{{- range (.root.Files.Get "base/kustomization.yaml" | fromYaml).labels }}
{{- $labels = merge $labels .pairs }}
{{- end }}
{{- $metadata := .resource.metadata }}
{{- $_ := set $metadata "namespace" .root.Release.Namespace }}
{{- $_ := set $metadata "labels" (merge (default dict $metadata.labels) $labels) }}
---
{{ toYaml .resource }}
{{- end }}

{{/* Changes the pods of a Deployment or Job by the values that concern all of them. */}}
{{- define "kp.pods" }}
{{- $pod := .resource.spec.template.spec }}
{{- $container := first $pod.containers }}
{{- $_ := set $container "image" .root.Values.image }}
{{- $env := dict }}
{{- with .root.Values.brokers.servers }}
{{- $_ := set $env "KP_KAFKA__BOOTSTRAP_SERVERS" . }}
{{- end }}
{{- range $name, $value := merge $env (default dict .root.Values.env) }}
{{- $_ := set $container "env" (append (default list $container.env) (dict "name" $name "value" $value)) }}
{{- end }}
{{- $metadata := default dict .resource.spec.template.metadata }}
{{- with .root.Values.annotations }}
{{- $_ := set $metadata "annotations" (merge (deepCopy .) (default dict $metadata.annotations)) }}
{{- end }}
{{- with .root.Values.labels }}
{{- $_ := set $metadata "labels" (merge (default dict $metadata.labels) .) }}
{{- end }}
{{- if $metadata }}
{{- $_ := set .resource.spec.template "metadata" $metadata }}
{{- end }}
{{- with .root.Values.brokers.secret }}
{{- $_ := set $pod.securityContext "fsGroup" $pod.securityContext.runAsGroup }}
{{- include "kp.volume" (dict "pod" $pod "name" "kafka" "at" "/etc/kp-worker-kafka" "source" (dict "secret" (dict "secretName" . "defaultMode" 0440))) }}
{{- end }}
{{- end }}

{{/* The workers' group, if the values or the config name one: `kafka.group` is the only setting of this name. */}}
{{- define "kp.group" }}
{{- $line := regexFind "(?m)^\\s*(kafka\\.)?group\\s*=\\s*[\"'][^\"']+" (default "" .Values.config) }}
{{- default (regexReplaceAll "^[^\"']*[\"']" $line "") (index (default dict .Values.env) "KP_KAFKA__GROUP") }}
{{- end }}

{{/* Mounts a volume in a pod's container. */}}
{{- define "kp.volume" }}
{{- $container := first .pod.containers }}
{{- $_ := set .pod "volumes" (append .pod.volumes (merge (dict "name" .name) .source)) }}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" .name "mountPath" .at "readOnly" true)) }}
{{- end }}

{{/* The name of everything: that of the release, if it says what it is. */}}
{{- define "ksctl-gitops.name" -}}
{{- $name := .Release.Name | replace "." "-" }}
{{- if contains .Chart.Name $name }}{{ $name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" $name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "ksctl-gitops.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "ksctl-gitops.name" .) }}{{ else }}{{ .Values.serviceAccount.name | required "serviceAccount.name: say which, or let the chart create it" }}{{ end }}
{{- end }}

{{- define "ksctl-gitops.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "ksctl-gitops.labels" -}}
app.kubernetes.io/part-of: ksctl-gitops
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ksctl-gitops.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default (.Chart.AppVersion | replace "+" "_") }}{{ end }}
{{- end }}

{{/* Objects of a generated file, under the name of the release: a list of them. */}}
{{- define "ksctl-gitops.rename" -}}
{{- $root := index . 0 }}
{{- range splitList "\n---\n" (printf "\n%s" (index . 1)) }}
{{- with fromYaml . }}
{{- $_ := set .metadata "name" (.metadata.name | replace "ksctl-gitops" (include "ksctl-gitops.name" $root)) }}
{{- if .metadata.namespace }}{{ $_ := set .metadata "namespace" $root.Release.Namespace }}{{ end }}
{{- $_ := set .metadata "labels" (merge (fromYaml (include "ksctl-gitops.labels" $root)) (.metadata.labels | default dict)) }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

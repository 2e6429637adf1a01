{{- define "minimart.selector" -}}
app.kubernetes.io/name: minimart
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "minimart.account" -}}
{{- .Values.serviceAccount.name | default (ternary .Release.Name "default" .Values.serviceAccount.create) }}
{{- end }}

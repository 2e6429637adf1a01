{{ define "ca" }}
{{ $ca := genCA "x" 365 }}{{ end }}

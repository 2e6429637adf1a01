package behaviors

// values are about the values of charts and subcharts.
var values = []Behavior{
	{Name: "booleans as keys of values", Files: map[string]string{"values.yaml": "on: {a: 1, b: 1}\nn: default\n",
		"templates/a.yaml": valuesTemplate},
		Values: "on: {a: 2}\nno: given\n'y': quoted\n"},
	{Name: "numbers in values", Files: map[string]string{
		"values.yaml": "defaults: {big: 12345678, huge: 9007199254740993, float: 1.50, octal: 0644, hex: 0x1F, " +
			"exponent: 1e6, whole: 2.0, small: 0.0000001}\n",
		"templates/a.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data:
{{- range $set := list "defaults" "given" }}
{{- range $key, $value := index $.Values $set }}
  {{ $set }}-{{ $key }}: {{ printf "%v %s %T %s" $value (toString $value) $value (int64 $value | toString) | quote }}
{{- end }}
{{- end }}
  json: {{ .Values | toJson | quote }}
  yaml: {{ .Values | toYaml | quote }}
`},
		Values: "given: {big: 12345678, huge: 9007199254740993, float: 1.50, octal: 0644, hex: 0x1F, exponent: 1e6, " +
			"whole: 2.0, small: 0.0000001}\n"},
	{Name: "nulls in values", Files: map[string]string{
		"values.yaml": "removed: default\nkept: default\nown: null\nnested: {removed: 1, kept: 2, own: null}\n" +
			"list: [1, 2]\nprobe: {httpGet: {path: /, port: 80}}\ncache: {removed: 1, kept: 2}\n",
		"templates/a.yaml":              valuesTemplate,
		"charts/cache/Chart.yaml":       "apiVersion: v2\nname: cache\nversion: 1.0.0\n",
		"charts/cache/values.yaml":      "removed: 0\nkept: 0\nmore: {removed: 1, kept: 2}\nown: null\n",
		"charts/cache/templates/a.yaml": valuesTemplate,
	},
		Values: "removed: null\nunknown: null\nnested: {removed: null, unknown: null}\nlist: null\n" +
			"probe: {httpGet: null, exec: {command: [true]}}\ncache: {removed: null, more: {removed: null}}\n"},
	{Name: "conditions, tags, aliases and imports of subcharts", Files: map[string]string{
		"Chart.yaml": `apiVersion: v2
name: shop
version: 1.0.0
dependencies:
- {name: cache, version: 1.x, condition: cache.enabled}
- {name: cache, version: 1.x, alias: second, condition: "second.unset,second.enabled"}
- {name: cache, version: 1.x, alias: third, condition: third.enabled, tags: [extra]}
- {name: search, version: ">=1", tags: [extra]}
- {name: queue, version: 1.0.0, tags: [none, extra], import-values: [data, {child: deep.er, parent: queued}]}
`,
		"values.yaml": "cache: {enabled: true, size: 1}\nsecond: {enabled: true, size: 2}\nthird: {enabled: false}\n" +
			"tags: {extra: false, none: true}\nglobal: {zone: a}\n",
		"templates/a.yaml":               valuesTemplate,
		"charts/cache/Chart.yaml":        "apiVersion: v2\nname: cache\nversion: 1.2.3\n",
		"charts/cache/values.yaml":       "size: 0\nglobal: {zone: b, only: cache}\n",
		"charts/cache/templates/a.yaml":  valuesTemplate,
		"charts/search/Chart.yaml":       "apiVersion: v2\nname: search\nversion: 1.0.0\n",
		"charts/search/templates/a.yaml": valuesTemplate,
		"charts/queue/Chart.yaml":        "apiVersion: v2\nname: queue\nversion: 1.0.0\n",
		"charts/queue/values.yaml":       "exports: {data: {imported: 1}}\ndeep: {er: {imported: 2}}\n",
		"charts/queue/templates/a.yaml":  valuesTemplate,
	},
		Values: "second: {size: 3}\nglobal: {region: x}\n"},
}

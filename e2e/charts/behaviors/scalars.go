package behaviors

// keys are about keys of objects.
var keys = []Behavior{
	{Name: "a key that is set several times",
		Files: map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n " +
			" labels: {x: a}\n  labels: {y: b}\ndata: {k: one, k: two}\n"},
		Warnings: `component "my": shop/templates/a.yaml: the key "k" is set several times ` +
			"(line 7 of the rendered template); its last value is used\n" +
			`component "my": shop/templates/a.yaml: the key "labels" is set several times ` +
			"(line 6 of the rendered template); its last value is used"},
	{Name: "booleans as keys of objects", Files: map[string]string{
		"templates/a.yaml": configMap("a") + "data: {on: a, n: b, 'y': c, Yes: d, \"off\": e}\n"}},
	{Name: "other keys that are not strings", Files: map[string]string{
		"templates/a.yaml": configMap("a") + "data: {1: a, 1.50: b, 0x1F: c, 0644: d, 2020-01-02: e, TRUE: f, " +
			"0.123456789: g, -.5: h, '1.0': i}\n"}},
}

// scalars are about values of objects.
var scalars = []Behavior{
	{Name: "numbers", Files: map[string]string{"crds/a.yaml": definition("numbers"), "templates/a.yaml": widget("a", `spec:
  integers: [0, -1, 12345678, 2147483648, 9007199254740993, 9223372036854775807, 0644, 0o644, 0x1F, 0b11, 1_000, +1]
  floats: [1.0, 1.50, -0.25, .5, 1e3, 1E-7, 1.5e300, 12345678.9, 100000000000000000000, 685_230.15]
  strings: ["1", '0644', 08, 09, 1.2.3, 1e, 190:20:30, 0x, 12e03x]
`)}},
	{Name: "booleans, dates and other words", Files: map[string]string{"crds/a.yaml": definition("words"),
		"templates/a.yaml": widget("a", `spec:
  booleans: [true, True, FALSE, yes, No, on, OFF, y, n, Y, N]
  dates: [2020-01-02, 2020-01-02T03:04:05Z, 2020-01-02 03:04:05]
  words: [Null, ~, "null", nil, none, =, <<]
  tagged: [!!str 1, !!int "1", !!float 1, !!bool "true", !!binary aGVsbG8=]
`)}},
	{Name: "forms of strings", Files: map[string]string{"templates/a.yaml": configMap("a") + `data:
  folded: >
    one
    two

    three
      four
  kept: >+
    one

  stripped: |-
    one

  indented: |2
      one
    two
  plain: one
    two
  double: "one \
    two\n\u00e9\x41\t"
  single: 'it''s

    two'
  colon: http://example.org:80/#fragment
  comment: one # two
  empty: ""
  unicode: "\U0001F600 é 漢"
  trailing: |
    one  
    	two
`}},
	{Name: "anchors and merge keys", Files: map[string]string{"crds/a.yaml": definition("anchors"),
		"templates/a.yaml": widget("a", `spec:
  base: &base {a: 1, b: 2}
  list: &list [x, y]
  alias: *list
  merged: {<<: *base, b: 3}
  several:
    <<: [*base, {c: 4, a: 5}]
    d: 6
`)}},
}

// nulls are about objects with null.
var nulls = []Behavior{
	{Name: "nulls in objects", Files: map[string]string{"crds/a.yaml": definition("nulls"),
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n  annotations: null\n" +
			"data:\nbinaryData: ~\nimmutable:\n",
		"templates/b.yaml": widget("b", "spec: {none: null, some: {none: ~, list: [null, 1], empty: {}, no: []}}\n"),
		"templates/c.yaml": configMap("c") + "data: {}\n"}},
	{Name: "a null as the value of a ConfigMap and of a label", Files: map[string]string{
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {some: one, none: null}}\n" +
			"data: {some: one, none: null}\n"}},
	{Name: "nulls in a workload", Files: map[string]string{
		"templates/a.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  replicas: null
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}, annotations: }
    spec:
      nodeSelector:
      affinity:
      tolerations:
      securityContext: {}
      containers:
      - {name: main, image: "example.org/main:1", env: null, resources: {limits: null}, livenessProbe: , args: }
`}},
}

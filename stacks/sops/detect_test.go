package sops

import "testing"

func TestIsEncrypted(t *testing.T) {
	for _, c := range []struct {
		data   string
		format Format
		want   bool
	}{
		{`{"a":"ENC[AES256_GCM,data:x]","sops":{"mac":"ENC[x]","lastmodified":"2026-01-01T00:00:00Z"}}`, JSON, true},
		{`{"data":"ENC[AES256_GCM,data:x]","sops":{"mac":"ENC[x]"}}`, Binary, true},
		{"a: ENC[AES256_GCM,data:x]\nsops:\n  mac: ENC[x]\n", YAML, true},
		{"a: 1\nsops: {version: 3}\n", YAML, false},
		{`{"sops":"a word"}`, JSON, false},
		{`{"about":"sops"}`, JSON, false},
		{`{"sops": ENC[`, JSON, true},
		{`{"sops": `, JSON, false},
		{"A=b\nsops_mac=ENC[x]\n", Dotenv, true},
		{"A=sops_mac=\n", Dotenv, false},
		{"[a]\nb = c\n[sops]\nmac = x\n", INI, true},
		{"[a]\nb = [sops]\n", INI, false},
		{"[sops]\nversion = 1\n", INI, false},
		{"a: 1\n---\na: ENC[x]\nsops: {lastmodified: x}\n", YAML, true},
		{"x: &m {mac: x}\nsops: *m\n", YAML, true},
		{"sops: [mac]\n", YAML, false},
		{"- sops: {mac: x}\n", YAML, false},
		{"a: ENC[x]\nsops:\n\tmac: x\n", YAML, true},
		{"{{ if .x }}\na: ENC[x] # sops\n", YAML, false},
		{"{{ if .x }} sops ENC[", Binary, false},
		{"plain", Binary, false},
	} {
		if got := IsEncrypted([]byte(c.data), c.format); got != c.want {
			t.Errorf("%s %s: got %v", c.format, c.data, got)
		}
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name, data string
		format     Format
		want       bool
	}{
		{"a.yaml", "a: ENC[x]\nsops: {mac: x}\n", YAML, true},
		{"a.yaml", "A=b\nsops_mac=x\n", YAML, false},
		{"a.env", "A=b\nsops_mac=x\n", Dotenv, true},
		{"token", `{"data":"ENC[x]","sops":{"mac":"x"}}`, Binary, true},
		{"token", "A=b\nsops_mac=x\n", Dotenv, true},
		{"app.conf", "[a]\nb = c\n[sops]\nlastmodified = x\n", INI, true},
		{"values.enc", "a: ENC[x]\nsops: {mac: x}\n", YAML, true},
		{"README.md", "# With sops\n\tit is\nsops:\n  mac: ENC[x]\n", Binary, false},
		{"config.toml", "[sops]\nenabled = true\n", Binary, false},
		{"x.tgz", "\x1f\x8b sops ENC[", Binary, false},
	} {
		if f, got := Detect(c.name, []byte(c.data)); got != c.want || f != c.format {
			t.Errorf("%s %q: got %s %v", c.name, c.data, f, got)
		}
	}
}

// FuzzDetect checks that Detect and IsEncrypted agree on any file.
func FuzzDetect(f *testing.F) {
	f.Add("a.yaml", []byte("a: ENC[x]\nsops: {mac: x}\n"))
	f.Add("a", []byte("a: &a [*a]\nsops: *a\n"))
	f.Add("a.json", []byte(`{"sops":{"mac":1}}`))
	f.Add("a.ini", []byte("[sops]\nmac = x\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		format, encrypted := Detect(name, data)
		if encrypted && !IsEncrypted(data, format) {
			t.Errorf("%s is detected as encrypted %s, and IsEncrypted is false", name, format)
		}
	})
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{"a/b.yaml": YAML, "b.yml": YAML, "x.enc.json": JSON, "x.env": Dotenv,
		"x.ini": INI, "x": Binary,
		"config.dockerconfigjson": JSON} {
		if got := FormatOf(name); got != want {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestErrorTerminal(t *testing.T) {
	for reason, want := range map[Reason]bool{KeyMissing: true, IntegrityFailed: true, ServiceFailed: false,
		Unavailable: false, Interrupted: false} {
		if got := (&Error{Reason: reason}).Terminal(); got != want {
			t.Errorf("%s: got %v", reason, got)
		}
	}
}

package codec

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/sops"
)

func TestTampered(t *testing.T) {
	id := newAge(t)
	const plain = "password: hunter2-secret\nother: value-secret\nkind: Secret\nlist: [one, two]\n"
	file := encrypted(t, plain, sops.YAML, EncryptOptions{EncryptedRegex: "^(password|other)$"}, id.Recipient().String())
	all := regexp.MustCompile(`ENC\[[^]]*\]`).FindAll(file, -1)
	password, other := string(all[0]), string(all[1])
	mac := regexp.MustCompile(`\n    mac: .*`)
	date := regexp.MustCompile(`lastmodified: .*`)
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"a plain value is changed":       {changed(t, file, "kind: Secret", "kind: ConfigMap"), "is not that of its values"},
		"a plain value is added":         {append([]byte("more: x\n"), file...), "is not that of its values"},
		"a plain value is removed":       {changed(t, file, "kind: Secret\n", ""), "is not that of its values"},
		"a secret is written plainly":    {changed(t, file, password, "hunter3-secret"), "does not decrypt"},
		"values change places":           {changed(t, file, password, other), "does not decrypt"},
		"a value is damaged":             {changed(t, file, password[:30], password[:28]+"!!"), "does not decrypt"},
		"the MAC is missing":             {mac.ReplaceAll(file, nil), "no MAC"},
		"the MAC is empty":               {mac.ReplaceAll(file, []byte("\n    mac: \"\"")), "no MAC"},
		"the MAC is another value":       {mac.ReplaceAll(file, []byte("\n    mac: "+password)), "can't be read"},
		"the time of the MAC is another": {date.ReplaceAll(file, []byte(`lastmodified: "2020-01-01T00:00:00Z"`)), "can't be read"},
	} {
		out, err := Decrypt(t.Context(), c.file, sops.YAML, ageKeys(t, id), Options{})
		t.Log(name)
		refused(t, err, sops.IntegrityFailed, c.says, "hunter2-secret", "hunter3-secret", "value-secret", id.String())
		if out != nil || !ours(err).Terminal() {
			t.Errorf("%s: something came back, or it is tried again", name)
		}
	}
}

func TestMissingKeys(t *testing.T) {
	id, other := newAge(t), newAge(t)
	file := encrypted(t, plainYAML, sops.YAML, EncryptOptions{}, id.Recipient().String())
	_, err := Decrypt(t.Context(), file, sops.YAML, Keys{}, Options{})
	refused(t, err, sops.KeyMissing, "encrypted to the age recipients "+id.Recipient().String()+", and no age identity is given (a key *.agekey of the Secret)", id.String())
	_, err = Decrypt(t.Context(), file, sops.YAML, ageKeys(t, other), Options{})
	refused(t, err, sops.KeyMissing, "the identities that are given are those of "+other.Recipient().String(), other.String())
}

func TestFilesThatAreNone(t *testing.T) {
	id := newAge(t)
	for name, c := range map[string]struct {
		file string
		f    Format
		says string
	}{
		"not YAML":       {"a: [hunter2-secret", sops.YAML, "it is no yaml file of SOPS"},
		"not JSON":       {`{"a": hunter2-secret}`, sops.JSON, "it is no json file of SOPS"},
		"not encrypted":  {"a: b\n", sops.YAML, "it is no yaml file of SOPS"},
		"empty":          {"", sops.JSON, "it is no json file of SOPS"},
		"unknown format": {"a", "toml", "no format toml"},
		"no key":         {"a: 1\nsops: {mac: x, lastmodified: 2026-11-01T12:00:00Z}\n", sops.YAML, ""},
		"many keys": {"sops:\n    lastmodified: \"2026-11-01T12:00:00Z\"\n    mac: ENC[x]\n    version: 3.9.0\n    age:\n" +
			strings.Repeat("        - recipient: age1x\n          enc: x\n", 300) + "a: b\n", sops.YAML, "encrypted to 300 keys"},
		"an alias bomb": {aliasBomb(), sops.YAML, "multiply without bound"},
		"large":         {strings.Repeat("x", 6<<20), sops.YAML, "at most 5242880"},
	} {
		out, err := Decrypt(t.Context(), []byte(c.file), c.f, ageKeys(t, id), Options{})
		t.Log(name)
		want := sops.FileInvalid
		if name == "no key" {
			want = ours(err).Reason
		}
		refused(t, err, want, c.says, "hunter2-secret", id.String())
		if out != nil {
			t.Errorf("%s: something came back", name)
		}
	}
}

// aliasBomb is nine lists of nine of the one before.
func aliasBomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := '1'; i <= '9'; i++ {
		before := string(i - 1)
		text += "a" + string(i) + ": &a" + string(i) + " [" + strings.TrimSuffix(strings.Repeat("*a"+before+", ", 9), ", ") + "]\n"
	}
	return text
}

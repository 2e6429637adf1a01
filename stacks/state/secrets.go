package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EncryptedRegex fits the names of what is known to be secret in every dialect, for the setting
// of SOPS of the same name. [Seal] goes further: it encrypts what it does not know, too.
const EncryptedRegex = `(?i)^(cluster_kubeconfig|private_key|PrivateKey|etcd_key|k3s_token|certificate_key|bootstrap_token|` +
	`access_key_id|secret_access_key|AcessKeyID|AcessKeySecret|subscription_id|tenant_id|client_id|client_secret|token)$`

// secretKey fits these, and the whole of credentials, whatever cloud they are of.
var secretKey = regexp.MustCompile(EncryptedRegex + `|^` + credentialsKey + `$`)

// Secrets are JSON pointers (RFC 6901) of what is known to be secret in a file and is not encrypted:
// by its name, or by what it looks like where the name says nothing. Values that are
// empty are none.
func Secrets(data []byte) ([]string, error) {
	s, err := plain(data)
	return s.found, err
}

// scan is what was looked for in a file: JSON pointers, and the values that these lead to.
type scan struct{ found, values []string }

func (s *scan) find(l leaf) { s.found, s.values = append(s.found, l.at), append(s.values, l.text()) }

// plain looks for what is secret in a file and can be read.
func plain(data []byte) (scan, error) {
	tree, err := decode(data)
	if err != nil {
		return scan{}, err
	}
	s := scan{}
	for _, l := range leaves(tree) {
		if _, ok := l.value.(bool); !ok && l.text() != "" && !encrypted(l.text()) && (l.secret || telling(l.text())) {
			s.find(l)
		}
	}
	return s, nil
}

// Sealed are JSON pointers of the values in a file that are encrypted in the form of SOPS.
func Sealed(data []byte) ([]string, error) {
	tree, err := decode(data)
	if err != nil {
		return nil, err
	}
	s := scan{}
	for _, l := range leaves(tree) {
		if encrypted(l.text()) {
			s.find(l)
		}
	}
	return s.found, nil
}

// leaf is a value that is neither an object nor a list nor null.
type leaf struct {
	// at is the JSON pointer to it, names are the keys in that.
	at    string
	names []string
	value any
	// secret is true where a name says so: then everything below it is.
	secret bool
}

// text of the value.
func (l leaf) text() string {
	switch v := l.value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// leaves of a file, in the order of their names. Credentials alone are secret as a whole.
func leaves(tree any) (out []leaf) {
	top, _ := tree.(object)
	var walk func(l leaf)
	walk = func(l leaf) {
		switch v := l.value.(type) {
		case object:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(leaf{l.at + "/" + pointer.Replace(key), append(slices.Clip(l.names), key), v[key], (l.secret || secretKey.MatchString(key)) && !ofThemselves[key]})
			}
		case []any:
			for i, v := range v {
				walk(leaf{fmt.Sprintf("%s/%d", l.at, i), l.names, v, l.secret})
			}
		case nil:
		default:
			out = append(out, l)
		}
	}
	walk(leaf{value: tree, secret: has(top, "cloud_provider") && !has(top, "cluster_name") && !has(top, "cloud_infrastructure_state")})
	return out
}

// ofThemselves is what credentials say of themselves.
var ofThemselves = map[string]bool{"cloud_provider": true, "ID": true, "sops": true}

// encrypted is true for a value in the form of SOPS.
func encrypted(v string) bool {
	return strings.HasPrefix(v, "ENC[") && strings.HasSuffix(v, "]")
}

// withPassword is an address with a password in it, such as that of a MongoDB.
var withPassword = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@`)

// telling is true for a value that is secret whatever it is called.
func telling(v string) bool {
	return strings.Contains(v, "PRIVATE KEY-----") || strings.Contains(v, "client-key-data:") || strings.Contains(v, "AGE-SECRET-KEY-") ||
		withPassword.MatchString(v)
}

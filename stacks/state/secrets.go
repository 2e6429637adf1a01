package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// EncryptedRegex fits the names of what is secret in every dialect, for the setting of
// SOPS of the same name: with it names, sizes and addresses stay readable.
const EncryptedRegex = `(?i)^(cluster_kubeconfig|private_key|PrivateKey|etcd_key|k3s_token|certificate_key|bootstrap_token|` +
	`access_key_id|secret_access_key|AcessKeyID|AcessKeySecret|subscription_id|tenant_id|client_id|client_secret|token)$`

// secretKey fits these, and the whole of credentials, whatever cloud they are of.
var secretKey = regexp.MustCompile(EncryptedRegex + `|^` + credentialsKey + `$`)

// Secrets are JSON pointers (RFC 6901) of what is secret in a file and not encrypted:
// by its name, or by what it looks like where the name says nothing. Values that are
// empty are none.
func Secrets(data []byte) ([]string, error) {
	s, err := plain(data)
	return s.found, err
}

// plain looks for what is secret in a file and can be read.
func plain(data []byte) (scan, error) {
	tree, err := decode(data)
	if err != nil {
		return scan{}, err
	}
	s := scan{plain: true}
	top, _ := tree.(object)
	s.walk(tree, "", has(top, "cloud_provider") && !has(top, "cluster_name") && !has(top, "cloud_infrastructure_state"))
	return s, nil
}

// Sealed are JSON pointers of the values in a file that are encrypted in the form of SOPS.
func Sealed(data []byte) ([]string, error) {
	tree, err := decode(data)
	if err != nil {
		return nil, err
	}
	s := scan{}
	s.walk(tree, "", false)
	return s.found, nil
}

// scan looks for what is secret: for what can be read of it, or for what can't.
type scan struct {
	plain bool
	// found are JSON pointers, values what these lead to.
	found, values []string
}

func (s *scan) find(at, value string) {
	s.found, s.values = append(s.found, at), append(s.values, value)
}

// walk looks at everything below a pointer; all of it is secret below a name that is.
func (s *scan) walk(v any, at string, secret bool) {
	switch v := v.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			s.walk(v[key], at+"/"+pointer.Replace(key), (secret || secretKey.MatchString(key)) && !open[key])
		}
	case []any:
		for i, v := range v {
			s.walk(v, fmt.Sprintf("%s/%d", at, i), secret)
		}
	case string:
		if encrypted(v) != s.plain && v != "" && (!s.plain || secret || telling(v)) {
			s.find(at, v)
		}
	case json.Number:
		if s.plain && secret {
			s.find(at, v.String())
		}
	}
}

// open are what credentials say of themselves.
var open = map[string]bool{"cloud_provider": true, "ID": true, "sops": true}

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

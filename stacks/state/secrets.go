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

// EncryptedRegex matches the names of the values that are known to be secret in any dialect. It is
// meant for the SOPS setting encrypted_regex. [Encrypt] goes further: it also encrypts unknown
// values.
const EncryptedRegex = `(?i)^(cluster_kubeconfig|private_key|PrivateKey|etcd_key|k3s_token|certificate_key|bootstrap_token|` +
	`access_key_id|secret_access_key|AcessKeyID|AcessKeySecret|subscription_id|tenant_id|client_id|client_secret|token)$`

// secretName matches the names of EncryptedRegex, and credentials as a whole, of any cloud.
var secretName = regexp.MustCompile(EncryptedRegex + `|^` + credentialsKey + `$`)

// SecretPointers returns the JSON pointers (RFC 6901) of the values in a file that are not
// encrypted and known to be secret: by their name, or by their form, such as that of a private key.
// It ignores empty values and booleans.
func SecretPointers(data []byte) ([]string, error) {
	tree, err := decode(data)
	return pointersOf(tree, leaf.isPlainSecret), err
}

// pointersOf returns the JSON pointers of the values in a file that match.
func pointersOf(tree any, match func(leaf) bool) (out []string) {
	for _, l := range leaves(tree) {
		if match(l) {
			out = append(out, l.pointer)
		}
	}
	return out
}

// isPlainSecret is true for a secret that is not encrypted.
func (l leaf) isPlainSecret() bool {
	_, isBool := l.value.(bool)
	return !isBool && l.text() != "" && !isEncrypted(l.text()) && (l.secret || looksSecret(l.text()))
}

// EncryptedPointers returns the JSON pointers of the values in a file that SOPS encrypted.
func EncryptedPointers(data []byte) ([]string, error) {
	tree, err := decode(data)
	return pointersOf(tree, func(l leaf) bool { return isEncrypted(l.text()) }), err
}

// leaf is a value that is neither an object nor a list nor null.
type leaf struct {
	// pointer is the JSON pointer of the value, names are the keys on the path to it, without list
	// indexes.
	pointer string
	path    []string
	value   any
	// secret is true if a name on the path marks the value, and everything below that name, as
	// secret.
	secret bool
}

// text returns the value as a string; "" for other types than string, number and bool.
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

// leaves returns the leaves of a file, sorted by name. All leaves of a credentials file are secret,
// except its metadata.
func leaves(tree any) (out []leaf) {
	top, _ := tree.(object)
	var walk func(l leaf)
	walk = func(l leaf) {
		switch v := l.value.(type) {
		case object:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(leaf{l.pointer + "/" + pointerEscaper.Replace(key), append(slices.Clip(l.path), key), v[key],
					(l.secret || secretName.MatchString(key)) && !credentialMetadata[key]})
			}
		case []any:
			for i, v := range v {
				walk(leaf{fmt.Sprintf("%s/%d", l.pointer, i), l.path, v, l.secret})
			}
		case nil:
		default:
			out = append(out, l)
		}
	}
	walk(leaf{value: tree, secret: hasKey(top, "cloud_provider") && !hasKey(top, "cluster_name") &&
		!hasKey(top, "cloud_infrastructure_state")})
	return out
}

// credentialMetadata are the names in credentials that are not secret.
var credentialMetadata = map[string]bool{"cloud_provider": true, "ID": true, "sops": true}

// isEncrypted is true for a value that SOPS encrypted.
func isEncrypted(v string) bool {
	return strings.HasPrefix(v, "ENC[") && strings.HasSuffix(v, "]")
}

// urlWithPassword matches a URL with a password, such as that of a MongoDB.
var urlWithPassword = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@`)

// looksSecret is true for a value that is secret whatever its name.
func looksSecret(v string) bool {
	return strings.Contains(v, "PRIVATE KEY-----") || strings.Contains(v, "client-key-data:") ||
		strings.Contains(v, "AGE-SECRET-KEY-") ||
		urlWithPassword.MatchString(v)
}

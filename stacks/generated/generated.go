// Package generated has the values that the templates of charts generate, such as passwords and
// certificates. A render gets the values of earlier renders and returns the new ones, so that each
// is generated once.
package generated

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Policy is what a render does when a template generates a value.
type Policy string

// Policies.
const (
	// Refuse derives random strings from the install and the chart, and refuses what cannot be
	// derived: keys, certificates, salts and the clock.
	Refuse Policy = ""
	// Keep generates values as Helm does, and uses those that were generated before.
	Keep Policy = "Keep"
	// Placeholders uses values that only look like generated ones. They are the same in each
	// render.
	Placeholders Policy = "Placeholders"
)

// Options are how a render generates values.
type Options struct {
	Policy Policy `json:"policy,omitempty"`
	// Owner is part of the names of the Secrets with the values, see SecretName. If it is empty,
	// the result has no such Secrets.
	Owner string `json:"owner,omitempty"`
	// Values that earlier renders generated, by component.
	Values map[string]*Values `json:"values,omitempty"`
	// Rotate is COMPONENT@TOKEN: all values of the component are generated again, once for each
	// token.
	Rotate string `json:"rotate,omitempty"`
	// Derive are components whose new random strings are derived as under Refuse, because that is
	// how their objects were rendered. No input of the digest of a render.
	Derive []string `json:"derive,omitempty"`
	// Now is the time for templates that read the clock for the first time with their chart and
	// values. No input of the digest of a render.
	Now time.Time `json:"now,omitzero"`
}

// With returns options with more values.
func (o Options) With(values map[string]*Values) Options {
	o.Values = maps.Clone(o.Values)
	if o.Values == nil {
		o.Values = map[string]*Values{}
	}
	maps.Copy(o.Values, values)
	return o
}

// maxBytes bounds the encoded values of a component. A Secret has at most 1 MiB.
const maxBytes = 900 << 10

// SecretType is the type of the Secrets with generated values. dataKey is the key of their data.
const (
	SecretType = "ksctl.com/generated-values"
	dataKey    = "values"
)

// SecretNamePrefix is the prefix of the names of the Secrets with generated values.
const SecretNamePrefix = "ksctl-generated-"

// SecretName returns the name of the Secret with the values of a component.
func SecretName(owner, component string) string {
	sum := sha256.Sum256([]byte(owner + "\x00" + component))
	return SecretNamePrefix + hex.EncodeToString(sum[:8])
}

// Secret returns the manifest of the Secret with values. The error is for the user.
func Secret(namespace, name string, v *Values) (map[string]any, error) {
	stored := *v
	stored.Lookups = v.storedLookups()
	raw, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxBytes {
		return nil, fmt.Errorf("the generated values and removal hooks have %d bytes; at most %d are kept", len(raw),
			maxBytes)
	}
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "type": SecretType, "metadata": metadata,
		"data": map[string]any{dataKey: base64.StdEncoding.EncodeToString(raw)}}, nil
}

// FromSecret returns the values in a Secret.
func FromSecret(secret *corev1.Secret) (*Values, error) {
	v := &Values{}
	if err := json.Unmarshal(secret.Data[dataKey], v); err != nil || secret.Type != SecretType {
		return nil, fmt.Errorf("Secret %s/%s does not have the generated values that the controller wrote: restore "+
			"it, or delete it to generate them again", secret.Namespace, secret.Name)
	}
	return v, nil
}

// Values are the generated values of a component.
type Values struct {
	// Key keys the hashes of arguments in Calls.
	Key []byte `json:"key,omitempty"`
	// Calls has the value that each call of a function in a template returned. A call is named
	// function#position@file, where position counts the calls of the function in an execution of
	// the file; for functions of whose arguments the value is made, function#position#hash@file.
	Calls map[string]Value `json:"calls,omitempty"`
	// Places has the call whose value is the whole value of a key of a Secret's data, by
	// namespace/name/key.
	Places map[string]string `json:"places,omitempty"`
	// Rotated is the token of Options.Rotate that was acted on last.
	Rotated string `json:"rotated,omitempty"`
	// Clock is the time that the templates read. Nil if they do not read it.
	Clock *Clock `json:"clock,omitempty"`
	// Lookups has the answer to each call of lookup, by Query.
	Lookups map[string]Lookup `json:"lookups,omitempty"`
	// Hooks are the objects that are created before and after a removal, encoded.
	Hooks []byte `json:"hooks,omitempty"`
	// Release is the release that the component was last rendered for. It is nil if nothing that is
	// rendered depends on it.
	Release *Release `json:"release,omitempty"`
}

// Release is the release of a component.
type Release struct {
	Revision int    `json:"revision"`
	Digest   string `json:"digest"`
}

// NewValues returns empty values with a key; with a random one if it is nil.
func NewValues(key []byte) *Values {
	if key == nil {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
	}
	return &Values{Key: key, Calls: map[string]Value{}, Places: map[string]string{}}
}

// ForRotation returns the values that a request to rotate leaves: v itself, or none for a token
// that was not acted on yet. rotate is Options.Rotate.
func (v *Values) ForRotation(component, rotate string) *Values {
	name, token, _ := strings.Cut(rotate, "@")
	if name != component || token == "" || v.Rotated == token {
		return v
	}
	out := NewValues(v.Key)
	out.Rotated = token
	for query, l := range v.Lookups { // what templates find is what they do not generate
		if out.Lookups == nil {
			out.Lookups = map[string]Lookup{}
		}
		out.Lookups[query] = Lookup{For: l.For, Foreign: l.Foreign, Emptied: true}
	}
	return out
}

// Clone returns a copy.
func (v *Values) Clone() *Values {
	out := NewValues(v.Key)
	out.Rotated = v.Rotated
	maps.Copy(out.Calls, v.Calls)
	maps.Copy(out.Places, v.Places)
	if v.Clock != nil {
		out.Clock = new(*v.Clock)
	}
	out.Lookups = maps.Clone(v.Lookups)
	out.Release = v.Release
	return out
}

// Hash returns a keyed hash of texts: 16 characters of base64url.
func (v *Values) Hash(texts ...string) string {
	mac := hmac.New(sha256.New, v.Key)
	for _, s := range texts {
		sum := sha256.Sum256([]byte(s))
		mac.Write(sum[:])
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:12])
}

// Value is a generated value.
type Value struct {
	// Text is the value, or the certificate in PEM.
	Text string `json:"text"`
	// PrivateKey of the certificate, in PEM.
	PrivateKey string `json:"privateKey,omitempty"`
	// Arguments of the call, unless they are hashed in its name.
	Arguments string `json:"arguments,omitempty"`
	// Derived is true for a value from before values were generated, see Options.Derive.
	Derived bool `json:"derived,omitempty"`
	// StaysLive is true for a value that is not applied where the cluster has another one, see
	// LiveFields.
	StaysLive bool `json:"staysLive,omitempty"`
}

// ShortestRecognized is the length in bytes from which a value is recognized in an object. A
// shorter one may be there by chance.
const ShortestRecognized = 6

// Clock is a time that stays the same until the chart or its values change.
type Clock struct {
	Time time.Time `json:"time"`
	// For is the keyed hash of the chart and its values.
	For string `json:"for"`
}

// IsEmpty reports whether there is nothing to store. The values may be nil.
func (v *Values) IsEmpty() bool {
	return v == nil || len(v.Calls) == 0 && v.Clock == nil && len(v.storedLookups()) == 0 &&
		len(v.Hooks) == 0 && v.Release == nil
}

// Equal reports whether other, which may be nil, has the same values.
func (v *Values) Equal(other *Values) bool {
	if v.IsEmpty() || other.IsEmpty() {
		return v.IsEmpty() == other.IsEmpty()
	}
	sameClock := v.Clock == nil && other.Clock == nil || v.Clock != nil && other.Clock != nil &&
		v.Clock.For == other.Clock.For && v.Clock.Time.Equal(other.Clock.Time)
	sameRelease := v.Release == nil && other.Release == nil || v.Release != nil && other.Release != nil &&
		*v.Release == *other.Release
	return sameClock && sameRelease && v.Rotated == other.Rotated && bytes.Equal(v.Key, other.Key) &&
		bytes.Equal(v.Hooks, other.Hooks) &&
		maps.Equal(v.Calls, other.Calls) && maps.Equal(v.Places, other.Places) &&
		maps.EqualFunc(v.storedLookups(), other.storedLookups(), sameLookup)
}

// HasOtherArguments reports whether the function of a call that its arguments identify is stored
// with other arguments.
func (v *Values) HasOtherArguments(call string) bool {
	name, file, _ := strings.Cut(call, "@")
	function := strings.Split(name, "#")
	for stored := range v.Calls {
		storedName, storedFile, _ := strings.Cut(stored, "@")
		other := strings.Split(storedName, "#")
		if len(function) == 3 && len(other) == 3 && function[0] == other[0] && file == storedFile {
			return true
		}
	}
	return false
}

// Secrets returns what messages must not contain: all values, the lines of those that are PEM, and
// those of Secrets that were looked up.
func (v *Values) Secrets() []string {
	if v == nil {
		return nil
	}
	out := v.lookupSecrets()
	for _, value := range v.Calls {
		for _, text := range []string{value.Text, value.PrivateKey} {
			if text == "" {
				continue
			}
			out = append(out, text)
			if !strings.HasPrefix(text, "-----BEGIN") {
				continue
			}
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "-----") {
					out = append(out, strings.TrimSpace(line))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Finder returns a function that reports whether JSON contains one of the values, as they are or in
// base64. Derived ones do not count: objects that have them were published before with their hash.
func (v *Values) Finder() func(text []byte) bool {
	var values [][]byte
	if v != nil {
		for _, value := range v.Calls {
			for _, text := range []string{value.Text, value.PrivateKey} {
				if len(text) >= ShortestRecognized && !value.Derived {
					values = append(values, inJSON(text), []byte(base64.StdEncoding.EncodeToString([]byte(text))))
				}
			}
		}
		for _, text := range v.lookupSecrets() {
			values = append(values, inJSON(text))
		}
	}
	return func(text []byte) bool {
		return slices.ContainsFunc(values, func(value []byte) bool { return bytes.Contains(text, value) })
	}
}

// TextFinder is Finder for a text that is no JSON.
func (v *Values) TextFinder() func(text string) bool {
	has := v.Finder()
	return func(text string) bool { return has(inJSON(text)) }
}

// inJSON returns text as it is between the quotes of a JSON string.
func inJSON(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string and a buffer never fail
	return bytes.Trim(b.Bytes(), "\"\n")
}

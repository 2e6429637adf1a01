package generated

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Query is a call of the template function lookup. Without a name it is for a list; without a
// namespace, for objects of all namespaces, or cluster-scoped ones.
type Query struct{ APIVersion, Kind, Namespace, Name string }

// String returns the key of the query in Values.Lookups.
func (q Query) String() string {
	return strings.Join([]string{q.APIVersion, q.Kind, q.Namespace, q.Name}, " ")
}

// ParseQuery parses the result of Query.String.
func ParseQuery(s string) (Query, error) {
	f := strings.Split(s, " ")
	if len(f) != 4 {
		return Query{}, fmt.Errorf("%q is not a query", s)
	}
	return Query{f[0], f[1], f[2], f[3]}, nil
}

// Lookup is the answer to a query.
type Lookup struct {
	// Object is the object or the list. Empty: nothing was found.
	Object json.RawMessage `json:"object,omitempty"`
	// For is the keyed hash of the chart and its values: with others, the query is answered again.
	For string `json:"for"`
	// Asked is true while the query has no answer.
	Asked bool `json:"asked,omitempty"`
	// Emptied is true if nothing is found because the values of the component were rotated.
	Emptied bool `json:"emptied,omitempty"`
	// Foreign is true if the install has no such object. The answer stays the same, so that it is
	// not stored.
	Foreign bool `json:"foreign,omitempty"`
}

// maxLookupBytes bounds the answer to one query.
const maxLookupBytes = 256 << 10

// NewAnswer returns the answer to an asked query. The object is nil if nothing was found.
func (l Lookup) NewAnswer(object map[string]any) (Lookup, error) {
	out := Lookup{For: l.For}
	if object == nil {
		return out, nil
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return out, err
	}
	if len(raw) > maxLookupBytes {
		return out, fmt.Errorf("the answer has %d bytes; at most %d are kept: look up single objects", len(raw),
			maxLookupBytes)
	}
	out.Object = raw
	return out, nil
}

// AskedQueries returns the queries without an answer, sorted.
func (v *Values) AskedQueries() (out []Query) {
	if v == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(v.Lookups)) {
		if q, err := ParseQuery(key); err == nil && v.Lookups[key].Asked {
			out = append(out, q)
		}
	}
	return out
}

// storedLookups returns the answers that are stored.
func (v *Values) storedLookups() map[string]Lookup {
	out := maps.Clone(v.Lookups)
	maps.DeleteFunc(out, func(_ string, l Lookup) bool { return l.Foreign })
	return out
}

func sameLookup(a, b Lookup) bool {
	return a.For == b.For && a.Asked == b.Asked && a.Emptied == b.Emptied && string(a.Object) == string(b.Object)
}

// lookupSecrets returns the values of the Secrets that were looked up.
func (v *Values) lookupSecrets() (out []string) {
	type secret struct {
		Data map[string]string `json:"data"`
	}
	for key, l := range v.Lookups {
		q, err := ParseQuery(key)
		if err != nil || q.APIVersion != "v1" || q.Kind != "Secret" {
			continue
		}
		var found struct {
			secret
			Items []secret `json:"items"`
		}
		if json.Unmarshal(l.Object, &found) != nil {
			continue
		}
		for _, s := range append(found.Items, found.secret) {
			for _, encoded := range s.Data {
				if raw, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(raw) >= ShortestRecognized {
					out = append(out, string(raw), encoded)
				}
			}
		}
	}
	return out
}

package convert

import (
	"encoding/base64"
	"fmt"
	"path"
	"reflect"
	"slices"
)

// lookup returns the object that a conversion refers to, or nil: that of its parent, else that of
// its cluster, else the only one. The namespace of an object in a file may be unset. Several with
// other content are refused.
func (c *converter) lookup(v *conversion, group string, ref reference) *Object {
	var found *Object
	best, several := -1, false
	known := c.known()
	for i := range known {
		o := &known[i]
		have := o.ref()
		if o.group() != group || have.kind != ref.kind || have.name != ref.name ||
			have.namespace != ref.namespace && have.namespace != "" {
			continue
		}
		rank := 2 * v.nearness(o)
		if have.namespace != "" {
			rank++
		}
		switch {
		case rank > best:
			found, best, several = o, rank, false
		case rank == best:
			several = several || !sameContent(found, o)
		}
	}
	if several {
		if reason := v.problem("", fmt.Sprintf("there are several %s with other content; convert one cluster at a "+
			"time", ref)); !slices.Contains(v.refused, reason) {
			v.refused = append(v.refused, reason)
		}
		return nil
	}
	return found
}

// nearness is higher for an object of the same parent or cluster.
func (v *conversion) nearness(o *Object) int {
	if o.parent == nil {
		if o.File != "" && path.Dir(o.File) == v.cluster {
			return 1
		}
		return 0
	}
	near := 3
	for at := v; at != nil && near > 1; at, near = at.object.parent, near-1 {
		if at.object.parent == o.parent || at == o.parent {
			return near
		}
	}
	if o.parent.cluster == v.cluster {
		return 1
	}
	return 0
}

func sameContent(a, b *Object) bool {
	for _, field := range []string{"spec", "data", "stringData", "binaryData"} {
		if !reflect.DeepEqual(a.Value[field], b.Value[field]) {
			return false
		}
	}
	return true
}

// dataOf returns the content of a key of a ConfigMap or a Secret.
func (c *converter) dataOf(v *conversion, ref reference, key string) ([]byte, bool) {
	data, ok := c.allDataOf(v, ref)[key]
	return data, ok
}

// allDataOf returns the content of a ConfigMap or a Secret; nil if it is unknown.
func (c *converter) allDataOf(v *conversion, ref reference) map[string][]byte {
	o := c.lookup(v, "", ref)
	if o == nil || o.encrypted {
		return nil
	}
	out := map[string][]byte{}
	for _, field := range []string{"data", "stringData"} {
		data, _ := o.Value[field].(map[string]any)
		for key, value := range data {
			text, _ := value.(string)
			out[key] = []byte(text)
			raw, err := base64.StdEncoding.DecodeString(text)
			if err == nil && ref.kind == "Secret" && field == "data" {
				out[key] = raw
			}
		}
	}
	return out
}

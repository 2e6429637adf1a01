package manifest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"strings"
)

// maxGeneratedPrefix leaves room for the hash: a Job and its Pods have names of at most 63
// characters.
const maxGeneratedPrefix = 63 - nameHashLength

const nameHashLength = 10

// setGeneratedName gives an object with generateName a name: the API server would give another one
// at each apply. The name ends with the hash of the content, so that other content is another
// object: a Job runs again.
func setGeneratedName(o *Object, meta map[string]any) error {
	prefix, _ := meta["generateName"].(string)
	delete(meta, "generateName")
	if name, _ := meta["name"].(string); name != "" || prefix == "" {
		return nil
	}
	content, err := Canonical(o.Value)
	if err != nil {
		return fmt.Errorf("the %s cannot be encoded as JSON", o.Kind)
	}
	o.NameHash = nameHash(sha256.New(), content)
	meta["name"] = prefix[:min(len(prefix), maxGeneratedPrefix)] + o.NameHash
	return nil
}

// IsHook is true for an object with the annotation of hooks.
func (o *Object) IsHook() bool {
	meta, _ := o.Value["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	_, isHook := annotations[HookAnnotation]
	return isHook
}

// RehashName replaces the hash in the name of an object with generateName by that of its present
// content, and returns true if it differs. The hash is keyed unless the key is nil. A name that was
// changed to one without the hash stays.
func (o *Object) RehashName(key []byte) (changed bool, err error) {
	at := strings.LastIndex(o.Name, o.NameHash)
	if o.NameHash == "" || at < 0 {
		return false, nil
	}
	// Without what the parsed object did not have, so that unchanged content has the same hash.
	value, meta := maps.Clone(o.Value), map[string]any{}
	if own, ok := o.Value["metadata"].(map[string]any); ok {
		meta = maps.Clone(own)
	}
	delete(meta, "name")
	if o.NamespaceDefaulted {
		delete(meta, "namespace")
	}
	value["metadata"] = meta
	content, err := Canonical(value)
	if err != nil {
		return false, fmt.Errorf("%s cannot be encoded as JSON", o)
	}
	h := sha256.New()
	if key != nil {
		h = hmac.New(sha256.New, key)
	}
	before := o.NameHash
	o.NameHash = nameHash(h, content)
	o.Name = o.Name[:at] + o.NameHash + o.Name[at+len(before):]
	if own, ok := o.Value["metadata"].(map[string]any); ok {
		own["name"] = o.Name
	}
	return o.NameHash != before, nil
}

func nameHash(h hash.Hash, content []byte) string {
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))[:nameHashLength]
}

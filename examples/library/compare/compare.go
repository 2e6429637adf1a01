package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks"
)

// compare prints the objects that differ between two installs. Objects with equal hashes are equal,
// so most objects need no comparison of their fields.
func compare(out io.Writer, a, b *install) error {
	left, right := a.objects(), b.objects()
	ids := maps.Clone(left)
	maps.Copy(ids, right)
	same := 0
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		l, inLeft := left[id]
		r, inRight := right[id]
		switch {
		case !inRight:
			fmt.Fprintf(out, "only in %s: %s\n", a.file, l.Ref)
		case !inLeft:
			fmt.Fprintf(out, "only in %s: %s\n", b.file, r.Ref)
		case l.Hash == r.Hash:
			same++
		default:
			fmt.Fprintf(out, "%s\n", l.Ref)
			if err := fields(out, l, r); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(out, "%d objects are the same\n", same)
	return nil
}

// objects returns the rendered objects by ID.
func (i *install) objects() map[string]stacks.Object {
	out := map[string]stacks.Object{}
	for _, c := range i.result.Components {
		for _, o := range c.Objects {
			out[o.ID()] = o
		}
	}
	return out
}

// fields prints the fields that differ between two versions of an object.
func fields(out io.Writer, a, b stacks.Object) error {
	var left, right any
	if err := json.Unmarshal(a.Manifest, &left); err != nil {
		return err
	}
	if err := json.Unmarshal(b.Manifest, &right); err != nil {
		return err
	}
	walk(out, nil, left, right)
	return nil
}

// walk prints the fields that differ between two values at path.
func walk(out io.Writer, path []string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	left, ok := a.(map[string]any)
	right, both := b.(map[string]any)
	if !ok || !both {
		fmt.Fprintf(out, "  %s: %s → %s\n", strings.Join(path, "."), short(a), short(b))
		return
	}
	keys := maps.Clone(left)
	maps.Copy(keys, right)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		walk(out, append(slices.Clone(path), key), left[key], right[key])
	}
}

// short returns a value as one line of at most 60 characters.
func short(v any) string {
	if v == nil {
		return "nothing"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	const limit = 60
	if text := []rune(string(data)); len(text) > limit {
		return string(text[:limit]) + "…"
	}
	return string(data)
}

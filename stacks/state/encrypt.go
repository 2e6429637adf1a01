package state

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/sops"
)

// EncryptError means that the encrypted file would show a value that may be secret, or would lose
// or change a value. It contains JSON pointers, never values.
type EncryptError struct {
	// Name is the name of the file.
	Name string
	// Readable are the values that would stay readable, Changed those that would change.
	Readable, Changed []string
}

func (e *EncryptError) Error() string {
	if len(e.Readable) > 0 {
		return fmt.Sprintf("%s: encryption leaves values readable that may be secret: %s", e.Name,
			summarize(e.Readable))
	}
	return fmt.Sprintf("%s: encryption changes values: %s", e.Name, summarize(e.Changed))
}

// summarize joins the first pointers, and counts the others.
func summarize(pointers []string) string {
	const maxPointers = 5
	if more := len(pointers) - maxPointers; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(pointers[:maxPointers], ", "), more)
	}
	return strings.Join(pointers, ", ")
}

// Encrypt encrypts a file for age recipients. It encrypts every value except those that are known
// to be public, such as names, sizes and addresses, so that values that a later release of ksctl
// adds are encrypted, too. It verifies the result. The error is an *EncryptError, or that of
// reading the file or of encrypt.
func Encrypt(ctx context.Context, name string, data []byte, recipients []string,
	encrypt sops.Encrypter) ([]byte, error) {
	before, err := decode(data)
	if err != nil {
		return nil, err
	}
	sealed, err := encrypt(ctx, sops.EncryptRequest{Name: name, Data: data, Format: sops.JSON, Recipients: recipients,
		UnencryptedRegex: unencryptedRegex(before)})
	if err != nil {
		return nil, err
	}
	after, err := decode(sealed)
	if err != nil {
		return nil, err
	}
	if top, ok := after.(object); ok {
		delete(top, "sops")
	}
	if e := (&EncryptError{Name: name, Readable: exposedPointers(after),
		Changed: changedPointers(before, after, "")}); len(e.Readable)+len(e.Changed) > 0 {
		return nil, e
	}
	return sealed, nil
}

// changedPointers returns the JSON pointers of the values that differ between a plain and an
// encrypted tree. An encrypted value does not differ if SOPS decrypts it to the same value.
func changedPointers(before, after any, at string) (out []string) {
	switch after := after.(type) {
	case object:
		o, ok := before.(object)
		if !ok || !slices.Equal(slices.Sorted(maps.Keys(o)), slices.Sorted(maps.Keys(after))) {
			return []string{at}
		}
		for _, key := range slices.Sorted(maps.Keys(after)) {
			out = append(out, changedPointers(o[key], after[key], at+"/"+pointerEscaper.Replace(key))...)
		}
		return out
	case []any:
		list, ok := before.([]any)
		if !ok || len(list) != len(after) {
			return []string{at}
		}
		for i, v := range after {
			out = append(out, changedPointers(list[i], v, fmt.Sprintf("%s/%d", at, i))...)
		}
		return out
	}
	if !survivesEncryption(before, after) {
		return []string{at}
	}
	return nil
}

// survivesEncryption is true if a value is unchanged, or if SOPS decrypts it to the same value.
func survivesEncryption(before, after any) bool {
	if s, ok := after.(string); ok && isEncrypted(s) {
		switch v := before.(type) {
		case string, bool:
			return true
		case json.Number:
			after = sopsNumber(v)
		}
	}
	a, err := encode(normalize(before))
	b, berr := encode(normalize(after))
	return err == nil && berr == nil && bytes.Equal(a, b)
}

// sopsNumber returns a number as SOPS decrypts it: integers of 64 bits are exact, other numbers
// become floats. It is nil if the number does not fit a float.
func sopsNumber(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil {
		return nil
	}
	return f
}

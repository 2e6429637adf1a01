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

// SealError says that a file can't be encrypted so that nothing stays readable that may be secret,
// and nothing is lost. It names JSON pointers, never values.
type SealError struct {
	// Name of the file.
	Name string
	// Readable is what would stay so, Changed what would become something else.
	Readable, Changed []string
}

func (e *SealError) Error() string {
	if len(e.Readable) > 0 {
		return fmt.Sprintf("%s: what may be secret stays readable, at %s", e.Name, some(e.Readable))
	}
	return fmt.Sprintf("%s: encrypting changes what it says, at %s", e.Name, some(e.Changed))
}

// some of many pointers.
func some(pointers []string) string {
	const most = 5
	if more := len(pointers) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(pointers[:most], ", "), more)
	}
	return strings.Join(pointers, ", ")
}

// Seal encrypts a file to public keys of age: every value but those that are known to be open, such as
// names, sizes and addresses. So what a later release of ksctl adds is encrypted, too. What it returns was
// looked through. Errors are *SealError and those of encrypt.
func Seal(ctx context.Context, name string, data []byte, recipients []string, encrypt sops.Encrypter) ([]byte, error) {
	was, err := decode(data)
	if err != nil {
		return nil, err
	}
	sealed, err := encrypt(ctx, sops.EncryptRequest{Name: name, Data: data, Format: sops.JSON, Recipients: recipients, UnencryptedRegex: openRegex(was)})
	if err != nil {
		return nil, err
	}
	is, err := decode(sealed)
	if err != nil {
		return nil, err
	}
	if top, ok := is.(object); ok {
		delete(top, "sops")
	}
	if e := (&SealError{Name: name, Readable: exposed(is), Changed: differ(was, is, "")}); len(e.Readable)+len(e.Changed) > 0 {
		return nil, e
	}
	return sealed, nil
}

// differ are JSON pointers of the differences of a value and what became of it. What is encrypted
// is none, if SOPS can bring it back.
func differ(was, is any, at string) (out []string) {
	switch is := is.(type) {
	case object:
		o, ok := was.(object)
		if !ok || !slices.Equal(slices.Sorted(maps.Keys(o)), slices.Sorted(maps.Keys(is))) {
			return []string{at}
		}
		for _, key := range slices.Sorted(maps.Keys(is)) {
			out = append(out, differ(o[key], is[key], at+"/"+pointer.Replace(key))...)
		}
		return out
	case []any:
		list, ok := was.([]any)
		if !ok || len(list) != len(is) {
			return []string{at}
		}
		for i, v := range is {
			out = append(out, differ(list[i], v, fmt.Sprintf("%s/%d", at, i))...)
		}
		return out
	}
	if !kept(was, is) {
		return []string{at}
	}
	return nil
}

// kept is true for a value that says what it said, or that SOPS brings back so.
func kept(was, is any) bool {
	if s, ok := is.(string); ok && encrypted(s) {
		switch v := was.(type) {
		case string, bool:
			return true
		case json.Number:
			is = asSOPS(v)
		}
	}
	a, err := encode(normal(was))
	b, berr := encode(normal(is))
	return err == nil && berr == nil && bytes.Equal(a, b)
}

// asSOPS is a number as SOPS brings it back: whole ones of 64 bits are exact, others are not.
func asSOPS(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil {
		return nil
	}
	return f
}

package state

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/sops"
)

// SealError says that a file can't be encrypted so that no secret stays readable and
// nothing is lost. It names JSON pointers, never values.
type SealError struct {
	// Name of the file.
	Name string
	// Readable are the secrets that would stay so, Changed what would become something else.
	Readable, Changed []string
}

func (e *SealError) Error() string {
	if len(e.Readable) > 0 {
		return fmt.Sprintf("%s: a secret stays readable that can't be encrypted, at %s", e.Name, some(e.Readable))
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

// Seal encrypts the secrets of a file one by one, to public keys of age; all of the file, if one
// of them has a name that tells nothing. What it returns was looked through: no secret is
// readable in it, and the rest says what it said. Errors are *SealError and those of encrypt.
func Seal(ctx context.Context, name string, data []byte, recipients []string, encrypt sops.Encrypter) ([]byte, error) {
	failed := &SealError{Name: name}
	for _, regex := range []string{EncryptedRegex, ""} {
		sealed, err := encrypt(ctx, sops.EncryptRequest{Name: name, Data: data, Format: sops.JSON, Recipients: recipients, EncryptedRegex: regex})
		if err != nil {
			return nil, err
		}
		if failed.Readable, err = Secrets(sealed); err != nil {
			return nil, err
		}
		if failed.Changed, err = changed(data, sealed); err != nil {
			return nil, err
		}
		if len(failed.Readable)+len(failed.Changed) == 0 {
			return sealed, nil
		}
	}
	return nil, failed
}

// changed are JSON pointers of what can be read in an encrypted file, and is something else
// than in the plain one.
func changed(plain, sealed []byte) ([]string, error) {
	was, err := decode(plain)
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
	return differ(normal(was), normal(is), ""), nil
}

// differ are JSON pointers of the differences of two values. What is encrypted is none.
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
	case string:
		if encrypted(is) {
			return nil
		}
	}
	a, err := encode(was)
	b, berr := encode(is)
	if err != nil || berr != nil || !bytes.Equal(a, b) {
		return []string{at}
	}
	return nil
}

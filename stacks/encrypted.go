package stacks

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/sops"
)

// EncryptedFile is something that a render needs and that is encrypted with SOPS.
type EncryptedFile struct {
	// Component that it is for; empty for what several share.
	Component string `json:"component,omitempty"`
	// File below the root of the source.
	File string `json:"file,omitempty"`
	// Values are what ValuesInput.Source says of values, where it is no file.
	Values string `json:"values,omitempty"`
}

// String names it for people.
func (f EncryptedFile) String() string {
	what := f.Values
	if f.File != "" {
		what = "file " + f.File
	}
	if f.Component == "" {
		return what
	}
	return fmt.Sprintf("component %q: %s", f.Component, what)
}

// EncryptedError says that a render needs files that are encrypted, and whose content is
// not in Request.Decrypted, or values that are. It names all that could be found; what comes
// to light only once they are decrypted is in none of them.
type EncryptedError struct {
	Stack string          `json:"stack,omitempty"`
	Files []EncryptedFile `json:"files"`
}

// Error says what is encrypted.
func (e *EncryptedError) Error() string {
	return e.Named() + " encrypted with SOPS, and nothing here decrypts it"
}

// Named names some of the files in a sentence that goes on with what they are.
func (e *EncryptedError) Named() string {
	const most = 5
	var names []string
	for _, f := range e.Files[:min(len(e.Files), most)] {
		names = append(names, f.String())
	}
	if more := len(e.Files) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if len(e.Files) == 1 {
		return names[0] + ": it is"
	}
	return strings.Join(names, "; ") + ": they are"
}

// encryptedIn is what was met encrypted and is needed: a component that is left out needs nothing.
func encryptedIn(tree *source.Tree, req *Request) (out []EncryptedFile) {
	for _, i := range encryptedValues(req) {
		in := &req.Choices.Values[i]
		out = append(out, EncryptedFile{Component: in.Component, Values: in.Source})
	}
	return append(out, filesIn(tree, req)...)
}

func filesIn(tree *source.Tree, req *Request) (out []EncryptedFile) {
	sealed := tree.Sealed()
	if len(sealed) == 0 {
		return nil
	}
	left := leftOut(req)
	for _, s := range sealed {
		if !left[s.Component] {
			out = append(out, EncryptedFile{Component: s.Component, File: s.File})
		}
	}
	return out
}

// leftOut are the components that an install does not want.
func leftOut(req *Request) map[string]bool {
	out := map[string]bool{}
	for i := range req.Choices.Components {
		if c := &req.Choices.Components[i]; c.Enabled != nil && !*c.Enabled {
			out[c.Name] = true
		}
	}
	return out
}

// valuesFormat tells whether values are encrypted, and in which format: they are YAML, or
// what sops makes of JSON.
func valuesFormat(data []byte) (sops.Format, bool) {
	f := sops.YAML
	if json.Valid(data) {
		f = sops.JSON
	}
	return f, sops.Encrypted(data, f)
}

// orEncrypted is an error, or that encrypted files were met: then it may be due to them.
func orEncrypted(err error, tree *source.Tree, stack string) error {
	if err == nil {
		return nil
	}
	if files := encryptedIn(tree, &Request{}); len(files) > 0 {
		return &EncryptedError{Stack: stack, Files: files}
	}
	return err
}

// tries is true for a render that only finds out what else is encrypted.
func (r *renderer) tries() bool { return len(filesIn(r.tree, &r.req)) > 0 }

package stacks

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/sops"
)

// EncryptedFile is a file, or a values document, that a render needs and that is encrypted with
// SOPS.
type EncryptedFile struct {
	// Component that needs the file. Empty if several components share it.
	Component string `json:"component,omitempty"`
	// File below the root of the source.
	File string `json:"file,omitempty"`
	// Values is the ValuesInput.Source of a values document. Empty for a file.
	Values string `json:"values,omitempty"`
}

// String describes the file or values document for messages.
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

// EncryptedError is the error of a render that needs encrypted values, or encrypted files whose
// content is not in Request.Decrypted. It lists all that the render found. Encrypted files that
// only other encrypted files reference are not in the list.
type EncryptedError struct {
	Stack string          `json:"stack,omitempty"`
	Files []EncryptedFile `json:"files"`
}

// Error lists the encrypted files and values.
func (e *EncryptedError) Error() string {
	return e.Subject() + " encrypted with SOPS, but no decryption keys are given"
}

// Subject returns the beginning of a sentence about the files: up to five of them, followed by "it
// is" or "they are".
func (e *EncryptedError) Subject() string {
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

// encryptedInputs returns the encrypted values and files that enabled components need.
func encryptedInputs(tree *source.Tree, req *Request) (out []EncryptedFile) {
	for _, i := range encryptedValues(req) {
		in := &req.Choices.Values[i]
		out = append(out, EncryptedFile{Component: in.Component, Values: in.Source})
	}
	for i := range req.Choices.ParametersFrom {
		in := &req.Choices.ParametersFrom[i]
		for _, key := range in.encryptedKeys() {
			out = append(out, EncryptedFile{Values: in.Source + ", key " + key})
		}
	}
	return append(out, encryptedFiles(tree, req)...)
}

func encryptedFiles(tree *source.Tree, req *Request) (out []EncryptedFile) {
	disabled := req.Choices.disabled()
	for _, s := range tree.EncryptedFiles() {
		if !disabled[s.Component] {
			out = append(out, EncryptedFile{Component: s.Component, File: s.File})
		}
	}
	return out
}

// disabled returns the components that the install disables.
func (c *Choices) disabled() map[string]bool {
	out := map[string]bool{}
	for _, choice := range c.Components {
		if choice.Enabled != nil && !*choice.Enabled {
			out[choice.Name] = true
		}
	}
	return out
}

// valuesFormat returns the format of a values document, YAML or JSON, and true if it is encrypted.
func valuesFormat(data []byte) (sops.Format, bool) {
	f := sops.YAML
	if json.Valid(data) {
		f = sops.JSON
	}
	return f, sops.IsEncrypted(data, f)
}

// preferEncryptedError returns an *EncryptedError in place of err if encrypted files were read,
// because they may be the cause of err. It returns nil if err is nil.
func preferEncryptedError(err error, tree *source.Tree, stack string) error {
	if err == nil {
		return nil
	}
	if files := encryptedInputs(tree, &Request{}); len(files) > 0 {
		return &EncryptedError{Stack: stack, Files: files}
	}
	return err
}

// discoveryPass returns true if encrypted files were read: the render cannot succeed, and goes on
// only to find further encrypted files.
func (r *renderRun) discoveryPass() bool { return len(encryptedFiles(r.tree, &r.req)) > 0 }

// Bound is a resource that is limited for a render.
type Bound string

// Bounds of a render.
const (
	// TimeBound is the limit on the duration of a render.
	TimeBound Bound = "Time"
	// MemoryBound is the limit on the memory of a render.
	MemoryBound Bound = "Memory"
	// NoBound means that the process of the render exited without exceeding a limit.
	NoBound Bound = "None"
)

// StoppedError is the error of a render that was stopped before it completed. Unlike for an Error,
// the stack may be correct: with more time, or on a less busy machine, the same render may succeed.
type StoppedError struct {
	Stack string
	// Bound that the render exceeded.
	Bound Bound
	// Message is a sentence without a full stop: what happened, and which setting raises the
	// limit.
	Message string
}

// Error returns the message with the name of the stack.
func (e *StoppedError) Error() string {
	return "stack " + strconv.Quote(e.Stack) + ": " + e.Message
}

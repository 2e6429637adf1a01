package provisioner

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"unicode"
)

// Limits of a response. A cluster of 5,000 nodes, the largest that Kubernetes supports, needs a
// tenth of them.
const (
	// maxResponseBytes is the maximum size of a response.
	maxResponseBytes = 4 << 20
	maxWorkers       = 20_000
	// maxMessage and maxCode are the numbers of characters of an error that are kept.
	maxMessage, maxCode = 1024, 128
)

// workerNamePattern matches names of machines. They begin the names of Nodes, so they may only hold
// the characters of a DNS label.
var workerNamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$`)

// nodeNamePattern matches names of Nodes.
var nodeNamePattern = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// ParseResponse returns the workers of a response, sorted by index. The error is the *Error of the
// response, or another one if the response violates the contract.
func ParseResponse(data []byte) ([]Worker, error) {
	if len(data) > maxResponseBytes {
		return nil, violation("returned more than %d bytes", maxResponseBytes)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, violation("exited successfully but returned no response")
	}
	var a Response
	// The decoder's message is omitted: it may quote the response, which may hold anything.
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, violation("returned a response that is not a single JSON document")
	}
	if a.APIVersion != APIVersion {
		return nil, violation("returned apiVersion %.60q; only %s is supported", a.APIVersion, APIVersion)
	}
	if a.Error != nil {
		return nil, a.Error.sanitize()
	}
	if err := a.validate(); err != nil {
		return nil, err
	}
	return a.Workers, nil
}

// validate sorts the workers of a response and returns an error if they are invalid.
func (a *Response) validate() error {
	if len(a.Workers) > maxWorkers {
		return violation("returned %d workers; the maximum is %d", len(a.Workers), maxWorkers)
	}
	slices.SortFunc(a.Workers, func(x, y Worker) int { return cmp.Compare(x.Index, y.Index) })
	names := map[string]bool{}
	for i, w := range a.Workers {
		switch {
		case i > 0 && a.Workers[i-1].Index == w.Index:
			return violation("returned two workers with index %d", w.Index)
		case w.Index >= maxWorkers:
			return violation("returned a worker with index %d; the maximum is %d", w.Index, maxWorkers-1)
		case !workerNamePattern.MatchString(w.Name):
			return violation("returned a worker with index %d and the invalid name %.60q", w.Index, w.Name)
		case names[w.Name]:
			return violation("returned two workers named %s", w.Name)
		case w.Node != "" && !nodeNamePattern.MatchString(w.Node):
			return violation("returned a worker with index %d and the invalid node name %.60q", w.Index, w.Node)
		}
		names[w.Name] = true
	}
	return nil
}

// sanitize returns the error in a form that is safe to display: on one line and of limited length.
// An unknown class becomes Other.
func (e *Error) sanitize() *Error {
	out := &Error{Code: oneLine(e.Code, maxCode), Class: e.Class, Message: oneLine(e.Message, maxMessage)}
	if out.Class != OutOfResources {
		out.Class = Other
	}
	out.Message = cmp.Or(out.Message, "the provisioner reported an error without a message")
	return out
}

// oneLine returns s as one line of at most maxChars characters. Every unprintable character becomes
// a space.
func oneLine(s string, maxChars int) string {
	var out []rune
	for _, r := range s {
		if len(out) == maxChars {
			break
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out)
}
